"""Sentences laid end to end in the rows of a batch, so that nothing is computed for padding.

This is sequence packing: a sentence takes one position for each of its words, and the LSTM states
are reset where it begins. Both directions have the same positions; the backward one has a
sentence's words in reverse. What a direction reads first, `<S>` or `</S>`, is the same for all
sentences: it is computed once, and where a sentence begins, the states are those after it.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.layers import Mode, States, WordLookup
from bilm.layers.xla_lstm import is_faster_for
from bilm.network import BiLM, Texts

# Rows of a batch, enough for fast products, and positions of a row: with compiled steps, and in a
# compiled loop, which has the products of a window's words in memory besides.
_STEPWISE, _IN_LOOP = (128, 256), (64, 320)
# Steps that a compiled loop may take beyond those of a full row.
_MORE_STEPS = 32


class PackedSentences(NamedTuple):
    """Where sentences lie.

    Attributes:
        lengths: int64 (sentences,), words of each, 1 or more.
        shape: (steps, rows) of the batch; the last positions of some rows are empty.
        rows: int64 (sentences,), the row of each sentence.
        starts: int64 (sentences,), its first position in that row.
    """

    lengths: np.ndarray
    shape: tuple[int, int]
    rows: np.ndarray
    starts: np.ndarray

    @classmethod
    def pack(cls, lengths: np.ndarray, n_rows: int) -> PackedSentences:
        """Lay sentences into rows: the longest first, each into the row that is shortest so far.

        Source: Graham (1969), "Bounds on multiprocessing timing anomalies": the longest row is at
        most a third longer than need be, and with many short sequences hardly longer at all.
        """
        rows, starts = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
        filled = [(0, row) for row in range(n_rows)]  # a heap: positions so far, row
        for number in np.argsort(-lengths, kind="stable").tolist():
            start, row = filled[0]
            rows[number], starts[number] = row, start
            heapq.heapreplace(filled, (start + int(lengths[number]), row))
        return cls(lengths, (max(filled)[0], n_rows), rows, starts)

    def ids(self, words: np.ndarray, n_directions: int) -> np.ndarray:
        """What each direction reads: int32 (n_directions, steps, rows), 0 past a row's end.

        Args:
            words: int32 (words,), numbers of those of all sentences, one after the other.
            n_directions: 1 or 2.
        """
        lengths, n_rows = self.lengths, self.shape[1]
        before, length = (np.repeat(x, lengths) for x in (np.cumsum(lengths) - lengths, lengths))
        number = np.arange(len(words)) - before  # of the word in its sentence
        first = np.repeat(self.starts * n_rows + self.rows, lengths)
        # (2, words), positions in the (steps, rows) array laid flat
        positions = first + n_rows * np.stack([number, length - 1 - number])
        ids = np.zeros((n_directions, self.shape[0] * n_rows), np.int32)
        for d in range(n_directions):
            ids[d, positions[d]] = words
        return ids.reshape(n_directions, *self.shape)

    def resets(self) -> np.ndarray:
        """Where the first word of a sentence is: bool (steps, rows)."""
        resets = np.zeros(self.shape, bool)
        resets[self.starts, self.rows] = True
        return resets

    def layers(
        self, number: int, tokens: np.ndarray, outputs: Sequence[Sequence[np.ndarray]]
    ) -> np.ndarray:
        """All layers of one sentence: (n_layers + 1, words, n_directions * projection_dim).

        Args:
            number: which one.
            tokens: (words, projection_dim), the vectors of its words.
            outputs: of each direction, its layers, (steps, rows, projection_dim).
        """
        n_words, dim = tokens.shape
        result = np.empty((1 + len(outputs[0]), n_words, len(outputs), dim), tokens.dtype)
        result[0] = tokens[:, np.newaxis]
        start, row = self.starts[number], self.rows[number]
        for d, layers in enumerate(outputs):
            order = slice(None, None, -1 if d else 1)
            for i, layer in enumerate(layers, start=1):
                result[i, :, d] = layer[start : start + n_words, row][order]
        # (n_layers + 1, words, n_directions, projection_dim) -> the last two as one
        return result.reshape(len(result), n_words, -1)


class PackedRunner:
    """Runs the LSTMs of a network over packed sentences; compiled, where there is much text.

    Args:
        network: the layers.
        mode: how they are executed when they are compiled; None: as is fastest.
        compiled_rows: with fewer rows, what is compiled is not worth its compilation.
        longest: words of the longest sentence that should share a batch: a longer one would leave
            too few rows.

    Attributes:
        longest: as given.
        window_tokens: words that fill the rows, if no sentence is longer than that.
    """

    def __init__(
        self,
        network: BiLM,
        *,
        mode: Mode | None = None,
        compiled_rows: int = 64,
        longest: int = 255,
    ) -> None:
        self._network = network
        stack = network.stacks[0]
        if mode is None:
            in_loop = is_faster_for(stack.options, stack.precision)
            mode = Mode.COMPILED_LOOP if in_loop else Mode.COMPILED_STEPS
        self._in_loop = mode is Mode.COMPILED_LOOP
        self._most_rows, n_steps = _IN_LOOP if self._in_loop else _STEPWISE
        self._most_steps = n_steps + _MORE_STEPS
        self.longest = longest
        self.window_tokens = self._most_rows * n_steps
        self._plain = self._function(Mode.INFERENCE)
        self._compiled = self._function(mode)
        self._min_rows = compiled_rows
        self._compiled_rows: set[int] = set()
        self._most_words = 2048
        self._states: tuple[States, ...] = ()

    def _function(self, mode: Mode) -> Any:
        dim, n_directions = (
            self._network.stacks[0].options.projection_dim,
            len(self._network.stacks),
        )
        signature = [
            WordLookup(
                tf.TensorSpec((None, dim), tf.float32),
                tf.TensorSpec((n_directions, None, None), tf.int32),
            ),
            tf.TensorSpec((None, None), tf.bool),
            tf.TensorSpec((), tf.int32),
            tf.nest.map_structure(
                lambda x: tf.TensorSpec(x.shape, x.dtype), self._network.zero_states(1)
            ),
        ]
        run = functools.partial(self._run, mode=mode)
        return tf.function(run, input_signature=signature, autograph=False)

    def _run(
        self,
        words: WordLookup,
        resets: tf.Tensor,
        n_steps: tf.Tensor,
        states: tuple[States, ...],
        mode: Mode,
    ) -> list[list[tf.Tensor]]:
        n = len(self._network.stacks)
        inputs = [words._replace(ids=words.ids[d]) for d in range(n)]
        texts = Texts(inputs, states, resets=[resets] * n, n_steps=n_steps)
        return self._network.run(texts, mode=mode)[0]

    def n_rows(self, lengths: np.ndarray) -> int:
        """Rows for sentences of these lengths: a power of two, so that shapes are few."""
        fitting = int(lengths.sum()) // int(lengths.max())
        return min(self._most_rows, 1 << fitting.bit_length() - 1)

    def __call__(
        self, words: WordLookup, sentences: PackedSentences, is_full: bool
    ) -> list[list[np.ndarray]]:
        """The layers of each direction.

        Args:
            words: vectors float32 (n, projection_dim) of `<S>`, of `</S>` and of the distinct
                words; ids int32 (words,), the row of each word of all sentences, one after the
                other.
            sentences: where they lie.
            is_full: more text follows, so that a compilation pays.

        Returns:
            float32 (steps or more, rows, projection_dim), as `PackedSentences.layers` takes them.
        """
        if not self._states:
            self._states = self._states_after(words.vectors[:2])
        vectors, ids = words.vectors, sentences.ids(words.ids, len(self._network.stacks))
        resets, n_steps = sentences.resets(), sentences.shape[0]
        run = self._plain
        if self._is_compiled(sentences.shape, is_full):
            run = self._compiled
            if self._in_loop:
                vectors, ids, resets = self._in_one_shape(vectors, ids, resets)
        outputs = run(WordLookup(vectors, ids), resets, n_steps, self._states)
        return [[np.asarray(x) for x in layers] for layers in outputs]

    def warm_up(self, vectors: tf.Tensor, sentences: Sequence[np.ndarray]) -> None:
        """Let sentences begin from the states after a text, see `BiLM.warm_up`."""
        self._network.warm_up(vectors, sentences)
        self._states = ()

    def _is_compiled(self, shape: tuple[int, int], is_full: bool) -> bool:
        n_steps, n_rows = shape
        if n_rows < self._min_rows or (self._in_loop and n_steps > self._most_steps):
            return False
        if is_full:
            self._compiled_rows.add(n_rows)
        return n_rows in self._compiled_rows

    def _in_one_shape(
        self, vectors: np.ndarray, ids: np.ndarray, resets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Filled up with zeros: to one number of steps, and seldom to another one of words."""
        while len(vectors) > self._most_words:
            self._most_words += self._most_words // 4
        more = self._most_steps - len(resets)
        return (
            np.pad(vectors, [(0, self._most_words - len(vectors)), (0, 0)]),
            np.pad(ids, [(0, 0), (0, more), (0, 0)]),
            np.pad(resets, [(0, more), (0, 0)]),
        )

    def _states_after(self, marks: np.ndarray) -> tuple[States, ...]:
        """The states of each direction after what it reads first, for one row."""
        read = [tf.constant(mark[np.newaxis, np.newaxis]) for mark in marks]  # (1, 1, dim)
        texts = Texts(read, self._network.initial_states())
        return self._network.run(texts, mode=Mode.INFERENCE)[1]
