"""Vectors of a whole corpus: every distinct word encoded once, sentences in rows without gaps.

The token encoder knows no context, so a word's vector is kept from its first use on. Sentences
are taken from the stream a window at a time and laid end to end in the rows of a batch. While a
window is computed, the vectors of the one before it are handed on, in the order in which the
sentences came. Memory is that of two windows and of the kept words, however long the stream is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data import compute_ahead
from bilm.embedding.encoded_words import EncodedWords, Sentence, WordIds
from bilm.embedding.network_run import NetworkRun
from bilm.embedding.sentences_in_rows import SentencesInRows
from bilm.errors import InputError
from bilm.network import Network


class CorpusEncoder:
    """Runs a network over a stream of sentences.

    Args:
        network: the layers.
        word_ids: gives the encoder's ids of words.
        window_tokens: tokens that are computed, and whose vectors are in memory, at a time; a
            longer sentence is a window of its own. None: as many as are fast.
    """

    def __init__(
        self, network: Network, word_ids: WordIds, *, window_tokens: int | None = None
    ) -> None:
        self._stacks = network.stacks
        encode = tf.function(network.encoder, reduce_retracing=True, autograph=False)
        dim = network.stacks[0].options.projection_dim
        self._words = EncodedWords(encode, word_ids, dim)
        self._network = NetworkRun(network.stacks)
        self.window_tokens = window_tokens or self._network.window_tokens

    def layers(self, sentences: Iterable[Sentence]) -> Iterator[np.ndarray]:
        """All layers of each sentence, in the order of the input.

        Args:
            sentences: lists of words; an empty one gives no rows.

        Yields:
            float32 (n_layers + 1, words, n_directions * projection_dim).

        Raises:
            InputError: a sentence is a string, or holds what is not a string.
        """
        for window in compute_ahead(self._compute, self._windows(sentences)):
            yield from window

    def _windows(self, sentences: Iterable[Sentence]) -> Iterator[_Window]:
        window: list[Sentence] = []
        n_tokens = 0
        for sentence in sentences:
            _check_sentence(sentence)
            if window and n_tokens + len(sentence) > self.window_tokens:
                yield _Window(window, is_full=True)
                window, n_tokens = [], 0
            window.append(sentence)
            n_tokens += len(sentence)
        if window:
            yield _Window(window, is_full=False)

    def _compute(self, window: _Window) -> Iterator[np.ndarray]:
        """Run the network; the iterator copies each sentence's vectors out when it comes to it."""
        numbers = self._words.numbers(window.sentences)
        lengths = np.array([len(sentence) for sentence in window.sentences], np.int64)
        parts = np.where(lengths > self._network.longest, 2, np.minimum(lengths, 1))
        results = [self._without_words(int((parts == 0).sum()))]
        for part in (1, 2):
            of_part = numbers[np.repeat(parts == part, lengths)]
            results.append(self._part(of_part, lengths[parts == part], window.is_full))
        return (next(results[part]) for part in parts.tolist())

    def _without_words(self, n: int) -> Iterator[np.ndarray]:
        lstm = self._stacks[0].options
        shape = (lstm.n_layers + 1, 0, len(self._stacks) * lstm.projection_dim)
        return (np.empty(shape, np.float32) for _ in range(n))

    def _part(
        self, numbers: np.ndarray, lengths: np.ndarray, is_full: bool
    ) -> Iterator[np.ndarray]:
        """Sentences that share a batch; `numbers` are their words', one after the other."""
        if not len(lengths):
            return iter(())
        # `<S>` and `</S>` are the words 0 and 1.
        used, words = np.unique(np.append([0, 1], numbers), return_inverse=True)
        words = words[2:].astype(np.int32)
        vectors = self._words.vectors[used]
        rows = SentencesInRows.lay(lengths, self._network.n_rows(lengths))
        outputs = self._network(vectors, words, rows, is_full)
        stops = np.cumsum(lengths)
        return (
            rows.layers(number, vectors[words[start:stop]], outputs)
            for number, (start, stop) in enumerate(zip(stops - lengths, stops, strict=True))
        )


class _Window(NamedTuple):
    """Sentences that are computed together.

    Attributes:
        sentences: lists of words.
        is_full: there are more after them.
    """

    sentences: list[Sentence]
    is_full: bool


def _check_sentence(sentence: Sentence) -> None:
    if isinstance(sentence, str) or not all(isinstance(word, str) for word in sentence):
        raise InputError(f"A sentence is a list of words, not {sentence!r}.")
