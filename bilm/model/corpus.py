"""Vectors of a whole corpus: every distinct word encoded once, sentences of like length together.

The token encoder knows no context, so a word's vector is kept from its first use on. Sentences
are taken from the stream a window at a time, sorted by length within it, run in batches of about
equally many tokens, and handed on in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from bilm.errors import InputError
from bilm.layers.directions import contextual_layers
from bilm.network import Network

Sentence = Sequence[str]
# Words to the ids that the encoder takes, without the mask's + 1: (n, characters) or (n,).
WordIds = Callable[[Sequence[str]], np.ndarray]

BEGIN, END = "<S>", "</S>"
_ENCODED_AT_ONCE = 1024
_CACHE_BYTES = 192 * 2**20


class WordVectors:
    """The encoded words so far: a dict from word to row, and the rows, float32 (n, dim).

    Args:
        encode: the token encoder.
        word_ids: gives the encoder's ids of words.
        dim: size of a word's vector.
    """

    def __init__(
        self, encode: Callable[[tf.Tensor], tf.Tensor], word_ids: WordIds, dim: int
    ) -> None:
        self._encode = encode
        self._word_ids = word_ids
        self._row_of: dict[str, int] = {}
        self.vectors = np.empty((1024, dim), np.float32)

    def rows(self, sentences: Iterable[Sentence]) -> list[np.ndarray]:
        """Encode what is new; return for each sentence int32 (n + 2,), begin and end included."""
        if self.vectors[: len(self._row_of)].nbytes > _CACHE_BYTES:
            self._row_of.clear()
        row_of = self._row_of
        new: list[str] = []
        framed = [(BEGIN, *sentence, END) for sentence in sentences]
        for sentence in framed:
            for word in sentence:
                if word not in row_of:
                    row_of[word] = len(row_of)
                    new.append(word)
        self._add(new)
        return [np.array([row_of[word] for word in sentence], np.int32) for sentence in framed]

    def _add(self, words: list[str]) -> None:
        start = len(self._row_of) - len(words)
        if len(self._row_of) > len(self.vectors):
            grown = np.empty((2 * len(self._row_of), self.vectors.shape[1]), np.float32)
            grown[:start] = self.vectors[:start]
            self.vectors = grown
        # Words of like length together: the encoder works on the longest of a batch.
        order = sorted(range(len(words)), key=lambda k: len(words[k]))
        for i in range(0, len(order), _ENCODED_AT_ONCE):
            part = order[i : i + _ENCODED_AT_ONCE]
            ids = self._word_ids([words[k] for k in part])
            self.vectors[start + np.array(part)] = self._encode(tf.constant(ids + 1)).numpy()


class CorpusEncoder:
    """Runs a network over a stream of sentences.

    Args:
        network: the layers.
        word_ids: gives the encoder's ids of words.
        window_tokens: tokens that are sorted and kept in memory at a time.
        batch_tokens: tokens of a batch, padding included.
    """

    def __init__(
        self,
        network: Network,
        word_ids: WordIds,
        *,
        window_tokens: int = 32768,
        batch_tokens: int = 4096,
    ) -> None:
        self.network = network
        self.window_tokens = window_tokens
        self.batch_tokens = batch_tokens
        dim = network.stacks[0].options.projection_dim
        self._words = WordVectors(
            tf.function(network.encoder, reduce_retracing=True, autograph=False), word_ids, dim
        )
        self._layers = tf.function(
            self._run,
            autograph=False,
            input_signature=[
                tf.TensorSpec((None, dim), tf.float32),
                tf.TensorSpec((None, None), tf.int32),
                tf.TensorSpec((None,), tf.int32),
            ],
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
        rows = self._words.rows(window)
        results: list[np.ndarray] = [np.empty(0)] * len(window)
        for part in self._batches([len(row) for row in rows]):
            lengths = np.array([len(rows[k]) for k in part], np.int32)
            index = np.zeros((lengths.max(), len(part)), np.int32)
            for column, k in enumerate(part):
                index[: lengths[column], column] = rows[k]
            used, places = np.unique(index, return_inverse=True)
            vectors = self._words.vectors[used]
            places = places.reshape(index.shape).astype(np.int32)
            layers = self._layers(vectors, places, lengths).numpy()
            for column, k in enumerate(part):
                results[k] = np.ascontiguousarray(layers[:, 1 : lengths[column] - 1, column])
        return results

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Sentences, longest first, in batches whose rows times longest row fit the budget."""
        order = sorted(range(len(lengths)), key=lambda k: -lengths[k])
        while order:
            n = max(1, self.batch_tokens // lengths[order[0]])
            yield order[:n]
            order = order[n:]

    def _run(self, vectors: tf.Tensor, index: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        tokens = tf.gather(vectors, index)
        mask = tf.transpose(tf.sequence_mask(lengths, tf.shape(index)[0]))
        tokens *= tf.cast(mask, tf.float32)[..., tf.newaxis]
        states = [stack.zero_states(tf.shape(index)[1]) for stack in self.network.stacks]
        return tf.stack(contextual_layers(self.network.stacks, tokens, lengths, states)[0])


def _check_sentence(sentence: Sentence) -> None:
    if isinstance(sentence, str) or not all(isinstance(word, str) for word in sentence):
        raise InputError(f"A sentence is a list of words, not {sentence!r}.")
