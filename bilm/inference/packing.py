"""Packed sentences: their layout in a batch, and the execution of the LSTMs.

Sentences are laid end to end in the rows of a batch, without padding, and the states are reset at
their starts. The backward direction has a sentence's words in reverse, at the same positions. The
first input, `<S>` or `</S>`, is the same for all sentences: they start from the states after it.

The cost of a step is its number of rows plus a fixed cost, which is smaller in a compiled program.
A program has a fixed number of rows, one of a few. It is compiled once running without it has cost
more than its compilation, or when more text follows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.cell import Boundaries
from bilm.core.keras_backend import traced_once
from bilm.core.lstm import Mode, States
from bilm.core.network import BiLM
from bilm.core.xla_lstm import ProductLookup, is_faster_for

# The numbers of rows with a program, and the positions of a row in a full window: with compiled
# steps, and in a compiled loop, whose matmuls are fast with fewer rows.
_STEPWISE, _IN_LOOP = ((32, 64, 128), 256), ((1, 4, 8, 16, 24, 32, 48, 64), 320)
_PLAIN_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
# Fixed cost of a step, in rows. Measured with a small model on two cores.
_PLAIN_STEP, _COMPILED_STEP = 20, 6

# Per direction and layer: float32 (steps, rows, projection_dim).
Outputs = Sequence[Sequence[np.ndarray]]


class PackedSentences(NamedTuple):
    """The layout of sentences in a batch."""

    lengths: np.ndarray  # int64 (sentences,), words of each sentence, >= 1
    shape: tuple[int, int]  # (steps, rows) of the batch; rows may have empty positions at the end
    rows: np.ndarray  # int64 (sentences,), the row of each sentence
    starts: np.ndarray  # int64 (sentences,), its first position in the row

    @classmethod
    def pack(cls, lengths: np.ndarray, n_rows: int) -> PackedSentences:
        """Assign sentences to rows: the longest first, each to the shortest row so far.

        Source: Graham (1969), "Bounds on multiprocessing timing anomalies": the longest row is at
        most a third longer than optimal, and close to optimal with many short sequences.
        """
        rows, starts = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
        filled = [(0, row) for row in range(n_rows)]  # a heap: positions so far, row
        for number in np.argsort(-lengths, kind="stable").tolist():
            start, row = filled[0]
            rows[number], starts[number] = row, start
            heapq.heapreplace(filled, (start + int(lengths[number]), row))
        return cls(lengths, (max(filled)[0], n_rows), rows, starts)

    def ids(self, words: np.ndarray, n_directions: int) -> np.ndarray:
        """The inputs of each direction, from the words of all sentences, one after the other: int32
        (n_directions, steps, rows), 0 past a row's end."""
        lengths, n_rows = self.lengths, self.shape[1]
        before, length = (np.repeat(x, lengths) for x in (np.cumsum(lengths) - lengths, lengths))
        number = np.arange(len(words)) - before  # the word's position in its sentence
        first = np.repeat(self.starts * n_rows + self.rows, lengths)
        # (2, words), positions in the flattened (steps, rows) array
        positions = first + n_rows * np.stack([number, length - 1 - number])
        ids = np.zeros((n_directions, self.shape[0] * n_rows), np.int32)
        for d in range(n_directions):
            ids[d, positions[d]] = words
        return ids.reshape(n_directions, *self.shape)

    def resets(self) -> np.ndarray:
        """bool (steps, rows), True at the first word of each sentence."""
        resets = np.zeros(self.shape, bool)
        resets[self.starts, self.rows] = True
        return resets

    def layers(self, number: int, tokens: np.ndarray, outputs: Sequence[Outputs]) -> np.ndarray:
        """All layers of sentence `number`: (n_layers + 1, words, n_directions * projection_dim),
        from its word vectors (words, projection_dim) and the outputs of consecutive runs of steps,
        of which only the last may be shorter."""
        n_words, dim = tokens.shape
        n_directions, n_layers, n_steps = len(outputs[0]), len(outputs[0][0]), len(outputs[0][0][0])
        result = np.empty((1 + n_layers, n_words, n_directions, dim), tokens.dtype)
        result[0] = tokens[:, np.newaxis]
        start, row = int(self.starts[number]), self.rows[number]
        for part in range(start // n_steps, (start + n_words - 1) // n_steps + 1):
            first = part * n_steps
            begin, end = max(start, first), min(start + n_words, first + n_steps)
            positions = slice(begin - start, end - start)
            for d, layers in enumerate(outputs[part]):
                # The backward direction has the words in reverse.
                words = result[:, ::-1] if d else result
                for i, layer in enumerate(layers, start=1):
                    words[i, positions, d] = layer[begin - first : end - first, row]
        # (n_layers + 1, words, n_directions, projection_dim) -> the last two as one
        return result.reshape(len(result), n_words, -1)


class PackedRunner:
    """Runs the LSTMs of a network over packed sentences; `window_tokens` words fill the rows."""

    def __init__(
        self,
        network: BiLM,
        *,
        mode: Mode | None = None,  # of compiled layers; None: the fastest
        rows: Sequence[int] | None = None,  # row counts with a program; None: chosen for speed
        compiling: int = 12_000,  # cost of a compilation, in rows times steps
        longest: int = 255,  # words of a sentence; longer ones would leave too few rows
        kept_words: int = 4096,  # minimum rows of a compiled loop's cache of pre-activations
        loop_steps: int = 112,  # per run of a compiled loop; more waste memory with few sentences
    ) -> None:
        self._network = network
        stack = network.stacks[0]
        if mode is None:
            in_loop = is_faster_for(stack.options, stack.precision)
            mode = Mode.COMPILED_LOOP if in_loop else Mode.COMPILED_STEPS
        self._mode = mode
        in_loop = mode is Mode.COMPILED_LOOP
        self._word_products = _WordProducts(network, kept_words) if in_loop else None
        fast_rows, n_steps = _IN_LOOP if in_loop else _STEPWISE
        self._rows = tuple(rows or fast_rows)
        self.window_tokens = max(self._rows) * n_steps
        self.longest, self._loop_steps, self._compiling = longest, loop_steps, compiling
        self._plain = self._function(Mode.INFERENCE)
        self._programs: dict[int, Any] = {}  # by their rows
        # Extra cost of running without a program so far, by number of rows, in rows times steps.
        self._lost = dict.fromkeys(self._rows, 0)
        self._initial: tuple[States, ...] = ()

    def _function(self, mode: Mode, n_rows: int | None = None) -> Any:
        """A function that runs both directions. Its tables hold vectors of words, or for the
        compiled loop first-layer pre-activations; sentences start from the states `initial`."""
        network, lstm = self._network, self._network.stacks[0].options
        in_loop, n_directions = mode is Mode.COMPILED_LOOP, len(network.stacks)

        def run(
            tables: Any, ids: Any, resets: Any, n_steps: Any, initial: Any, states: Any
        ) -> tuple[list[list[tf.Tensor]], tuple[States, ...]]:
            inputs: list[Any] = [
                ProductLookup(table, ids[d], n_steps) if in_loop else tf.gather(table, ids[d])
                for d, table in enumerate(tables)
            ]
            boundaries = [Boundaries(None, resets, states_before) for states_before in initial]
            return network.run(inputs, states, boundaries, mode=mode)

        width = 4 * lstm.dim if in_loop else lstm.projection_dim
        signature = [
            [tf.TensorSpec((None, width), tf.float32)] * n_directions,
            tf.TensorSpec((n_directions, None, n_rows), tf.int32),
            tf.TensorSpec((None, n_rows), tf.bool),
            tf.TensorSpec((), tf.int32),
            _specs(network.zero_states(1)),
            _specs(network.zero_states(1), n_rows),
        ]
        return traced_once(run, signature)

    def __call__(
        self,
        table: np.ndarray,  # float32 (words, projection_dim); `<S>` and `</S>` are words 0 and 1
        numbers: np.ndarray,  # int32, rows of `table` for the words of all sentences, in order
        lengths: np.ndarray,  # int64 (sentences,), words of each sentence, >= 1
        is_full: bool,  # more text follows, so that a compilation is worthwhile
        n_former: int = 0,  # added to `numbers`, so that no word has the number of a dropped word
        framed: bool = False,  # the sentences include `<S>` and `</S>`
    ) -> Iterator[np.ndarray]:
        """All layers of each sentence, see `PackedSentences.layers`; `table` is not used after the
        call."""
        initial = self._states_before(table, framed)
        used, ids = np.unique(numbers, return_inverse=True)
        vectors = table[used]
        sentences, run = self._choose(lengths, is_full)
        if run is self._plain or self._word_products is None:
            tables = self._tables(vectors)
            parts = self._parts(run, sentences, tables, ids, sentences.shape[0], initial)
        else:
            tables, rows = self._word_products.look_up(n_former + used, vectors)
            parts = self._parts(run, sentences, tables, rows[ids], self._loop_steps, initial)
        outputs, stops = list(parts), np.cumsum(lengths)
        return (
            sentences.layers(number, vectors[ids[start:stop]], outputs)
            for number, (start, stop) in enumerate(zip(stops - lengths, stops, strict=True))
        )

    def in_chunks(
        self, table: np.ndarray, numbers: np.ndarray, n_steps: int, *, framed: bool = False
    ) -> Iterator[Outputs]:
        """The outputs of one sentence, `n_steps` steps at a time; arguments as for a call."""
        initial = self._states_before(table, framed)
        sentences = PackedSentences.pack(np.array([len(numbers)]), 1)
        return self._parts(self._plain, sentences, self._tables(table), numbers, n_steps, initial)

    def _tables(self, vectors: np.ndarray) -> list[tf.Tensor]:
        return [tf.constant(vectors)] * len(self._network.stacks)

    def _parts(
        self,
        run: Any,
        sentences: PackedSentences,
        tables: list[tf.Tensor],
        ids: np.ndarray,
        at_once: int,
        initial: tuple[States, ...],
    ) -> Iterator[Outputs]:
        """The outputs of consecutive runs of `at_once` steps; `ids` are the rows of `tables` for
        the words of all sentences."""
        n_steps, n_rows = sentences.shape
        # Programs have a fixed number of steps.
        more = 0 if run is self._plain else -n_steps % at_once
        inputs = np.pad(sentences.ids(ids, len(tables)), [(0, 0), (0, more), (0, 0)])
        resets = np.pad(sentences.resets(), [(0, more), (0, 0)])
        states = self._network.zero_states(n_rows)  # reset at the start of rows
        for start in range(0, n_steps, at_once):
            part = slice(start, start + at_once)
            n = min(at_once, n_steps - start)
            layers, states = run(tables, inputs[:, part], resets[part], n, initial, states)
            yield [[np.asarray(x) for x in outputs] for outputs in layers]

    def _states_before(self, table: np.ndarray, framed: bool) -> tuple[States, ...]:
        """The states before a sentence's first word, for one row: those after the first input of
        each direction, unless sentences include it."""
        before = self._network.initial_states()
        if framed:
            return before
        if not self._initial:
            n_directions = len(self._network.stacks)
            marks = [tf.constant(mark[np.newaxis]) for mark in table[:n_directions]]
            ids, resets = np.zeros((n_directions, 1, 1), np.int32), np.zeros((1, 1), bool)
            self._initial = self._plain(marks, ids, resets, 1, before, before)[1]
        return self._initial

    def _choose(self, lengths: np.ndarray, is_full: bool) -> tuple[PackedSentences, Any]:
        """The fastest layout, and the function that runs it."""
        total, longest = int(lengths.sum()), int(lengths.max())

        def cost(n_rows: int, step_cost: int) -> int:
            return max(longest, -(-total // n_rows)) * (n_rows + step_cost)

        ready = [(cost(n, _PLAIN_STEP), n, self._plain) for n in _PLAIN_ROWS]
        ready += [(cost(n, _COMPILED_STEP), n, run) for n, run in self._programs.items()]
        cost_now, n_rows, run = min(ready, key=lambda choice: choice[0])
        best_cost, best = min((cost(n, _COMPILED_STEP), n) for n in self._rows)
        if best_cost < cost_now:  # it has no program yet
            self._lost[best] += cost_now - best_cost
            fills_rows = is_full and best == max(self._rows)
            if fills_rows or self._lost[best] >= self._compiling:
                self._programs[best] = run = self._function(self._mode, best)
                n_rows = best
        return PackedSentences.pack(lengths, n_rows), run


class _WordProducts:
    """A least-recently-used cache of first-layer pre-activations per word."""

    def __init__(self, network: BiLM, kept_words: int) -> None:
        self._stacks, self._kept_words = network.stacks, kept_words
        self._n_calls = 0
        self._tables: list[tf.Tensor] = []  # per direction, float32 (rows, 4 * dim)
        self._numbers = np.empty(0, np.int64)  # each row's word; negative: none
        self._used_at = np.empty(0, np.int64)  # number of the last call that used each row

    def look_up(
        self, numbers: np.ndarray, vectors: np.ndarray
    ) -> tuple[list[tf.Tensor], np.ndarray]:
        """The tables, and the rows of distinct words, int32; missing words are computed from their
        vectors. A number must always mean the same word."""
        if len(numbers) > len(self._numbers):
            # With a margin, because every size is compiled again.
            n_rows = max(self._kept_words, len(numbers) * 5 // 4)
            shape = (n_rows, 4 * self._stacks[0].options.dim)
            self._tables = [tf.zeros(shape) for _ in self._stacks]
            self._numbers, self._used_at = -1 - np.arange(n_rows), np.zeros(n_rows, np.int64)
        self._n_calls += 1
        rows = np.full(len(numbers), -1, np.int32)
        _, hits, hit_rows = np.intersect1d(
            numbers, self._numbers, assume_unique=True, return_indices=True
        )
        rows[hits] = hit_rows
        self._used_at[hit_rows] = self._n_calls
        is_new = rows < 0
        if not is_new.any():
            return self._tables, rows
        n_new = np.count_nonzero(is_new)
        oldest = np.argpartition(self._used_at, n_new - 1)[:n_new].astype(np.int32)
        # These rows belong to no word until they are written, because writing may fail.
        self._numbers[oldest] = -1 - oldest
        new = tf.constant(vectors[is_new])
        self._tables = [
            # In place: assignment would copy the table.
            tf.raw_ops.InplaceUpdate(x=table, i=oldest, v=stack.word_products(new))
            for table, stack in zip(self._tables, self._stacks, strict=True)
        ]
        self._numbers[oldest], self._used_at[oldest] = numbers[is_new], self._n_calls
        rows[is_new] = oldest
        return self._tables, rows


def _specs(values: Any, n_rows: int | None = 1) -> Any:
    """The shapes and dtypes of nested tensors of one row, for `n_rows` rows; None: any number."""
    return tf.nest.map_structure(lambda x: tf.TensorSpec((n_rows, *x.shape[1:]), x.dtype), values)
