"""Vectors of a whole corpus: every distinct word encoded once, sentences in rows without gaps.

The token encoder knows no context, so a word's vector is kept from its first use on. Sentences
are taken from the stream a window at a time and laid end to end in the rows of a batch. What a
direction reads first, `<S>` or `</S>`, is the same for all sentences: it is computed once, and
where a sentence begins, the states are those after it. While a window is computed, the vectors of
the one before it are handed on, in the order in which the sentences came. Memory is that of two
windows and of the kept words, however long the stream is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.embedding.encoded_words import EncodedWords, Sentence, WordIds
from bilm.embedding.one_ahead import one_ahead
from bilm.embedding.sentences_in_rows import SentencesInRows
from bilm.errors import InputError
from bilm.layers.lstm import States
from bilm.network import Network

# Rows of a batch, or 64, 32 ... 1 of them, so that shapes are few: enough for fast products.
_MOST_ROWS = 128
# With fewer, what is compiled is not worth its compilation.
_COMPILED_ROWS = 64
# Words of a sentence that would leave too few rows to those beside it.
_LONG = 256


class CorpusEncoder:
    """Runs a network over a stream of sentences.

    Args:
        network: the layers.
        word_ids: gives the encoder's ids of words.
        window_tokens: tokens that are computed, and whose vectors are in memory, at a time; a
            longer sentence is a window of its own.
    """

    def __init__(self, network: Network, word_ids: WordIds, *, window_tokens: int = 32768) -> None:
        self.window_tokens = window_tokens
        self._stacks = network.stacks
        dim = network.stacks[0].options.projection_dim
        encode = tf.function(network.encoder, reduce_retracing=True, autograph=False)
        self._words = EncodedWords(encode, word_ids, dim)
        n_directions = len(self._stacks)
        signature = [
            tf.TensorSpec((None, dim), tf.float32),
            tf.TensorSpec((n_directions, None, None), tf.int32),
            tf.TensorSpec((None, None), tf.bool),
            tf.nest.map_structure(
                lambda x: tf.TensorSpec(x.shape, x.dtype),
                tuple(stack.zero_states(1) for stack in self._stacks),
            ),
        ]
        # Full windows, of which a large corpus consists, are compiled.
        self._plain, self._compiled = (
            tf.function(
                functools.partial(self._run, compiled=compiled),
                autograph=False,
                input_signature=signature,
            )
            for compiled in (False, True)
        )
        self._compiled_rows: set[int] = set()

    def layers(self, sentences: Iterable[Sentence]) -> Iterator[np.ndarray]:
        """All layers of each sentence, in the order of the input.

        Args:
            sentences: lists of words; an empty one gives no rows.

        Yields:
            float32 (n_layers + 1, words, n_directions * projection_dim).

        Raises:
            InputError: a sentence is a string, or holds what is not a string.
        """
        for window in one_ahead(self._compute, self._windows(sentences)):
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
        parts = np.where(lengths >= _LONG, 2, np.minimum(lengths, 1))
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
        fitting = int(lengths.sum()) // int(lengths.max())
        n_rows = min(_MOST_ROWS, 1 << fitting.bit_length() - 1)
        used, words = np.unique(numbers, return_inverse=True)
        rows = SentencesInRows.lay(lengths, n_rows)
        vectors = self._words.vectors[used]
        inputs = rows.inputs(words.astype(np.int32), len(self._stacks))
        computed = self._run_for(n_rows, is_full)(
            vectors, inputs, rows.ends(), self._states_after_marks
        )
        outputs = [[np.asarray(layer) for layer in layers] for layers in computed]
        stops = np.cumsum(lengths)
        return (
            rows.layers(number, vectors[words[start:stop]], outputs)
            for number, (start, stop) in enumerate(zip(stops - lengths, stops, strict=True))
        )

    def _run_for(self, n_rows: int, is_full: bool) -> Any:
        if is_full and n_rows >= _COMPILED_ROWS:
            self._compiled_rows.add(n_rows)
        return self._compiled if n_rows in self._compiled_rows else self._plain

    @functools.cached_property
    def _states_after_marks(self) -> tuple[States, ...]:
        """The states of each direction after `<S>` or `</S>`, for one row."""
        self._words.numbers([])
        marks = tf.constant(self._words.vectors[: len(self._stacks), np.newaxis, np.newaxis])
        return tuple(
            stack(mark, states=stack.zero_states(1))[1]
            for stack, mark in zip(self._stacks, marks, strict=True)
        )

    def _run(
        self,
        vectors: tf.Tensor,
        inputs: tf.Tensor,
        ends: tf.Tensor,
        states: tuple[States, ...],
        compiled: bool,
    ) -> list[list[tf.Tensor]]:
        """The layers of each direction, (steps, rows, projection_dim)."""
        return [
            stack(tf.gather(vectors, inputs[d]), states=states[d], ends=ends, compiled=compiled)[0]
            for d, stack in enumerate(self._stacks)
        ]


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
