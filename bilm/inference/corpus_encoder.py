"""All layers of streams of sentences; each distinct word is encoded once.

Sentences are read a window at a time. While a window is computed, the vectors of the previous one
are yielded, so that memory holds two windows. `CorpusEncoder.blocks` computes and yields a sentence
of any length in chunks.

The sentences of a window are laid end to end in the rows of a batch, without padding, and the
states are reset at their starts. The backward direction has a sentence's words in reverse, at the
same positions. The first input, `<S>` or `</S>`, is the same for all sentences: they start from the
states after it.

The cost of a step is its number of rows plus a fixed cost, which is smaller in a compiled program.
A program has a fixed number of rows, one of a few. It is compiled once running without it has cost
more than its compilation, or when more text follows.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.keras_backend import traced_once
from bilm.core.lstm import Mode, States, compiled_loop_is_fastest
from bilm.core.network import BiLM
from bilm.core.recurrence import Boundaries
from bilm.core.xla_lstm import ProductLookup
from bilm.data.encoding import BOS, EOS, DistinctWords, network_ids
from bilm.data.prefetch import compute_ahead, windows
from bilm.data.sentences import Tokens

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
            in_loop = compiled_loop_is_fastest(stack.options, stack.precision)
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


# From words to the encoder's ids, 0-based: (n, characters) or (n,).
IdsOfWords = Callable[[Sequence[str]], np.ndarray]

# Words encoded at a time, so that intermediate results stay in the CPU cache.
_ENCODED_AT_ONCE = 512
_KEPT_BYTES = 128 * 2**20


class Block(NamedTuple):
    """All layers at positions of a sentence, in one direction's half of the vectors."""

    positions: slice  # tokens of the sentence
    columns: slice  # the direction's half of the last axis
    layers: np.ndarray  # float32 (n_layers + 1, positions, projection_dim)


class CorpusEncoder:
    """Runs a network over a stream of sentences.

    `window_tokens` tokens are computed at a time; a longer sentence is a window of its own, and
    `chunk_tokens` of it are computed at a time. Both attributes can be set.
    """

    def __init__(
        self,
        network: BiLM,
        word_ids: IdsOfWords,
        *,
        window_tokens: int | None = None,  # None: chosen for speed
        runner: PackedRunner | None = None,
        kept_bytes: int = _KEPT_BYTES,  # of word vectors; once exceeded, all of them are dropped
    ) -> None:
        self._network = network
        self._runner = runner or PackedRunner(network)
        self._words = EncodedWords(network, word_ids, kept_bytes)
        self._lock = threading.Lock()  # several streams may be computed in threads
        self.window_tokens = window_tokens or self._runner.window_tokens
        self.chunk_tokens = 1024

    def layers(
        self, sentences: Iterable[Tokens], batch_size: int | None = None, *, framed: bool = False
    ) -> Iterator[np.ndarray]:
        """All layers of each sentence, in the order of the input: float32 (n_layers + 1, words,
        n_directions * projection_dim). At most `batch_size` sentences are computed together.
        `framed`: the sentences include `<S>` and `</S>`."""
        ahead = windows(sentences, len, self.window_tokens, batch_size)
        for window in compute_ahead(functools.partial(self._compute, framed=framed), ahead):
            yield from window

    def _compute(self, window: tuple[list[Tokens], bool], *, framed: bool) -> Iterator[np.ndarray]:
        """Run the network; the iterator copies the vectors of one sentence at a time."""
        sentences, is_full = window
        lengths = np.array([len(sentence) for sentence in sentences], np.int64)
        # 0: sentences without words; 1: short sentences, which share a batch; 2: long sentences.
        kinds = np.where(lengths > self._runner.longest, 2, np.minimum(lengths, 1))
        lstm, n_directions = self._network.stacks[0].options, len(self._network.stacks)
        no_words = np.empty((lstm.n_layers + 1, 0, n_directions * lstm.projection_dim), np.float32)
        results: dict[int, Iterator[np.ndarray]] = {0: itertools.repeat(no_words)}
        with self._lock:
            words, numbers = self._words, self._words.numbers(sentences)
            for kind in np.unique(kinds[kinds > 0]).tolist():
                kind_numbers = numbers[np.repeat(kinds == kind, lengths)]
                kind_lengths = lengths[kinds == kind]
                results[kind] = self._runner(
                    words.vectors, kind_numbers, kind_lengths, is_full, words.n_forgotten, framed
                )
        return (next(results[kind]) for kind in kinds.tolist())

    def blocks(self, sentence: Tokens, *, framed: bool = False) -> Iterator[Block]:
        """All layers of a sentence of at least one word, in bounded memory. Every position is
        yielded once per direction, in the direction's reading order."""
        n, at_once = len(sentence), self.chunk_tokens
        with self._lock:
            numbers = self._words.numbers([[BOS, EOS, *sentence]])
            used, ids = np.unique(numbers, return_inverse=True)
            vectors, ids = self._words.vectors[used], ids[2:]
            parts = self._runner.in_chunks(vectors, ids, at_once, framed=framed)
        dim = vectors.shape[1]
        for start, part in zip(range(0, n, at_once), parts, strict=True):
            stop = min(start + at_once, n)
            for d, layers in enumerate(part):
                # (steps, 1, dim), in the reading order of the direction
                positions = slice(n - stop, n - start) if d else slice(start, stop)
                outputs = [layer[::-1, 0] if d else layer[:, 0] for layer in layers]
                columns = slice(d * dim, (d + 1) * dim)
                yield Block(positions, columns, np.stack([vectors[ids[positions]], *outputs]))


def warm_up_network(network: BiLM, words: EncodedWords, sentences: Sequence[Tokens]) -> None:
    """Start every sentence from the mean LSTM states reached after reading `sentences`."""
    framed = [[BOS, *sentence, EOS] for sentence in sentences]
    stops = np.cumsum([len(sentence) for sentence in framed])
    index = np.split(words.numbers(framed), stops[:-1])
    network.warm_up(tf.constant(words.vectors), index)


class EncodedWords:
    """The kept words and their `vectors`, float32 (rows, dim); a word's number is its row. `<S>`
    and `</S>` are words 0 and 1."""

    def __init__(self, network: BiLM, word_ids: IdsOfWords, kept_bytes: int = _KEPT_BYTES) -> None:
        # (words,), or with an axis of characters
        ids = tf.TensorSpec([None] * word_ids([]).ndim, tf.int32)
        # Words of similar length are encoded together, so one bucket is enough.
        encoder: Any = network.encoder
        self._encode = traced_once(functools.partial(encoder, n_buckets=1), [ids])
        self._word_ids = word_ids
        self._kept_bytes = kept_bytes
        self._numbers = DistinctWords()
        self._n_encoded = 0
        self.n_forgotten = 0  # words that lost their numbers
        self.vectors = np.empty((4096, network.stacks[0].options.projection_dim), np.float32)

    def numbers(self, sentences: Iterable[Tokens]) -> np.ndarray:
        """The rows of `vectors` for the words of sentences, in order: int32 (words,). Rows from
        earlier calls may have changed."""
        if self.vectors[: self._n_encoded].nbytes > self._kept_bytes:
            self.n_forgotten += self._n_encoded
            self._numbers, self._n_encoded = DistinctWords(), 0
        words = itertools.chain.from_iterable(sentences)
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int32)
        done, size = self._n_encoded, len(self._numbers)
        if size > len(self.vectors):
            grown = np.empty((max(size, 2 * done), self.vectors.shape[1]), np.float32)
            grown[:done] = self.vectors[:done]
            self.vectors = grown
        self.encode(list(itertools.islice(self._numbers, done, None)), self.vectors[done:])
        self._n_encoded = size
        return numbers

    def encode(self, words: Tokens, vectors: np.ndarray) -> None:
        """Write the vectors of words, which may repeat, into `vectors` (words or more, dim)."""
        # Words of similar length together, because a batch is padded to its longest word.
        order = np.argsort([len(word) for word in words], kind="stable")
        for start in range(0, len(words), _ENCODED_AT_ONCE):
            part = order[start : start + _ENCODED_AT_ONCE]
            ids = self._word_ids([words[k] for k in part]).astype(np.int32)
            vectors[part] = self._encode(tf.constant(network_ids(ids))).numpy()
