"""Sources of word vectors: characters, a word table, or a token cache.

`find_words` chooses the source from a model's files. Use `WordSource.build` for lists of words, and
`WordVectors` for string tensors in Keras.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError
from bilm.core.keras_backend import keras
from bilm.core.network import BiLM, build_network
from bilm.core.options import CharCNNOptions, Options
from bilm.core.token_encoder import WordEmbedding
from bilm.core.weight_names import Encoder
from bilm.data import Vocabulary, encode_words
from bilm.data.encoding import UNK, DictionaryIds, from_bytes
from bilm.data.sentences import Tokens
from bilm.data.vocabulary import vocabulary_of
from bilm.files.reading import PathLike
from bilm.files.weights import (
    DICTIONARY_CHARACTERS,
    DICTIONARY_WORDS,
    WeightsFile,
    load_network,
    load_table,
    require_model_of,
)
from bilm.use.tensor_checks import require_all
from bilm.use.text_layers import CharacterIds, WordIds

# A table has a trained vector for <UNK>, a cache has none.
KINDS = CHARACTERS, TABLE, CACHE, CACHE_AND_CHARACTERS = (
    "characters", "table", "cache", "cache and characters",
)  # fmt: skip


class WordSource(NamedTuple):
    """The source of a model's word vectors. It can be pickled."""

    kind: str  # CHARACTERS, TABLE, CACHE or CACHE_AND_CHARACTERS
    options: Options
    weight_file: str  # for messages
    table_file: str | None = None  # for messages: the table or the cache; None for CHARACTERS
    # The words in the order of the rows; None for CHARACTERS, or a TABLE without a vocabulary.
    vocabulary: Vocabulary | None = None
    dictionary: DictionaryIds | None = None  # None for characters that are bytes

    @property
    def words(self) -> list[str] | None:
        return None if self.vocabulary is None else self.vocabulary.words

    @property
    def tokens(self) -> list[list[str]]:
        """All words and characters that determine the ids."""
        dictionary_tokens = [] if self.dictionary is None else self.dictionary.tokens
        return [self.words or [], *dictionary_tokens]

    def word_ids(self, words: Sequence[str]) -> np.ndarray:
        """The encoder's ids of words, 0-based integers. A table or a cache alone: (len(words),).
        Characters: (len(words), max_characters_per_token); with a cache, its row comes first, -1
        for a missing word."""
        if self.kind in (TABLE, CACHE):
            return self.require_vocabulary().word_ids(words)
        if self.dictionary is not None:
            characters = self.dictionary(words)
        else:
            characters = encode_words(words, self.options.max_word_length or 0)
        if self.kind == CHARACTERS:
            return characters
        rows = self.require_vocabulary().known_ids(words)
        return np.column_stack([rows, characters.astype(np.int32)])

    def config(self) -> dict[str, Any]:
        """The argument `words` of `ELMoEmbedding`."""
        kind = self.kind
        if kind == CACHE_AND_CHARACTERS and self.dictionary is not None:
            kind = CACHE  # a graph cannot look up characters in a dictionary
        return {"kind": kind, "vocabulary": self.words, "n_rows": None}

    def require_vocabulary(self) -> Vocabulary:
        """The words of the table or the cache; an InputError if they are missing."""
        if self.vocabulary is None:
            owner = "a word-level model" if self.kind == TABLE else "a token cache"
            raise InputError(
                f"{self.table_file}: {owner} needs its vocabulary: give vocab_file, or put "
                "vocab.txt next to the weights."
            )
        return self.vocabulary

    def refuse_unknown(self, sentence: Tokens, where: str) -> None:
        """Raise an InputError for a word without a vector; `where` names the sentence."""
        vocabulary = self.vocabulary
        if vocabulary is None or self.kind not in (CACHE, TABLE):
            return
        if self.kind == TABLE and vocabulary.known_ids([UNK])[0] >= 0:
            return
        why = f"and {self.weight_file} lacks a character encoder (char_embed)"
        if self.kind == TABLE:
            why = f"which lacks {UNK} for such words"
        for number in np.flatnonzero(vocabulary.known_ids(sentence) < 0).tolist():
            raise InputError(
                f"{where}, word {number + 1}: {sentence[number]!r} has no vector: it is not in "
                f"{vocabulary.source}, {why}."
            )

    def build(
        self, precision: str, weights: WeightsFile | None = None, table: WeightsFile | None = None
    ) -> BiLM:
        """The network for lists of words, with the values of the files if they are given."""
        has_characters = self.kind in (CHARACTERS, CACHE_AND_CHARACTERS)
        n_tokens = None if has_characters else self.require_vocabulary().size
        network = build_network(self.options, n_tokens, precision=precision, n_buckets=1)
        has_cache = self.kind == CACHE_AND_CHARACTERS
        if weights is not None:
            load_network(network, weights, None if has_cache else table)
        if not has_cache:
            return network
        cache = cache_of(self.require_vocabulary().words, self.options, table)
        encoder: Any = CachedWords(cache, network.encoder)
        return network._replace(encoder=encoder)


def find_words(
    options: Options,
    weights: WeightsFile,
    # A token cache, or the table of a word-level model if it is not in `weights`.
    table: WeightsFile | None = None,
    vocab_file: PathLike | None = None,  # the user's vocabulary of the table or the cache
    default_file: PathLike | None = None,  # the vocabulary next to the weights
) -> WordSource:
    """Choose the source of word vectors. Raises an InputError if the files do not fit each other,
    or a token cache lacks its vocabulary."""
    char_cnn = options.char_cnn
    dictionary = None if char_cnn is None else _dictionary(char_cnn, weights)
    if char_cnn is not None and table is None:
        return WordSource(CHARACTERS, options, weights.path, dictionary=dictionary)
    require_model_of(table, weights)
    embedding_file = table or weights
    if char_cnn is not None and vocab_file is not None:
        default_file = None  # it may be the vocabulary of the softmax
    vocabulary = vocabulary_of(
        vocab_file, embedding_file.words(), embedding_file.path, default_file
    )
    n_rows = embedding_file.n_embedded()
    if vocabulary is not None and vocabulary.size != n_rows:
        raise InputError(
            f"{vocabulary.source} must have {n_rows} words, as many as 'embedding' in "
            f"{embedding_file.path} has rows, got {vocabulary.size}."
        )
    source = WordSource(TABLE, options, weights.path, embedding_file.path, vocabulary, dictionary)
    if char_cnn is None:
        return source
    has_characters = not {"char_embed", "dictionary/char_embed"}.isdisjoint(weights.shapes)
    source = source._replace(kind=CACHE_AND_CHARACTERS if has_characters else CACHE)
    source.require_vocabulary()
    return source


def _dictionary(char_cnn: CharCNNOptions, weights: WeightsFile) -> DictionaryIds | None:
    """The dictionaries of a model whose characters are not bytes; None for other models."""
    sizes = char_cnn.dictionary
    if sizes is None:
        return None
    lists = []
    expected = {DICTIONARY_CHARACTERS: sizes.n_characters, DICTIONARY_WORDS: sizes.n_words}
    for name, size in expected.items():
        text = weights.text(name)
        lists.append(from_bytes(text) if len(text) else [])
        if len(lists[-1]) != size:
            raise InputError(
                f"{weights.path}: {name} must have {size} tokens, got {len(lists[-1])}."
            )
    characters, words = lists
    length = char_cnn.max_characters_per_token
    return DictionaryIds(characters, words if sizes.word_dim else None, length, weights.path)


class CachedWords:
    """A token encoder that looks words up in a cache and encodes missing ones from characters.

    Its input is int32 (n, 1 + max_characters_per_token): the cache's row + 1, 0 for missing words;
    then the character ids + 1.
    """

    def __init__(self, cache: WordEmbedding, characters: Encoder) -> None:
        self.cache = cache
        self.characters = characters
        self.weights = [*cache.weights, *characters.weights]

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        missing = tf.where(ids[:, 0] == 0)  # (missing words, 1)
        encoded = self.characters(tf.gather_nd(ids[:, 1:], missing))
        return tf.tensor_scatter_nd_update(self.cache(ids[:, 0]), missing, encoded)


class WordVectors(keras.layers.Layer):
    """The vectors of words in string tensors, in graphs as well."""

    def __init__(
        self,
        kind: str,  # see `WordSource`
        vocabulary: Sequence[str] | None,  # as `WordSource.vocabulary`
        options: Options,
        cache: WeightsFile | None,  # of CACHE_AND_CHARACTERS; None for zeros
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, dtype="float32", **kwargs)
        self.kind = kind
        self.characters: Any = None
        if kind in (CHARACTERS, CACHE_AND_CHARACTERS):
            self.characters = CharacterIds(options.max_word_length or 0)
        self.words: Any = None if vocabulary is None else WordIds(vocabulary)
        self.cache: Any = None
        if kind == CACHE_AND_CHARACTERS and vocabulary is not None:
            self.cache = cache_of(vocabulary, options, cache)
        self.trainable = False
        self.built = True

    @property
    def vocabulary(self) -> list[str] | None:
        """The words of the table or the cache."""
        return None if self.words is None else list(self.words.vocabulary)

    def require_words(self) -> None:
        """Raise an InputError if words cannot be encoded: a table without its vocabulary."""
        if self.words is None and self.characters is None:
            raise InputError(
                "text: a word-level model needs the vocabulary of its training: give vocab_file, "
                "or word ids from TokenBatcher instead of text."
            )

    def call(self, words: tf.Tensor, encoder: Encoder) -> tf.Tensor:
        """float32 (*words' shape, projection_dim); `encoder` is the language model's."""
        distinct, index = tf.unique(tf.reshape(words, [-1]))
        vectors = self._encode(distinct, encoder)  # (distinct words, projection_dim)
        # (words,) -> the shape of `words`
        return tf.gather(vectors, tf.reshape(index, tf.shape(words)))

    def _encode(self, words: tf.Tensor, encoder: Encoder) -> tf.Tensor:
        if self.kind == CHARACTERS:
            return encoder(self.characters.ids_of(words))
        if self.kind == TABLE:
            return encoder(self.words.ids_of(words))
        rows = self.words.table.lookup(words)
        if self.kind == CACHE:
            message = (
                "text: words without a vector, which are not in the vocabulary of the token cache "
                "(the weights lack a character encoder, char_embed)"
            )
            return encoder(require_all(rows, rows > 0, words, message))
        # (words, 1 + max_characters_per_token)
        ids = tf.concat([rows[:, tf.newaxis], self.characters.ids_of(words)], axis=1)
        return CachedWords(self.cache, encoder)(ids)


def cache_of(words: Sequence[str], options: Options, table: WeightsFile | None) -> WordEmbedding:
    """A token cache with the vectors of `table`; None: zeros."""
    cache = WordEmbedding(len(words), options.lstm.projection_dim, name="cache")
    if table is not None:
        load_table(cache, table)
    return cache
