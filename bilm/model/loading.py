"""Load a network from the files of a pretrained model."""

from __future__ import annotations

import functools

from bilm.data import Vocabulary, encode_words
from bilm.data.encoding import DictionaryIds
from bilm.embedding.corpus import WordIds
from bilm.errors import InputError
from bilm.files import PathLike
from bilm.layers import WordEmbedding
from bilm.network import BiLM
from bilm.options import Options
from bilm.weights import (
    DICTIONARY_CHARACTERS,
    DICTIONARY_WORDS,
    ENCODER_GROUPS,
    LSTM_GROUPS,
    dataset_shapes,
    load_dictionaries,
    load_hdf5,
    load_initial_states,
    weight_table,
)


def count_embedded_tokens(file: PathLike) -> int:
    """Rows of the dataset `embedding`: a token cache, or the table of a word-input model.

    Raises:
        InputError: the file has no such dataset, or not of two axes.
    """
    shape = dataset_shapes(file).get("embedding")
    if shape is None or len(shape) != 2:
        found = "nothing" if shape is None else f"shape {shape}"
        raise InputError(
            f"{file}: a dataset 'embedding' (tokens, projection_dim) is expected, not {found}."
        )
    return shape[0]


def read_table_words(vocab_file: PathLike, table_file: PathLike) -> Vocabulary:
    """The words whose vectors are the rows of `embedding` in a file.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: as for `Vocabulary`; there are not as many words as rows.
    """
    vocabulary = Vocabulary(vocab_file)
    n_tokens = count_embedded_tokens(table_file)
    if n_tokens != vocabulary.size:
        raise InputError(
            f"{vocab_file}: {n_tokens} words are expected, as many as the rows of 'embedding' in "
            f"{table_file}, not {vocabulary.size}."
        )
    return vocabulary


def load_cache(table_file: PathLike, n_tokens: int, projection_dim: int) -> WordEmbedding:
    """A token cache, read from its file.

    Raises:
        FileNotFoundError, InputError: see `bilm.weights.load_hdf5`.
    """
    cache = WordEmbedding(n_tokens, projection_dim, name="cache")
    others = (*ENCODER_GROUPS, *LSTM_GROUPS)
    load_hdf5(table_file, weight_table(cache, ()), also=others)
    return cache


def holds_characters(file: PathLike) -> bool:
    """Whether a weights file has an encoder of characters."""
    return not {"char_embed", "dictionary/char_embed"}.isdisjoint(dataset_shapes(file))


def character_ids(options: Options, weight_file: PathLike) -> WordIds:
    """What gives the ids of words to a model that reads characters.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: the model reads words; or its dictionaries are not in the file.
    """
    char_cnn = options.char_cnn
    if char_cnn is None:
        raise InputError("The options have no char_cnn: the model takes words, not characters.")
    length = char_cnn.max_characters_per_token
    if char_cnn.dictionary is None:
        return functools.partial(encode_words, max_word_length=length)
    sizes = {DICTIONARY_CHARACTERS: char_cnn.dictionary.n_characters}
    if char_cnn.dictionary.word_dim:
        sizes[DICTIONARY_WORDS] = char_cnn.dictionary.n_words
    tokens = load_dictionaries(weight_file, sizes)
    words = tokens.get(DICTIONARY_WORDS)
    return DictionaryIds(tokens[DICTIONARY_CHARACTERS], words, length, str(weight_file))


def load_network(
    network: BiLM, weight_file: PathLike, embedding_file: PathLike | None = None
) -> None:
    """Load the layers; the word table from a file of its own, if `embedding_file` names one.

    The states in which texts begin are loaded too, if the weights file holds any.

    Raises:
        FileNotFoundError, InputError: see `bilm.weights.load_hdf5`.
    """
    load_initial_states(weight_file, network.stacks)
    if embedding_file is None:
        load_hdf5(weight_file, network.weight_table())
        return
    # The weights of the encoder that made the cache may stand beside the LSTMs.
    load_hdf5(weight_file, weight_table(None, network.stacks), also=ENCODER_GROUPS)
    others = (*ENCODER_GROUPS, *LSTM_GROUPS)
    load_hdf5(embedding_file, weight_table(network.encoder, ()), also=others)
