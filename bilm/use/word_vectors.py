"""Where the vectors of words come from: their characters, a table of words, or a token cache.

The files of a model decide it, once (`find_words`). It is realised twice: for corpora, which are
lists of words (`WordSource.load`), and for Keras, which has tensors of strings (`WordVectors`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.cell import Mode
from bilm.core.errors import InputError
from bilm.core.keras_backend import keras
from bilm.core.network import BiLM, build_network
from bilm.core.options import Options
from bilm.core.token_encoder import WordEmbedding
from bilm.core.weight_names import Encoder, weight_table
from bilm.data import Vocabulary, encode_words
from bilm.data.encoding import DictionaryIds, from_bytes
from bilm.files.hdf5 import dataset_shapes, open_hdf5, own_dataset, read_integers, require_floats
from bilm.files.reading import PathLike
from bilm.files.weights import (
    DICTIONARY_CHARACTERS,
    DICTIONARY_WORDS,
    ENCODER_GROUPS,
    LSTM_GROUPS,
    load_hdf5,
    load_initial_states,
)
from bilm.use.corpus_encoder import Tokens, WordIds
from bilm.use.text_layers import CharacterIds
from bilm.use.text_layers import WordIds as WordIdsLayer

# A table was trained with a vector for <UNK>, a cache was not.
CHARACTERS, TABLE, CACHE, CACHE_AND_CHARACTERS = (
    "characters", "table", "cache", "cache and characters",
)  # fmt: skip


class WordSource(NamedTuple):
    """Where the vectors of a model's words come from."""

    kind: str  # CHARACTERS, TABLE, CACHE or CACHE_AND_CHARACTERS
    options: Options
    weight_file: PathLike
    table_file: PathLike | None = None  # of the table or of the cache; None for CHARACTERS
    vocab_file: PathLike | None = None  # its words
    # The words by its rows; None for CHARACTERS, and for a TABLE without a file.
    vocabulary: Vocabulary | None = None

    @property
    def words(self) -> list[str] | None:
        """The words of `vocabulary`."""
        return None if self.vocabulary is None else self.vocabulary.words

    def require_vocabulary(self) -> Vocabulary:
        """The words of the table or the cache.

        Raises:
            InputError: they are not known.
        """
        if self.vocabulary is None:
            what = "a model of words" if self.kind == TABLE else "a token cache"
            raise InputError(
                f"{self.table_file}: {what} needs the vocabulary that it was made with: "
                "vocab_file, or vocab.txt beside the weights."
            )
        return self.vocabulary

    def refuse_unknown(self, sentence: Tokens, where: str) -> None:
        """Check that each word of a sentence has a vector; `where` names the sentence.

        Raises:
            InputError: a word is not in the vocabulary of the cache, and there are no weights to
                encode its characters.
        """
        if self.kind != CACHE or self.vocabulary is None:
            return
        for number in np.flatnonzero(self.vocabulary.known_ids(sentence) < 0).tolist():
            raise InputError(
                f"{where}, word {number + 1}: {sentence[number]!r} is not in {self.vocab_file}, "
                f"and {self.weight_file} has no weights of a character encoder (char_embed), so "
                "the word has no vector."
            )

    def build(self, precision: str = "float32") -> BiLM:
        """The network for corpora, without values."""
        network = build_network(
            self.options, self._n_tokens(), precision=precision, mode=Mode.INFERENCE, n_groups=1
        )
        if self.kind != CACHE_AND_CHARACTERS:
            return network
        shape = (self.require_vocabulary().size, self.options.lstm.projection_dim)
        encoder: Any = CachedWords(WordEmbedding(*shape, name="cache"), network.encoder)
        return network._replace(encoder=encoder)

    def load(self, precision: str = "float32") -> tuple[BiLM, WordIds]:
        """The network for corpora, and what gives the ids of words for its encoder, less one. The
        latter can be pickled.

        Raises:
            FileNotFoundError, InputError: a file is not there, is not what it should be, or does
                not fit the others; a vocabulary is needed and not known.
        """
        network = self.build(precision)
        encoder: Any = network.encoder
        if self.kind == CHARACTERS:
            load_network(network, self.weight_file)
            return network, character_ids(self.options, self.weight_file)
        vocabulary = self.require_vocabulary()
        if self.kind != CACHE_AND_CHARACTERS:
            load_network(network, self.weight_file, self.table_file)
            return network, vocabulary.word_ids
        load_network(network._replace(encoder=encoder.characters), self.weight_file)
        characters = character_ids(self.options, self.weight_file)
        load_table(encoder.cache, self.table_file or self.weight_file)
        return network, functools.partial(_cached_ids, vocabulary, characters)

    def _n_tokens(self) -> int | None:
        """Rows of the table of words; None for a network that reads characters."""
        of_characters = self.kind in (CHARACTERS, CACHE_AND_CHARACTERS)
        return None if of_characters else self.require_vocabulary().size


def _cached_ids(vocabulary: Vocabulary, characters: WordIds, words: Sequence[str]) -> np.ndarray:
    """What `CachedWords` takes, less one."""
    return np.column_stack([vocabulary.known_ids(words), characters(words).astype(np.int32)])


def find_words(
    options: Options,
    weight_file: PathLike,
    vocab_file: PathLike | None = None,
    embedding_weight_file: PathLike | None = None,
) -> WordSource:
    """Where the vectors of words come from, as the files say.

    Args:
        vocab_file: the vocabulary of a model of words, or of a token cache.
        embedding_weight_file: a token cache, in place of the character encoder or before it; or
            the table of a model of words.

    Raises:
        FileNotFoundError, InputError: a file is not there, is not what it should be, or does not
            fit the others; a cache has no vocabulary.
    """
    if options.char_cnn is not None and embedding_weight_file is None:
        return WordSource(CHARACTERS, options, weight_file)
    table_file = embedding_weight_file or weight_file
    source = WordSource(TABLE, options, weight_file, table_file, vocab_file)
    if vocab_file is not None:
        vocabulary = Vocabulary(vocab_file)
        n_tokens = count_embedded_tokens(table_file)
        if n_tokens != vocabulary.size:
            raise InputError(
                f"{vocab_file}: {n_tokens} words are expected, as many as the rows of 'embedding' "
                f"in {table_file}, not {vocabulary.size}."
            )
        source = source._replace(vocabulary=vocabulary)
    if options.char_cnn is None:
        return source
    has_characters = not {"char_embed", "dictionary/char_embed"}.isdisjoint(
        dataset_shapes(weight_file)
    )
    source = source._replace(kind=CACHE_AND_CHARACTERS if has_characters else CACHE)
    source.require_vocabulary()
    return source


class CachedWords:
    """A token encoder that looks words up and encodes the others from their characters.

    It takes int32 (n, 1 + max_characters_per_token): the cache's row + 1, 0 for a word that it
    does not have; then the character ids + 1.
    """

    def __init__(self, cache: WordEmbedding, characters: Encoder) -> None:
        self.cache = cache
        self.characters = characters
        self.weights = [*cache.weights, *characters.weights]

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        """The words' vectors: float32 (n, projection_dim)."""
        outside = tf.where(ids[:, 0] == 0)  # (words outside, 1)
        encoded = self.characters(tf.gather_nd(ids[:, 1:], outside))
        return tf.tensor_scatter_nd_update(self.cache(ids[:, 0]), outside, encoded)


class WordVectors(keras.layers.Layer):
    """The vectors of words that are given as strings.

    Args:
        kind: where they come from, see `WordSource`.
        vocabulary: the words of the table or of the cache, in the order of its rows; None where
            they are not needed, or not known.
        options: the model's options.
        cache_file: of CACHE_AND_CHARACTERS the token cache; None for zeros.
    """

    def __init__(
        self,
        kind: str,
        vocabulary: Sequence[str] | None,
        options: Options,
        cache_file: PathLike | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, dtype="float32", **kwargs)
        self.kind = kind
        self.characters: CharacterIds | None = None
        self.words: WordIdsLayer | None = None
        self.cache: WordEmbedding | None = None
        if kind in (CHARACTERS, CACHE_AND_CHARACTERS):
            self.characters = CharacterIds(options.max_word_length or 0)
        if vocabulary is not None:
            self.words = WordIdsLayer(vocabulary)
        if kind == CACHE_AND_CHARACTERS and vocabulary is not None:
            shape = (len(vocabulary), options.lstm.projection_dim)
            self.cache = WordEmbedding(*shape, name="cache")
            if cache_file is not None:
                load_table(self.cache, cache_file)
        self.trainable = False
        self.built = True

    @property
    def vocabulary(self) -> list[str] | None:
        """The words of the table or of the cache."""
        return None if self.words is None else list(self.words.vocabulary)

    def require_words(self) -> None:
        """Check that words as strings have vectors.

        Raises:
            InputError: the model is one of words, and its vocabulary was not named.
        """
        if self.words is None and self.characters is None:
            raise InputError(
                "text: a model of words takes text with the vocabulary that it was trained with: "
                "name it with vocab_file. Without it, give word ids, as TokenBatcher does."
            )

    def call(self, words: tf.Tensor, encoder: Encoder) -> tf.Tensor:
        """The vectors of words of any shape by the language model's encoder, which encodes each
        distinct word once: float32, the shape of `words` + (projection_dim,)."""
        distinct, index = tf.unique(tf.reshape(words, [-1]))
        vectors = self._encode(distinct, encoder)  # (distinct words, projection_dim)
        # (words,) -> the shape of `words` again
        return tf.gather(vectors, tf.reshape(index, tf.shape(words)))

    def _encode(self, words: tf.Tensor, encoder: Encoder) -> tf.Tensor:
        if self.words is None:
            return encoder(self.characters.ids_of(words))  # type: ignore[union-attr]
        if self.kind == TABLE:
            return encoder(self.words.ids_of(words))
        rows = self.words.known_ids_of(words)
        if self.cache is None or self.characters is None:
            return encoder(self._all_known(rows, words))
        # (words, 1 + max_characters_per_token)
        ids = tf.concat([rows[:, tf.newaxis], self.characters.ids_of(words)], axis=1)
        return CachedWords(self.cache, encoder)(ids)

    def _all_known(self, rows: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
        unknown = tf.boolean_mask(words, rows == 0)
        message = (
            "text: not in the vocabulary of the token cache, and the weights have no character "
            "encoder (char_embed), so that there is no vector for"
        )
        known = tf.debugging.Assert(tf.size(unknown) == 0, [message, unknown], summarize=5)
        with tf.control_dependencies([known]):
            return tf.identity(rows)


def count_embedded_tokens(file: PathLike) -> int:
    """Rows of the dataset `embedding`: a token cache, or the table of a word-input model.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: the file has no such dataset, or not of two axes; or it is not there whole.
    """
    shape = dataset_shapes(file).get("embedding")
    if shape is None or len(shape) != 2:
        found = "nothing" if shape is None else f"shape {shape}"
        raise InputError(
            f"{file}: a dataset 'embedding' (tokens, projection_dim) is expected, not {found}."
        )
    with open_hdf5(file) as opened:
        require_floats(opened, "embedding", own_dataset(opened, "embedding"))
    return shape[0]


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
    """Load the layers, and the states in which texts begin, if the weights file holds any; the word
    table from a file of its own, if `embedding_file` names one.

    Raises:
        FileNotFoundError, InputError: see `bilm.files.weights.load_hdf5`.
    """
    load_initial_states(weight_file, network.stacks)
    if embedding_file is None:
        load_hdf5(weight_file, network.weight_table())
        return
    # The weights of the encoder that made the cache may be beside the LSTMs.
    load_hdf5(weight_file, weight_table(None, network.stacks), also=ENCODER_GROUPS)
    load_table(network.encoder, embedding_file)


def load_table(table: Encoder, file: PathLike) -> None:
    """Load a token cache, or the table of a model of words, from its file.

    Raises:
        FileNotFoundError, InputError: see `bilm.files.weights.load_hdf5`.
    """
    # The file may hold a whole model besides.
    load_hdf5(file, weight_table(table, ()), also=(*ENCODER_GROUPS, *LSTM_GROUPS))


def load_dictionaries(path: PathLike, sizes: Mapping[str, int]) -> dict[str, list[str]]:
    """The tokens of dictionaries by their rows; `sizes` are their numbers, by names of datasets.

    Raises:
        FileNotFoundError, InputError: see `open_hdf5`; a dictionary is missing or has another
            number of tokens.
    """
    names = dataset_shapes(path)
    with open_hdf5(path) as file:
        found = {n: from_bytes(read_integers(file, n)) if n in names else [] for n in sizes}
    for name, size in sizes.items():
        if len(found[name]) != size:
            raise InputError(f"{path}: {name}: {size} tokens are expected, not {len(found[name])}.")
    return found
