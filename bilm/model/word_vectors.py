"""Words as strings to vectors within a graph: by characters, by a table of words, or by a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bilm.errors import InputError
from bilm.files import PathLike
from bilm.layers import CharacterIds, WordEmbedding, WordIds
from bilm.model.known_words import CachedWords
from bilm.model.loading import load_cache, read_table_words
from bilm.options import Options
from bilm.weights import Encoder, dataset_shapes

# Where a word's vector comes from. A table was trained with a vector for <UNK>, a cache was not.
CHARACTERS, TABLE, CACHE, CACHE_AND_CHARACTERS = KINDS = (
    "characters", "table", "cache", "cache and characters",
)  # fmt: skip


class WordSource(NamedTuple):
    """Where the vectors of words come from.

    Attributes:
        kind: one of `KINDS`.
        vocabulary: the words of the table or of the cache, in the order of its rows; None where
            they are not needed, or not known.
    """

    kind: str
    vocabulary: Sequence[str] | None

    @property
    def network_reads_characters(self) -> bool:
        """Whether the language model's own encoder takes characters."""
        return self.kind in (CHARACTERS, CACHE_AND_CHARACTERS)


def find_words(
    options: Options,
    weight_file: PathLike,
    vocab_file: PathLike | None,
    embedding_weight_file: PathLike | None,
) -> WordSource:
    """Where the vectors come from, as the files say.

    Raises:
        FileNotFoundError, InputError: a file is not there, is not what it should be, or does not
            fit the others; a cache has no vocabulary.
    """
    if options.char_cnn is not None and embedding_weight_file is None:
        return WordSource(CHARACTERS, None)
    vocabulary = None
    if vocab_file is not None:
        table = read_table_words(vocab_file, embedding_weight_file or weight_file)
        vocabulary = [table.id_to_word(number) for number in range(table.size)]
    if options.char_cnn is None:
        return WordSource(TABLE, vocabulary)
    if vocabulary is None:
        raise InputError(
            f"{embedding_weight_file}: a token cache needs the vocabulary that it was made with: "
            "vocab_file."
        )
    has_characters = "char_embed" in dataset_shapes(weight_file)
    return WordSource(CACHE_AND_CHARACTERS if has_characters else CACHE, vocabulary)


class WordVectors(keras.layers.Layer):
    """The vectors of words that are given as strings.

    Args:
        source: where they come from.
        options: the model's options.
        cache_file: the token cache, if it stands beside the characters; None for zeros.
    """

    def __init__(
        self, source: WordSource, options: Options, cache_file: PathLike | None, **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, dtype="float32", **kwargs)
        self.kind = source.kind
        self.characters: CharacterIds | None = None
        self.words: WordIds | None = None
        self.cache: WordEmbedding | None = None
        if source.network_reads_characters:
            self.characters = CharacterIds(options.max_word_length or 0)
        if source.vocabulary is not None:
            self.words = WordIds(source.vocabulary)
        if source.kind == CACHE_AND_CHARACTERS and source.vocabulary is not None:
            shape = (len(source.vocabulary), options.lstm.projection_dim)
            self.cache = (
                WordEmbedding(*shape) if cache_file is None else load_cache(cache_file, *shape)
            )
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
        """The vectors of words.

        Args:
            words: string, of any shape; each distinct word is encoded once.
            encoder: the language model's own.

        Returns:
            float32, a last axis more.
        """
        distinct, places = tf.unique(tf.reshape(words, [-1]))
        vectors = self._encode(distinct, encoder)
        shape = tf.concat([tf.shape(words), tf.shape(vectors)[1:]], 0)
        vectors = tf.reshape(tf.gather(vectors, places), shape)
        return tf.ensure_shape(vectors, (*words.shape, vectors.shape[-1]))

    def _encode(self, words: tf.Tensor, encoder: Encoder) -> tf.Tensor:
        self.require_words()
        if self.words is None:
            return encoder(self.characters.ids_of(words))  # type: ignore[union-attr]
        if self.kind == TABLE:
            return encoder(self.words.ids_of(words))
        rows = self.words.known_ids_of(words)
        if self.cache is None or self.characters is None:
            return encoder(self._all_known(rows, words))
        characters = self.characters.ids_of(words)
        ids = tf.concat([rows[:, tf.newaxis], characters], axis=1)
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


def as_config(words: WordVectors, n_rows: int | None) -> dict[str, Any]:
    """What builds a `WordSource` again, for a file; `n_rows` are those of the network's table."""
    return {"kind": words.kind, "vocabulary": words.vocabulary, "n_rows": n_rows}


def from_config(config: Mapping[str, Any] | None) -> WordSource:
    """The inverse of `as_config`.

    Raises:
        InputError: there is nothing.
    """
    if config is None:
        raise InputError("words: what a saved layer says is needed without weight_file.")
    return WordSource(config["kind"], config["vocabulary"])
