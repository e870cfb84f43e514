"""All layers of streams of sentences: every distinct word encoded once, nothing kept that is done.

The token encoder knows no context, so a word's vector is kept from its first use on. Sentences
are taken from the stream a window at a time and packed into the rows of a batch. While a window is
computed, the vectors of the one before it are yielded, in the order in which the sentences came.
Memory is that of two windows and of the kept words, however long the stream is. A sentence that is
longer than a window is computed in chunks, whose layers are yielded one by one.

Sentences are laid end to end in the rows of a batch (sequence packing), so that nothing is computed
for padding: a sentence takes one position for each of its words, and the LSTM states are reset
where it begins. Both directions have the same positions; the backward one has a sentence's words in
reverse. What a direction reads first, `<S>` or `</S>`, is the same for all sentences: it is
computed once, and where a sentence begins, the states are those after it.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data import compute_ahead, up_to_fault
from bilm.data.encoding import DistinctWords, network_ids
from bilm.errors import InputError, require_count, shown
from bilm.layers import Mode, States, WordLookup
from bilm.layers.recurrence import is_faster_for
from bilm.network import BiLM, Texts

Tokens = Sequence[str]
# Words to the ids that the encoder takes, without the mask's + 1: (n, characters) or (n,).
WordIds = Callable[[Sequence[str]], np.ndarray]

# Words at a time: what lies between two products of the encoder stays in the cache.
_ENCODED_AT_ONCE = 512
_KEPT_BYTES = 128 * 2**20
_CHUNK_TOKENS = 1024
# Rows of a batch, enough for fast products, and positions of a row: with compiled steps, and in a
# compiled loop, which has the products of a window's words in memory besides.
_STEPWISE, _IN_LOOP = (128, 256), (64, 320)
# Steps that a compiled loop may take beyond those of a full row.
_MORE_STEPS = 32


def check_stream(sentences: Any, batch_size: int | None) -> None:
    """Check the arguments of a call that takes many sentences.

    Raises:
        InputError: `sentences` is one text or has no order, or `batch_size` is no whole number
            from 1.
    """
    if isinstance(sentences, str):
        raise InputError(f"a list of sentences is expected, not the text {shown(sentences)}.")
    if not _is_stream(sentences):
        raise InputError(f"sentences: a list of sentences is expected, not {shown(sentences)}.")
    if batch_size is not None:
        require_count(batch_size=batch_size)


def _is_stream(value: Any) -> bool:
    """Whether something can be gone through in an order that it has."""
    if isinstance(value, bytes | Set | Mapping) and not isinstance(value, KeysView):
        return False
    try:
        iter(value)
    except TypeError:  # a tensor without axes, for one, which has the method
        return False
    return True


def read_stream(items: Iterable[Any], with_ids: bool) -> Iterator[tuple[Any, Tokens]]:
    """Pairs (id, tokens) of a stream of sentences: text that is split on white space, or tokens.

    Args:
        items: sentences; `with_ids` pairs (id, sentence).
        with_ids: without it the ids are the sentences' numbers, from 0.

    Raises:
        InputError: an item is no pair, or a sentence is neither text nor a list of tokens.
    """
    for number, item in enumerate(items):
        if not with_ids:
            yield number, _as_tokens(item, number)
        elif isinstance(item, tuple | list) and len(item) == 2:
            yield item[0], _as_tokens(item[1], number)
        else:
            raise InputError(
                f"sentence {number}: a pair (id, sentence) is expected, not {shown(item)}."
            )


def _as_tokens(sentence: Any, number: int) -> Tokens:
    if isinstance(sentence, str):
        return sentence.split()
    if not _is_stream(sentence):
        raise InputError(
            f"sentence {number}: text or a list of tokens is expected, not {shown(sentence)}."
        )
    listed = list(sentence)
    for position, token in enumerate(listed):
        if not isinstance(token, str):
            kind = type(token).__name__
            raise InputError(
                f"sentence {number}, token {position}: text is expected, not {kind} {shown(token)}."
            )
    return listed


class Block(NamedTuple):
    """All layers of some positions, in one direction's half of the vectors."""

    start: int  # the positions, words counted from 0
    stop: int
    columns: slice  # the direction's part of the last axis
    layers: np.ndarray  # float32 (n_layers + 1, stop - start, projection_dim)


class CorpusEncoder:
    """Runs a network over a stream of sentences.

    Args:
        network: the layers.
        word_ids: gives the encoder's ids of words.
        window_tokens: tokens that are computed, and whose vectors are in memory, at a time; a
            longer sentence is a window of its own. None: as many as are fast.
        runner: runs the LSTMs; None makes one.
        kept_bytes: of the vectors of distinct words; with more, all are forgotten.

    Attributes:
        window_tokens: as above; can be set.
        chunk_tokens: tokens of a long sentence that are computed at a time; can be set.
    """

    def __init__(
        self,
        network: BiLM,
        word_ids: WordIds,
        *,
        window_tokens: int | None = None,
        runner: PackedRunner | None = None,
        kept_bytes: int = _KEPT_BYTES,
    ) -> None:
        self._network = network
        self._words = EncodedWords(network, word_ids, kept_bytes)
        self._runner = runner or PackedRunner(network)
        self._run_chunk = _chunk_function(network)
        self.window_tokens = window_tokens or self._runner.window_tokens
        self.chunk_tokens = _CHUNK_TOKENS

    def warm_up(self, sentences: Sequence[Tokens]) -> None:
        """Let sentences begin from the states after a text, see `bilm.warm_up`."""
        numbers = self._words.numbers(sentences)
        stops = np.cumsum([len(sentence) for sentence in sentences])
        # `<S>` and `</S>` are the words 0 and 1.
        framed = [np.r_[0, words, 1] for words in np.split(numbers, stops[:-1])]
        self._runner.warm_up(tf.constant(self._words.vectors), framed)

    def layers(
        self, sentences: Iterable[Tokens], batch_size: int | None = None
    ) -> Iterator[np.ndarray]:
        """All layers of each sentence, in the order of the input.

        Args:
            sentences: lists of words; an empty one gives no rows.
            batch_size: sentences of a window, at most; None sets no bound.

        Yields:
            float32 (n_layers + 1, words, n_directions * projection_dim).
        """
        for window in compute_ahead(self._compute, self._windows(sentences, batch_size)):
            yield from window

    def _windows(
        self, sentences: Iterable[Tokens], batch_size: int | None
    ) -> Iterator[tuple[list[Tokens], bool]]:
        """Sentences that are computed together, and whether there are more after them.

        When one cannot be had, those before it come first.
        """
        window: list[Tokens] = []
        faults: list[Exception] = []
        n_tokens = 0
        for sentence in up_to_fault(sentences, faults):
            is_full = n_tokens + len(sentence) > self.window_tokens or len(window) == batch_size
            if window and is_full:
                yield window, True
                window, n_tokens = [], 0
            window.append(sentence)
            n_tokens += len(sentence)
        if window:
            yield window, False
        if faults:
            raise faults[0]

    def _compute(self, window: tuple[list[Tokens], bool]) -> Iterator[np.ndarray]:
        """Run the network; the iterator copies each sentence's vectors out when it comes to it."""
        sentences, is_full = window
        numbers = self._words.numbers(sentences)
        lengths = np.array([len(sentence) for sentence in sentences], np.int64)
        # Sentences without words, those that share a batch, and those that are too long to.
        parts = np.where(lengths > self._runner.longest, 2, np.minimum(lengths, 1))
        results = []
        for part in range(3):
            of_part = numbers[np.repeat(parts == part, lengths)]
            results.append(self._part(of_part, lengths[parts == part], is_full))
        return (next(results[part]) for part in parts.tolist())

    def _part(
        self, numbers: np.ndarray, lengths: np.ndarray, is_full: bool
    ) -> Iterator[np.ndarray]:
        """Sentences that share a batch; `numbers` are their words', one after the other."""
        if not lengths.any():
            lstm, n_directions = self._network.stacks[0].options, len(self._network.stacks)
            shape = (lstm.n_layers + 1, 0, n_directions * lstm.projection_dim)
            return (np.empty(shape, np.float32) for _ in lengths)
        # `<S>` and `</S>` are the words 0 and 1.
        used, ids = np.unique(np.append([0, 1], numbers), return_inverse=True)
        words = WordLookup(self._words.vectors[used], ids[2:].astype(np.int32))
        packed = PackedSentences.pack(lengths, self._runner.n_rows(lengths))
        outputs = self._runner(words, packed, is_full)
        stops = np.cumsum(lengths)
        return (
            packed.layers(number, words.vectors[words.ids[start:stop]], outputs)
            for number, (start, stop) in enumerate(zip(stops - lengths, stops, strict=True))
        )

    def blocks(self, sentence: Tokens) -> Iterator[Block]:
        """All layers of a sentence of at least one word, in bounded memory.

        The states at the end of a chunk are those before the next one, so the layers are those of
        the whole sentence. Every position comes once in each direction: the forward direction
        goes from the first word on, the backward direction from the last word back.
        """
        n, dim = len(sentence), self._network.stacks[0].options.projection_dim
        marks = self._tokens(["<S>", "</S>"])[:, np.newaxis]  # (2, 1, dim)
        n_directions = len(self._network.stacks)
        _, states = self._run_chunk(list(marks[:n_directions]), self._network.initial_states())
        for start in range(0, n, self.chunk_tokens):
            stop = min(start + self.chunk_tokens, n)
            read = [self._tokens(sentence[start:stop])]
            if n_directions == 2:
                read.append(self._tokens(sentence[n - stop : n - start])[::-1])
            layers, states = self._run_chunk(read, states)
            for d, of_direction in enumerate(layers):
                columns = slice(d * dim, (d + 1) * dim)
                if d == 0:
                    yield Block(start, stop, columns, of_direction.numpy())
                else:
                    yield Block(n - stop, n - start, columns, of_direction.numpy()[:, ::-1])

    def _tokens(self, words: Tokens) -> np.ndarray:
        """The token encoder's vectors: (words, projection_dim)."""
        numbers = self._words.numbers([words])
        return self._words.vectors[numbers]


def _specs(values: Any) -> Any:
    return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), values)


def _chunk_function(network: BiLM) -> Callable[..., tuple[list[tf.Tensor], tuple[States, ...]]]:
    """Both directions over a chunk of one sentence: from the tokens (time, projection_dim) that
    each reads, and its states, to its layers (n_layers + 1, time, projection_dim) in the order of
    its reading, the token layer first, and the new states."""
    dim = network.stacks[0].options.projection_dim
    signature = [
        [tf.TensorSpec((None, dim), tf.float32)] * len(network.stacks),
        _specs(network.zero_states(1)),
    ]

    def run(
        tokens: list[tf.Tensor], states: tuple[States, ...]
    ) -> tuple[list[tf.Tensor], tuple[States, ...]]:
        read = [x[:, tf.newaxis] for x in tokens]  # (time, 1, projection_dim)
        outputs, after = network.run(Texts(read, states), mode=Mode.INFERENCE)
        # (n_layers + 1, time, 1, projection_dim) -> without the axis of rows
        layers = [tf.stack([x, *of])[:, :, 0] for x, of in zip(read, outputs, strict=True)]
        return layers, after

    return tf.function(run, autograph=False, input_signature=signature)


class EncodedWords:
    """The words so far and their vectors. `<S>` and `</S>` are the words 0 and 1.

    Attributes:
        vectors: float32 (rows, dim); a word's row is its number.
    """

    def __init__(self, network: BiLM, word_ids: WordIds, kept_bytes: int = _KEPT_BYTES) -> None:
        self._encode = tf.function(network.encoder, reduce_retracing=True, autograph=False)
        self._word_ids = word_ids
        self._kept_bytes = kept_bytes
        self._numbers = DistinctWords()
        self._n_encoded = 0
        self.vectors = np.empty((4096, network.stacks[0].options.projection_dim), np.float32)

    def numbers(self, sentences: Iterable[Tokens]) -> np.ndarray:
        """The words of sentences as rows of `vectors`, one after the other: int32 (words,).

        Rows that were handed out before may change.
        """
        if self.vectors[: self._n_encoded].nbytes > self._kept_bytes:
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
        """Write the vectors of words, which need not be distinct, into (words or more, dim)."""
        # Words of like length together: the encoder works on the longest of a batch.
        order = np.argsort([len(word) for word in words], kind="stable")
        for start in range(0, len(words), _ENCODED_AT_ONCE):
            part = order[start : start + _ENCODED_AT_ONCE]
            ids = self._word_ids([words[k] for k in part]).astype(np.int32)
            vectors[part] = self._encode(tf.constant(network_ids(ids))).numpy()


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
        self._plain, self._compiled = self._function(Mode.INFERENCE), self._function(mode)
        self._min_rows = compiled_rows
        self._compiled_rows: set[int] = set()
        self._most_words = 2048
        self._states: tuple[States, ...] = ()

    def _function(self, mode: Mode) -> Any:
        stacks = self._network.stacks
        dim, n_directions = stacks[0].options.projection_dim, len(stacks)
        signature = [
            WordLookup(
                tf.TensorSpec((None, dim), tf.float32),
                tf.TensorSpec((n_directions, None, None), tf.int32),
            ),
            tf.TensorSpec((None, None), tf.bool),
            tf.TensorSpec((), tf.int32),
            _specs(self._network.zero_states(1)),
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
            words: vectors of `<S>`, of `</S>` and of the distinct words; ids int32 (words,), those
                of all sentences, one after the other.
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
