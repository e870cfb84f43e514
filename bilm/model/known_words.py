"""Where a word's vector comes from: its characters, a table of words, or a cache and characters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.data import Vocabulary
from bilm.embedding.corpus import Tokens, WordIds
from bilm.errors import InputError
from bilm.files import PathLike
from bilm.layers import Mode, WordEmbedding
from bilm.model.loading import (
    character_ids,
    holds_characters,
    load_cache,
    load_network,
    read_table_words,
)
from bilm.model_files import ModelFiles
from bilm.network import BiLM, build_network
from bilm.options import Options
from bilm.weights import Encoder


class WordInput:
    """A loaded network, and what it is to be given for words.

    Attributes:
        network: the layers; its encoder takes what `word_ids` gives, plus one.
        word_ids: the ids of words.
        vocabulary: the words of the table or cache; None for a model of characters alone.
        refusal: says why a word outside the vocabulary has no vector; None if it has one.
    """

    def __init__(
        self,
        network: BiLM,
        word_ids: WordIds,
        vocabulary: Vocabulary | None = None,
        refusal: Callable[[str], str] | None = None,
    ) -> None:
        self.network = network
        self.word_ids = word_ids
        self.vocabulary = vocabulary
        self.refusal = refusal

    def refuse_unknown(self, sentence: Tokens, place: str) -> None:
        """Check that each word has a vector.

        Args:
            place: where the sentence stands, for the message.

        Raises:
            InputError: a word is not in the vocabulary of the cache, and there are no weights to
                encode its characters.
        """
        if self.refusal is None or self.vocabulary is None or not len(sentence):
            return
        for number in np.flatnonzero(self.vocabulary.known_ids(sentence) < 0).tolist():
            raise InputError(f"{place}, word {number + 1}: {self.refusal(sentence[number])}")


def load_words(
    options: Options,
    files: ModelFiles,
    vocab_file: PathLike | None,
    embedding_weight_file: PathLike | None,
    precision: str,
) -> WordInput:
    """Load a model's network with the word vectors that were asked for.

    Args:
        options: the sizes.
        files: the weights, and perhaps a vocabulary.
        vocab_file: stands above the vocabulary in `files`.
        embedding_weight_file: a token cache, in place of or beside the character encoder.
        precision: "float32", or "bfloat16" for products in bfloat16.

    Raises:
        FileNotFoundError, InputError: a file is not there, is not what it should be, or does not
            fit the others; a vocabulary is needed and not named.
    """
    vocab_file = vocab_file or files.vocabulary
    max_word_length = options.max_word_length
    if max_word_length is not None and embedding_weight_file is None:
        network = build_network(options, precision=precision, mode=Mode.INFERENCE, n_groups=1)
        load_network(network, files.weights)
        return WordInput(network, character_ids(options, files.weights))
    if vocab_file is None:
        what = "a model of words" if options.char_cnn is None else "a token cache"
        raise InputError(
            f"{files.source}: {what} needs the vocabulary that it was made with: vocab_file, or "
            "vocab.txt beside the weights."
        )
    table_file = embedding_weight_file or files.weights
    vocabulary = read_table_words(vocab_file, table_file)
    if max_word_length is not None and holds_characters(files.weights):
        network = build_network(options, precision=precision, mode=Mode.INFERENCE, n_groups=1)
        load_network(network, files.weights)
        characters = character_ids(options, files.weights)
        return _with_cache(network, characters, vocabulary, table_file)
    network = build_network(
        options, vocabulary.size, precision=precision, mode=Mode.INFERENCE, n_groups=1
    )
    load_network(network, files.weights, embedding_weight_file)
    if max_word_length is None:
        # A model of words was trained with a vector for <UNK>.
        return WordInput(network, vocabulary.word_ids, vocabulary)
    refusal = functools.partial(_refusal, vocab_file=vocab_file, weight_file=files.weights)
    return WordInput(network, vocabulary.word_ids, vocabulary, refusal)


def _refusal(word: str, vocab_file: PathLike, weight_file: PathLike) -> str:
    return (
        f"{word!r} is not in {vocab_file}, and {weight_file} has no weights of a character "
        "encoder (char_embed), so the word has no vector."
    )


def _with_cache(
    network: BiLM,
    characters: WordIds,
    vocabulary: Vocabulary,
    embedding_weight_file: PathLike,
) -> WordInput:
    size = network.stacks[0].options.projection_dim
    cache = load_cache(embedding_weight_file, vocabulary.size, size)

    def word_ids(words: Sequence[str]) -> np.ndarray:
        return np.column_stack([vocabulary.known_ids(words), characters(words).astype(np.int32)])

    encoder: Any = CachedWords(cache, network.encoder)
    return WordInput(network._replace(encoder=encoder), word_ids, vocabulary)


class CachedWords:
    """A token encoder that looks words up and encodes the others from their characters.

    Call arguments:
        ids: int32 (n, 1 + max_characters_per_token): the cache's row + 1, 0 for a word that it
            does not have; then the character ids + 1.

    Returns:
        float32 (n, projection_dim).
    """

    def __init__(self, cache: WordEmbedding, characters: Encoder) -> None:
        self.cache = cache
        self.characters = characters
        self.weights = [*cache.weights, *characters.weights]

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        """The words' vectors."""
        outside = tf.where(ids[:, 0] == 0)
        encoded = self.characters(tf.gather_nd(ids[:, 1:], outside))
        return tf.tensor_scatter_nd_update(self.cache(ids[:, 0]), outside, encoded)
