"""Vectors of a whole corpus: every distinct word encoded once, sentences of like length together.

The token encoder knows no context, so a word's vector is kept from its first use on. Sentences
are taken from the stream a window at a time, sorted by length within it, run in batches of about
equally many tokens, and handed on in the order in which they came. Memory is that of a window and
of the kept words, however long the stream is.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from bilm.data.encoding import DistinctWords, framed
from bilm.errors import InputError
from bilm.layers.directions import contextual_layers
from bilm.network import Network

Sentence = Sequence[str]
# Words to the ids that the encoder takes, without the mask's + 1: (n, characters) or (n,).
WordIds = Callable[[Sequence[str]], np.ndarray]

_ENCODED_AT_ONCE = 1024
_KEPT_BYTES = 128 * 2**20
# Rows of a batch: few numbers, so that shapes are few.
_ROWS = (256, 64, 16, 4, 1)


class WordVectors:
    """The words so far and their vectors.

    Args:
        encode: the token encoder.
        word_ids: gives the encoder's ids of words.
        dim: size of a word's vector.

    Attributes:
        vectors: float32 (rows, dim); a word's row is its number.
    """

    def __init__(
        self, encode: Callable[[tf.Tensor], tf.Tensor], word_ids: WordIds, dim: int
    ) -> None:
        self._encode = encode
        self._word_ids = word_ids
        self._numbers = DistinctWords()
        self._n_encoded = 0
        self.vectors = np.empty((4096, dim), np.float32)

    def numbers(self, sentences: Iterable[Sentence]) -> np.ndarray:
        """The words of sentences as rows of `vectors`, one after the other: int32 (words,).

        Rows that were handed out before may change.
        """
        if self.vectors[: self._n_encoded].nbytes > _KEPT_BYTES:
            self._numbers, self._n_encoded = DistinctWords(), 0
        words = itertools.chain.from_iterable(sentences)
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int32)
        self._encode_new()
        return numbers

    def _encode_new(self) -> None:
        done, size = self._n_encoded, len(self._numbers)
        if size > len(self.vectors):
            grown = np.empty((max(size, 2 * done), self.vectors.shape[1]), np.float32)
            grown[:done] = self.vectors[:done]
            self.vectors = grown
        new = list(itertools.islice(self._numbers, done, None))
        # Words of like length together: the encoder works on the longest of a batch.
        order = np.argsort([len(word) for word in new], kind="stable")
        for start in range(0, len(new), _ENCODED_AT_ONCE):
            part = order[start : start + _ENCODED_AT_ONCE]
            ids = self._word_ids([new[k] for k in part]).astype(np.int32)
            self.vectors[done + part] = self._encode(tf.constant(ids + 1)).numpy()
        self._n_encoded = size


class CorpusEncoder:
    """Runs a network over a stream of sentences.

    Args:
        network: the layers.
        word_ids: gives the encoder's ids of words.
        window_tokens: tokens that are sorted, and whose vectors are in memory, at a time.
        batch_tokens: most places of a batch, padding included; it has one row at least.
    """

    def __init__(
        self,
        network: Network,
        word_ids: WordIds,
        *,
        window_tokens: int = 32768,
        batch_tokens: int = 16384,
    ) -> None:
        self.window_tokens = window_tokens
        self.batch_tokens = batch_tokens
        self._stacks = network.stacks
        dim = network.stacks[0].options.projection_dim
        encode = tf.function(network.encoder, reduce_retracing=True, autograph=False)
        self._words = WordVectors(encode, word_ids, dim)
        signature = [
            tf.TensorSpec((None, dim), tf.float32),
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None,), tf.int32),
        ]
        # Full batches are compiled: they have one height, and are what a large corpus consists of.
        self._plain, self._compiled = (
            tf.function(
                functools.partial(self._run, compiled=compiled),
                autograph=False,
                input_signature=signature,
            )
            for compiled in (False, True)
        )

    def layers(self, sentences: Iterable[Sentence]) -> Iterator[np.ndarray]:
        """All layers of each sentence, in the order of the input.

        Args:
            sentences: lists of words; an empty one gives no rows.

        Yields:
            float32 (n_layers + 1, words, n_directions * projection_dim).

        Raises:
            InputError: a sentence is a string, or holds what is not a string.
        """
        window: list[Sentence] = []
        n_tokens = 0
        for sentence in sentences:
            _check_sentence(sentence)
            window.append(sentence)
            n_tokens += len(sentence) + 2
            if n_tokens >= self.window_tokens:
                yield from self._window(window)
                window, n_tokens = [], 0
        if window:
            yield from self._window(window)

    def _window(self, window: list[Sentence]) -> list[np.ndarray]:
        numbers = self._words.numbers(window)
        lengths = np.array([len(sentence) for sentence in window], np.int32)
        starts = np.cumsum(lengths) - lengths
        results: list[np.ndarray] = [np.empty(0)] * len(window)
        for part in self._batches(lengths):
            values = [numbers[starts[k] : starts[k] + lengths[k]] for k in part]
            layers = self._batch(np.concatenate(values), lengths[part])
            for row, k in enumerate(part):
                results[k] = layers[:, 1 : lengths[k] + 1, row].copy()
        return results

    def _batch(self, values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """All layers of a batch: (n_layers + 1, longest + 2, rows, dim), the first rows filled."""
        n_rows = min(n for n in _ROWS if n >= len(lengths))
        lengths = np.pad(lengths, (0, n_rows - len(lengths)))
        width = int(lengths.max()) + 2
        # `<S>` and `</S>` are the words 0 and 1; padding may be any word, it is masked.
        rows = framed(values, lengths, width, begin=0, end=1, padding=0)
        used, places = np.unique(rows, return_inverse=True)
        index = places.reshape(rows.shape).T.astype(np.int32)
        run = self._compiled if n_rows == _ROWS[0] else self._plain
        return run(self._words.vectors[used], index, lengths + 2).numpy()

    def _batches(self, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Sentences, longest first, in batches whose rows times longest row fit the budget."""
        order = np.argsort(-lengths, kind="stable")
        while len(order):
            fitting = self.batch_tokens // (int(lengths[order[0]]) + 2)
            n = next((n for n in _ROWS if n <= fitting), 1)
            yield order[:n]
            order = order[n:]

    def _run(
        self, vectors: tf.Tensor, index: tf.Tensor, lengths: tf.Tensor, compiled: bool
    ) -> tf.Tensor:
        here = tf.transpose(tf.sequence_mask(lengths, tf.shape(index)[0]))
        tokens = tf.gather(vectors, index) * tf.cast(here, tf.float32)[..., tf.newaxis]
        states = [stack.zero_states(tf.shape(index)[1]) for stack in self._stacks]
        return tf.stack(contextual_layers(self._stacks, tokens, lengths, states, compiled)[0])


def _check_sentence(sentence: Sentence) -> None:
    if isinstance(sentence, str) or not all(isinstance(word, str) for word in sentence):
        raise InputError(f"A sentence is a list of words, not {sentence!r}.")
