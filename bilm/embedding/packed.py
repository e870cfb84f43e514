"""The LSTMs over a batch of packed sentences: where these lie, and how the layers are run.

Sentences are laid end to end in the rows of a batch (sequence packing), so that nothing is computed
for padding: a sentence takes one position for each of its words, and the LSTM states are reset
where it begins. Both directions have the same positions; the backward one has a sentence's words in
reverse. What a direction reads first, `<S>` or `</S>`, is the same for all sentences: it is
computed once, and where a sentence begins, the states are those after it.

A step costs as much as its rows, and what it costs with none: to read the weights, and to start
operations. So few sentences get as many rows as let them end with the longest one. With a compiled
program a step starts faster. There is one for each of a few numbers of rows, and it is compiled
when running without it has cost as much more as compiling takes, or when more text follows.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.layers import Mode, ProductLookup, States, WordLookup
from bilm.layers.recurrence import is_faster_for
from bilm.network import BiLM, Texts

# Numbers of rows that there are programs for, and positions of a row in a full window: with
# compiled steps, and in a compiled loop, which needs fewer rows for fast products.
_STEPWISE, _IN_LOOP = ((32, 64, 128), 256), ((8, 16, 24, 32, 64), 320)
_PLAIN_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
# What a step costs beside its rows, in rows; and what compiling a program costs, in rows times
# steps. Measured with a small model on two cores.
_PLAIN_STEP, _COMPILED_STEP, _COMPILING = 20, 6, 12_000
# Steps that a compiled loop may take beyond those of a full row.
_MORE_STEPS = 32
# Words whose products with the first layer are kept.
_KEPT_PRODUCTS = 4096


class PackedSentences(NamedTuple):
    """Where sentences lie."""

    lengths: np.ndarray  # int64 (sentences,), words of each, 1 or more
    shape: tuple[int, int]  # (steps, rows) of the batch; the last positions of some rows are empty
    rows: np.ndarray  # int64 (sentences,), the row of each sentence
    starts: np.ndarray  # int64 (sentences,), its first position in that row

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
        """What each direction reads: int32 (n_directions, steps, rows), 0 past a row's end; `words`
        are those of all sentences, one after the other."""
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
        """All layers of a sentence: (n_layers + 1, words, n_directions * projection_dim).

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


class Words(NamedTuple):
    """The words of sentences, one after the other."""

    vectors: np.ndarray  # float32 (distinct words, projection_dim)
    ids: np.ndarray  # int32 (words,), the row in `vectors` of each word
    numbers: np.ndarray  # int64 (distinct words,), by which products are kept
    edition: int  # another one: numbers stand for other words than before


class PackedRunner:
    """Runs the LSTMs of a network over packed sentences.

    Args:
        network: the layers.
        mode: how they are executed when they are compiled; None: as is fastest.
        rows: numbers of rows that programs are compiled for; None: those that are fast.
        compiling: what compiling a program costs, in rows times steps.
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
        rows: Sequence[int] | None = None,
        compiling: int = _COMPILING,
        longest: int = 255,
    ) -> None:
        self._network = network
        stack = network.stacks[0]
        if mode is None:
            in_loop = is_faster_for(stack.options, stack.precision)
            mode = Mode.COMPILED_LOOP if in_loop else Mode.COMPILED_STEPS
        self._products = _WordProducts(network) if mode is Mode.COMPILED_LOOP else None
        fast_rows, n_steps = _IN_LOOP if self._products else _STEPWISE
        self._rows = tuple(rows or fast_rows)
        self._most_steps = n_steps + _MORE_STEPS
        self.longest = longest
        self.window_tokens = max(self._rows) * n_steps
        self._plain, self._compiled = self._function(Mode.INFERENCE), self._function(mode)
        self._compiling = compiling
        # By a program's rows, what running without it has cost more; of one that is there, None.
        self._lost: dict[int, float | None] = dict.fromkeys(self._rows, 0.0)
        self._states: tuple[States, ...] = ()

    def _function(self, mode: Mode) -> Any:
        lstm, n_directions = self._network.stacks[0].options, len(self._network.stacks)
        of_words = tf.TensorSpec((None, lstm.projection_dim), tf.float32)
        if mode is Mode.COMPILED_LOOP:
            of_words = tf.TensorSpec((None, 4 * lstm.dim), tf.float32)
        signature = [
            [of_words] * n_directions,
            tf.TensorSpec((n_directions, None, None), tf.int32),
            tf.TensorSpec((None, None), tf.bool),
            tf.TensorSpec((), tf.int32),
            tensor_specs(self._network.zero_states(1)),
        ]
        run = functools.partial(self._run, mode=mode)
        return tf.function(run, input_signature=signature, autograph=False)

    def _run(
        self,
        words: Sequence[tf.Tensor],
        ids: tf.Tensor,
        resets: tf.Tensor,
        n_steps: tf.Tensor,
        states: tuple[States, ...],
        mode: Mode,
    ) -> list[list[tf.Tensor]]:
        """Both directions; `words` are the vectors, or for the loop the products."""
        lookup = ProductLookup if mode is Mode.COMPILED_LOOP else WordLookup
        inputs = [lookup(table, ids[d]) for d, table in enumerate(words)]
        texts = Texts(inputs, states, resets=[resets] * len(inputs), n_steps=n_steps)
        return self._network.run(texts, mode=mode)[0]

    def __call__(
        self, words: Words, lengths: np.ndarray, marks: np.ndarray, is_full: bool
    ) -> tuple[PackedSentences, list[list[np.ndarray]]]:
        """Lay sentences into rows and run the layers.

        Args:
            words: of all sentences, one after the other.
            lengths: int64 (sentences,), words of each, 1 or more.
            marks: float32 (2, projection_dim), the vectors of `<S>` and `</S>`.
            is_full: more text follows, so that a compilation pays.

        Returns:
            where the sentences lie, and the layers of each direction, float32 (steps or more,
            rows, projection_dim), as `PackedSentences.layers` takes them.
        """
        if not self._states:
            self._states = self._states_after(marks)
        n_rows, is_compiled = self._choose(lengths, is_full)
        sentences = PackedSentences.pack(lengths, n_rows)
        n_steps, n_directions = sentences.shape[0], len(self._network.stacks)
        if is_compiled and self._products and n_steps <= self._most_steps:
            rows = self._products.rows(words)
            ids, resets = sentences.ids(rows[words.ids], n_directions), sentences.resets()
            more = self._most_steps - n_steps
            ids = np.pad(ids, [(0, 0), (0, more), (0, 0)])
            resets = np.pad(resets, [(0, more), (0, 0)])
            run, tables = self._compiled, self._products.tables()
        else:
            ids, resets = sentences.ids(words.ids, n_directions), sentences.resets()
            run = self._compiled if is_compiled and not self._products else self._plain
            tables = [tf.constant(words.vectors)] * n_directions
        outputs = run(tables, ids, resets, n_steps, self._states)
        return sentences, [[np.asarray(x) for x in layers] for layers in outputs]

    def _choose(self, lengths: np.ndarray, is_full: bool) -> tuple[int, bool]:
        """The number of rows, and whether to run the program for it."""
        total, longest = int(lengths.sum()), int(lengths.max())

        def cost(n_rows: int, of_step: int) -> int:
            return max(longest, -(-total // n_rows)) * (n_rows + of_step)

        plain = min((cost(n, _PLAIN_STEP), n) for n in _PLAIN_ROWS)
        compiled = {n: cost(n, _COMPILED_STEP) for n in self._rows}
        if self._products and longest > self._most_steps:
            return plain[1], False
        best = min(compiled, key=compiled.__getitem__)
        there = [(compiled[n], n) for n in self._rows if self._lost[n] is None]
        now, n_rows = min([plain, *there])
        lost = self._lost[best]
        if lost is not None:
            self._lost[best] = lost = lost + max(0, now - compiled[best])
            if lost >= self._compiling or (is_full and compiled[best] < plain[0]):
                self._lost[best] = None
                return best, True
        return n_rows, (now, n_rows) in there

    def warm_up(self, vectors: tf.Tensor, sentences: Sequence[np.ndarray]) -> None:
        """Let sentences begin from the states after a text, see `BiLM.warm_up`."""
        self._network.warm_up(vectors, sentences)
        self._states = ()

    def _states_after(self, marks: np.ndarray) -> tuple[States, ...]:
        """The states of each direction after what it reads first, for one row."""
        read = [tf.constant(mark[np.newaxis, np.newaxis]) for mark in marks]  # (1, 1, dim)
        texts = Texts(read, self._network.initial_states())
        return self._network.run(texts, mode=Mode.INFERENCE)[1]


class _WordProducts:
    """What words give to the pre-activations of the first layers, kept while there is room.

    A table is a variable, so that a program takes it as it lies.
    """

    def __init__(self, network: BiLM) -> None:
        self._stacks = network.stacks
        self._tables: list[tf.Variable] = []
        self._row_of = np.empty(0, np.int32)  # by a word's number, -1: there is none
        self._n_kept = 0
        self._edition = -1

    def tables(self) -> list[tf.Tensor]:
        """Of each direction, float32 (rows, 4 * dim)."""
        return [table.value() for table in self._tables]

    def rows(self, words: Words) -> np.ndarray:
        """The row of each distinct word: int32 (distinct words,); missing ones are computed."""
        numbers = words.numbers
        if words.edition != self._edition:
            self._edition, self._n_kept = words.edition, 0
            self._row_of[:] = -1
        size = int(numbers.max()) + 1
        if size > len(self._row_of):
            more = np.full(max(size, 2 * len(self._row_of)) - len(self._row_of), -1, np.int32)
            self._row_of = np.append(self._row_of, more)
        is_new = self._row_of[numbers] < 0
        if not self._tables or self._n_kept + is_new.sum() > self._tables[0].shape[0]:
            self._make_room(len(numbers))
            is_new[:] = True
        start, self._n_kept = self._n_kept, self._n_kept + int(is_new.sum())
        self._row_of[numbers[is_new]] = np.arange(start, self._n_kept)
        if start < self._n_kept:
            vectors = tf.constant(words.vectors[is_new])
            for table, stack in zip(self._tables, self._stacks, strict=True):
                # In place: nobody else holds the table's value between two windows.
                tf.raw_ops.ResourceStridedSliceAssign(
                    ref=table.handle, begin=[start], end=[self._n_kept], strides=[1],
                    value=stack.word_products(vectors),
                )  # fmt: skip
        return self._row_of[numbers]

    def _make_room(self, n_words: int) -> None:
        """Forget all; in tables for `n_words` at least, and seldom of another size."""
        self._row_of[:] = -1
        self._n_kept = 0
        if not self._tables or n_words > self._tables[0].shape[0]:
            size = max(_KEPT_PRODUCTS, n_words + n_words // 4 if n_words > _KEPT_PRODUCTS else 0)
            width = 4 * self._stacks[0].options.dim
            self._tables = [
                tf.Variable(tf.zeros((size, width)), trainable=False) for _ in self._stacks
            ]


def tensor_specs(values: Any) -> Any:
    """The shapes and dtypes of nested tensors."""
    return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), values)
