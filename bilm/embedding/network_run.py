"""The LSTMs of a network over sentences that lie in the rows of a batch, in the way that is fast.

What a direction reads first, `<S>` or `</S>`, is the same for all sentences: it is computed once,
and where a sentence begins, the states are those after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.embedding.sentences_in_rows import SentencesInRows
from bilm.layers import whole_loop
from bilm.layers.lstm import LSTMStack, States

# Rows of a batch, enough for fast products, and places of a row: step by step, and in a whole loop,
# which has the products of a window's words in memory besides.
_STEPWISE, _IN_WHOLE_LOOP = (128, 256), (64, 320)
# With fewer, what is compiled is not worth its compilation.
_COMPILED_ROWS = 64
# Words of the longest sentence that shares a batch: a longer one would leave too few rows.
_LONGEST = 255
# Steps that a whole loop may take beyond those of a full row.
_MORE_STEPS = 32


class NetworkRun:
    """Runs the stacks of a network; compiled, where there is much text.

    Args:
        stacks: of each direction.

    Attributes:
        longest: words of the longest sentence that should share a batch.
        window_tokens: words that fill the rows, if no sentence is longer than that.
    """

    def __init__(self, stacks: Sequence[LSTMStack]) -> None:
        self._stacks = stacks
        options = stacks[0].options
        # XLA has no fast products of bfloat16 on a CPU.
        self._in_whole_loop = whole_loop.pays_for(options) and stacks[0].precision == "float32"
        self._most_rows, n_steps = _IN_WHOLE_LOOP if self._in_whole_loop else _STEPWISE
        self._most_steps = n_steps + _MORE_STEPS
        self.longest = _LONGEST
        self.window_tokens = self._most_rows * n_steps
        self._plain = self._function(functools.partial(self._stepwise, compiled=False))
        of_much = functools.partial(self._stepwise, compiled=True)
        self._compiled = self._function(self._whole if self._in_whole_loop else of_much)
        self._compiled_rows: set[int] = set()
        self._most_words = 2048
        self._states: tuple[States, ...] = ()

    def _function(self, run: Callable[..., Any]) -> Any:
        dim, n_directions = self._stacks[0].options.projection_dim, len(self._stacks)
        states = tuple(stack.zero_states(1) for stack in self._stacks)
        signature = [
            whole_loop.WordRows(
                tf.TensorSpec((None, dim), tf.float32),
                tf.TensorSpec((n_directions, None, None), tf.int32),
                tf.TensorSpec((None, None), tf.bool),
                tf.TensorSpec((), tf.int32),
            ),
            tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), states),
        ]
        return tf.function(run, input_signature=signature, autograph=False)

    def n_rows(self, lengths: np.ndarray) -> int:
        """Rows for sentences of these lengths: a power of two, so that shapes are few."""
        fitting = int(lengths.sum()) // int(lengths.max())
        return min(self._most_rows, 1 << fitting.bit_length() - 1)

    def __call__(
        self, vectors: np.ndarray, words: np.ndarray, places: SentencesInRows, is_full: bool
    ) -> list[list[np.ndarray]]:
        """The layers of each direction.

        Args:
            vectors: float32 (n, projection_dim), of `<S>`, of `</S>` and of the distinct words.
            words: int32 (words,), the row of each word in `vectors`, of all sentences, one after
                the other.
            places: where the sentences lie.
            is_full: more text follows, so that a compilation pays.

        Returns:
            float32 (steps or more, rows, projection_dim), as `SentencesInRows.layers` takes them.
        """
        if not self._states:
            self._states = self._states_after(vectors[:2])
        inputs = places.inputs(words, len(self._stacks))
        rows = whole_loop.WordRows(vectors, inputs, places.resets(), places.shape[0])
        run = self._plain
        if self._is_compiled(places.shape, is_full):
            run = self._compiled
            if self._in_whole_loop:
                rows = self._in_one_shape(rows)
        return [[np.asarray(x) for x in layers] for layers in run(rows, self._states)]

    def _is_compiled(self, shape: tuple[int, int], is_full: bool) -> bool:
        n_steps, n_rows = shape
        if n_rows < _COMPILED_ROWS or (self._in_whole_loop and n_steps > self._most_steps):
            return False
        if is_full:
            self._compiled_rows.add(n_rows)
        return n_rows in self._compiled_rows

    def _in_one_shape(self, rows: whole_loop.WordRows) -> whole_loop.WordRows:
        """Filled up with zeros: to one number of steps, and seldom to another one of words."""
        while len(rows.vectors) > self._most_words:
            self._most_words += self._most_words // 4
        more = self._most_steps - len(rows.resets)
        return whole_loop.WordRows(
            np.pad(rows.vectors, [(0, self._most_words - len(rows.vectors)), (0, 0)]),
            np.pad(rows.words, [(0, 0), (0, more), (0, 0)]),
            np.pad(rows.resets, [(0, more), (0, 0)]),
            rows.n_steps,
        )

    def _states_after(self, marks: np.ndarray) -> tuple[States, ...]:
        """The states of each direction after what it reads first, for one row."""
        return tuple(
            stack(tf.constant(mark[np.newaxis, np.newaxis]), states=stack.initial_states())[1]
            for stack, mark in zip(self._stacks, marks, strict=False)
        )

    def _stepwise(
        self, rows: whole_loop.WordRows, states: tuple[States, ...], compiled: bool
    ) -> list[list[tf.Tensor]]:
        return [
            stack(
                tf.gather(rows.vectors, rows.words[d]),
                states=states[d],
                resets=rows.resets,
                compiled=compiled,
            )[0]
            for d, stack in enumerate(self._stacks)
        ]

    def _whole(
        self, rows: whole_loop.WordRows, states: tuple[States, ...]
    ) -> list[list[tf.Tensor]]:
        run = whole_loop.whole_loop(self._stacks[0].options)
        return [
            run(
                rows._replace(words=rows.words[d]),
                [weights.tensors() for weights in stack.layer_weights],
                states[d],
            )
            for d, stack in enumerate(self._stacks)
        ]
