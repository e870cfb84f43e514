"""From files to files: vectors of a vocabulary, and vectors of a corpus."""

from __future__ import annotations

import h5py
import numpy as np
import tensorflow as tf

from bilm.data import Vocabulary, network_ids
from bilm.embedding.corpus import CorpusEncoder
from bilm.embedding.hdf5_arrays import write_array
from bilm.errors import InputError
from bilm.files import PathLike, atomic_write, read_lines
from bilm.layers import Mode
from bilm.model.loading import character_ids, count_embedded_tokens, load_network
from bilm.model_files import read_options
from bilm.network import build_network
from bilm.options import Options

_WORDS_AT_ONCE = 2048


def dump_token_embeddings(
    vocab_file: PathLike, options_file: PathLike, weight_file: PathLike, outfile: PathLike
) -> None:
    """Encode every word of a vocabulary from its characters and write the vectors.

    The result is a token cache: `BidirectionalLanguageModel(..., use_character_inputs=False,
    embedding_weight_file=outfile)` reads it.

    Args:
        vocab_file: a word a line, with <S>, </S> and <UNK>.
        options_file: options.json of a model with character input.
        weight_file: its HDF5 weights.
        outfile: the HDF5 file to write, dataset `embedding` float32 (words, projection_dim) in
            the order of the vocabulary.

    Raises:
        FileNotFoundError: a file does not exist.
        InputError: a file is not what it should be; the model takes words.
    """
    options = read_options(options_file)
    if options.max_word_length is None:
        raise InputError(f"{options_file}: no char_cnn: a model of words has its vectors already.")
    vocabulary = Vocabulary(vocab_file)
    word_ids = character_ids(options, weight_file)
    network = build_network(options)
    load_network(network, weight_file)
    encode = tf.function(network.encoder, reduce_retracing=True, autograph=False)
    with atomic_write(outfile) as temporary, h5py.File(temporary, "w") as file:
        shape = (vocabulary.size, options.lstm.projection_dim)
        embedding = file.create_dataset("embedding", shape, np.float32)
        for start in range(0, vocabulary.size, _WORDS_AT_ONCE):
            stop = min(start + _WORDS_AT_ONCE, vocabulary.size)
            words = [vocabulary.id_to_word(number) for number in range(start, stop)]
            characters = network_ids(word_ids(words).astype(np.int32))
            embedding[start:stop] = encode(tf.constant(characters)).numpy()


def dump_bilm_embeddings(
    vocab_file: PathLike,
    dataset_file: PathLike,
    options_file: PathLike,
    weight_file: PathLike,
    outfile: PathLike,
    *,
    precision: str = "float32",
) -> None:
    """Write all layers of each sentence of a text file.

    Each sentence is computed alone: its vectors do not depend on its neighbours in the file.

    Args:
        vocab_file: a word a line, with <S>, </S> and <UNK>. With character input it changes
            nothing: a word's vector comes from its characters.
        dataset_file: a sentence a line, words separated by white space; plain, .gz or .xz.
        options_file: options.json of the model.
        weight_file: its HDF5 weights.
        outfile: the HDF5 file to write. Dataset str(line number from 0): float32
            (n_layers + 1, words, 2 * projection_dim); an empty line has no words.
        precision: "float32", or "bfloat16" for products in bfloat16.

    Raises:
        FileNotFoundError: a file does not exist.
        InputError: a file is not what it should be.
    """
    options = read_options(options_file)
    encoder = load_corpus_encoder(vocab_file, options, weight_file, precision)
    sentences = (line.split() for line in read_lines(dataset_file))
    with atomic_write(outfile) as temporary, h5py.File(temporary, "w") as file:
        for number, layers in enumerate(encoder.layers(sentences)):
            write_array(file, str(number), layers)


def load_corpus_encoder(
    vocab_file: PathLike, options: Options, weight_file: PathLike, precision: str = "float32"
) -> CorpusEncoder:
    """A `CorpusEncoder` for a model's files, with character or word input as the options say."""
    vocabulary = Vocabulary(vocab_file)
    if options.max_word_length is not None:
        network = build_network(options, precision=precision, mode=Mode.INFERENCE, n_groups=1)
        word_ids = character_ids(options, weight_file)
    else:
        n_tokens = count_embedded_tokens(weight_file)
        if n_tokens != vocabulary.size:
            raise InputError(
                f"{vocab_file}: {n_tokens} words are expected, as many as the rows of 'embedding' "
                f"in {weight_file}, not {vocabulary.size}."
            )
        network = build_network(
            options, n_tokens, precision=precision, mode=Mode.INFERENCE, n_groups=1
        )
        word_ids = vocabulary.word_ids
    load_network(network, weight_file)
    return CorpusEncoder(network, word_ids)
