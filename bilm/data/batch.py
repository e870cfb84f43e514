"""Batches: how sentences are read and fill rows, as in the original program.

A row takes complete sentences from the source and is cut after `num_steps` inputs; the rest of its
last sentence starts the same row of the next batch. The first row is filled before the second row
takes a sentence, and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bilm.core.errors import InputError, integer, require
from bilm.core.options import MOST_ROWS
from bilm.data.corpus import (
    Corpus,
    IndexedText,
    IteratorState,
    RowPosition,
    SentenceChunks,
    SentenceIds,
)

# A batch may hold at most this many copies of the text.
_MOST_PASSES = 16
_KEYS = ("token_ids", "tokens_characters", "next_token_id")


class Stream(NamedTuple):
    """One direction of a batch. Where the batch's mask is False, all three are 0.

    Attributes:
        token_ids: (B, T) int32, the vocabulary id of each input; `<UNK>` outside the vocabulary.
        words: (B, T) int32, the row of `Batch.characters` for each input; `token_ids` if there are
            no characters.
        next_token_id: (B, T) int32, the target: the vocabulary id of the sentence's next token.
    """

    token_ids: np.ndarray
    words: np.ndarray
    next_token_id: np.ndarray


@dataclass(frozen=True, eq=False)
class Batch(Mapping[str, "np.ndarray | None"]):
    """B rows of T inputs, with the characters of each distinct word once.

    As a mapping it is a batch of the original program, whose arrays are created on access:
    `token_ids` and `next_token_id` (B, T) int32; `tokens_characters` (B, T, max_word_length) int32,
    or None without characters; for the second stream the same names with the suffix `_reverse`.

    Attributes:
        streams: one for `LMDataset`, (forward, reverse) for `BidirectionalLMDataset`. Both streams
            of a row read the same sentences.
        characters: (distinct, max_word_length) uint16, ids 0..260 (260 is padding); the distinct
            inputs in the order of their first occurrence. None without characters.
        mask: (B, T) bool, False at padding; the same for both streams.
        state: position in the corpus after this batch; None if the sentences do not come from a
            `Corpus`, or each row is one sentence.
        sentences: (B,) int64, the number of each row's sentence in reading order; None unless each
            row is one sentence.
    """

    streams: tuple[Stream, ...]
    characters: np.ndarray | None
    mask: np.ndarray
    state: IteratorState | None = None
    sentences: np.ndarray | None = None

    def __iter__(self) -> Iterator[str]:
        suffixes = ("", "_reverse")[: len(self.streams)]
        return (key + suffix for suffix in suffixes for key in _KEYS)

    def __len__(self) -> int:
        return len(_KEYS) * len(self.streams)

    def __getitem__(self, name: str) -> np.ndarray | None:
        if name not in list(self):
            raise KeyError(name)
        key = name.removesuffix("_reverse")
        stream = self.streams[key != name]
        if key != "tokens_characters":
            return getattr(stream, key)
        # (distinct, max_word_length) by (B, T) -> (B, T, max_word_length)
        return None if self.characters is None else self.characters.astype(np.int32)[stream.words]


class Held(NamedTuple):
    """The sentence a row is in the middle of: `offset` inputs consumed, `left` remaining."""

    sentence: int
    offset: int
    left: int


class _Carried(NamedTuple):
    """A sentence of an earlier shard that has not been read completely."""

    shard: int
    sentence: int
    content: list[str] | SentenceIds


class SentenceReader(Iterator[SentenceIds]):
    """Iterates over sentences as ids; `_get_batch` refers to them by their numbers in `text`.

    `text` holds the sentences in memory: unfinished and unread sentences of earlier shards, then
    all sentences of one shard. With `reverse`, sentences run from `</S>` to `<S>`.
    """

    def __init__(self, source: Corpus | SentenceChunks, *, reverse: bool = False) -> None:
        self.source = source
        self.reverse = reverse
        self.text = IndexedText.from_ids([], source.max_word_length)
        self._shard = -1  # number of the shard in `text`
        self._carried: Sequence[_Carried] = ()  # the first sentences of `text`
        self._next = 0  # number of the next sentence to draw
        self._beginning: IteratorState | None = None
        self._start: IteratorState | None = None

    def __next__(self) -> SentenceIds:
        """The next sentence: int32 (n,) and int32 (n, max_word_length)."""
        while self._next == len(self.text):
            if self.load_more(()) is None:
                raise StopIteration
        ids, characters = self.text.sentence_ids(self._next)
        self._next += 1
        step = -1 if self.reverse else 1
        return ids[::step], None if characters is None else characters[::step].astype(np.int32)

    def resume(self, state: IteratorState) -> None:
        """Start with the batch after the one that had this state."""
        self._start = state

    def begin(self, batch_size: int, num_steps: int) -> list[Held | None]:
        """Prepare for batches of this shape; returns the sentences that rows start within."""
        if isinstance(corpus := self.source, Corpus):
            self._beginning = IteratorState(
                corpus=corpus.fingerprint,
                seed=corpus.seed,
                shuffle_on_load=corpus.shuffle,
                test=corpus.one_pass,
                worker=corpus.worker[0],
                n_workers=corpus.worker[1],
                batch_size=batch_size,
                num_steps=num_steps,
                shard=0,
                sentence=0,
                rows=(),
            )
            if self._start is not None:
                self._start.require_like(self._beginning)
                try:
                    return self._go_to(self._start)
                except IndexError:
                    raise InputError(
                        "The corpus must not change before a resume: it lacks a saved position."
                    ) from None
        return [None] * batch_size

    def unread(self) -> Iterator[tuple[int, int]]:
        """(number, inputs) of each unread sentence of `text`."""
        return enumerate(self.text.inputs[self._next :].data, self._next)

    def draw(self, last: int) -> None:
        """Mark the sentences up to this number as read."""
        self._next = max(self._next, last + 1)

    def load_more(self, held: Sequence[Held | None]) -> list[Held | None] | None:
        """Load the next shard into `text`, after the unfinished and the unread sentences.

        Returns `held` with the new sentence numbers; None at the end of the corpus.
        """
        return self._load(self._shard + 1, held, range(self._next, len(self.text)))

    def state(self, held: Sequence[Held | None]) -> IteratorState | None:
        """The position in the corpus; None if the source is not a `Corpus`."""
        if self._beginning is None:
            return None
        shard, sentence = self._origin(self._next)
        rows = tuple(row and RowPosition(*self._origin(row.sentence), row.offset) for row in held)
        return self._beginning._replace(shard=shard, sentence=sentence, rows=rows)

    def _origin(self, number: int) -> tuple[int, int]:
        """The shard of a sentence of `text`, and its number in the shard."""
        if number < len(self._carried):
            return self._carried[number][:2]
        return self._shard, number - len(self._carried)

    def _load(
        self, shard: int, held: Sequence[Held | None], unread: Iterable[int] = ()
    ) -> list[Held | None] | None:
        """Load a shard into `text`, after the sentences of `held` and `unread`."""
        if not self.source.has(shard):
            return None
        within = [row.sentence for row in held if row is not None]
        carried = [
            _Carried(*self._origin(number), self.text.content(number))
            for number in (*within, *unread)
        ]
        del self.text  # so that only one text is in memory
        self.text = self.source.read(shard, [sentence.content for sentence in carried])
        self._shard, self._carried, self._next = shard, carried, len(within)
        numbers = itertools.count()
        return [row and row._replace(sentence=next(numbers)) for row in held]

    def _go_to(self, state: IteratorState) -> list[Held | None]:
        """Load the shards of a state: earlier shards with unfinished sentences, then its own."""
        held: list[Held | None] = [None] * len(state.rows)
        earlier = {row.shard for row in state.rows if row} - {state.shard}
        for shard in (*sorted(earlier), state.shard):
            carried = self._load(shard, held)
            if carried is None:
                raise IndexError(shard)
            held = carried
            for number, row in enumerate(state.rows):
                if row and row.shard == shard:
                    sentence = len(self._carried) + row.sentence
                    left = int(self.text.inputs[sentence]) - row.offset
                    if left < 1:
                        raise IndexError(row.offset)
                    held[number] = Held(sentence, row.offset, left)
        self._next = len(self._carried) + state.sentence
        if self._next > len(self.text):
            raise IndexError(state.sentence)
        return held


class Segment(NamedTuple):
    """Consecutive inputs of one sentence in a batch: their row and first column, the sentence's
    number in the reader's text, the 0-based number of the first input, and the number of inputs."""

    row: int
    column: int
    sentence: int
    offset: int
    length: int


def _get_batch(
    generator: Iterable[SentenceIds],
    batch_size: int,
    num_steps: int,
    max_word_length: int | None,
    *,
    bidirectional: bool = False,
    incomplete: bool = False,
) -> Iterator[Batch]:
    """Batches of sentences whose rows continue from one batch to the next.

    Args:
        generator: sentences from `get_sentence` of a data set: (ids, char_ids) with `<S>` and
            `</S>`, integers (n,) and (n, max_word_length); `char_ids` may be None for word input.
            Slightly more is read than a batch needs.
        batch_size: number of rows.
        num_steps: inputs of a row.
        max_word_length: characters per word; None for word input.
        bidirectional: add a second stream, which reads each sentence in reverse.
        incomplete: also yield the last, partly filled batches, which the original left out.

    Yields:
        `Batch`, which includes the original's dict.

    Raises:
        InputError: a size is below 1, or far too large for the text; a sentence's arrays have wrong
            shapes, or are not integers.
    """
    require(integer(1, MOST_ROWS), batch_size=batch_size, num_steps=num_steps)
    reader = generator
    if not isinstance(reader, SentenceReader) or reader.source.max_word_length != max_word_length:
        chunks = SentenceChunks(generator, max_word_length, batch_size * num_steps)
        reader = SentenceReader(chunks)
    shape = (batch_size, num_steps)
    reverses = (reader.reverse, not reader.reverse)[: 1 + bidirectional]
    held = reader.begin(batch_size, num_steps)
    n_files, n_read = len(getattr(reader.source, "files", ())), 0
    while True:
        filled, after = fill_rows(held, reader.unread(), num_steps)
        segments = np.array(filled, np.int64).reshape(-1, len(Segment._fields))
        is_full = segments[:, -1].sum() == batch_size * num_steps
        # A batch needs all its sentences in one text: after loading more it is filled again.
        if not is_full and (carried := reader.load_more(held)) is not None:
            held, n_read = carried, n_read + 1
            if n_files and n_read > _MOST_PASSES * n_files:
                raise InputError(
                    f"A batch must hold the text at most {_MOST_PASSES} times, got {batch_size} "
                    f"rows of {num_steps} tokens: use fewer rows or more text."
                )
            continue
        if not filled or not (is_full or incomplete):
            return
        held, n_read = after, 0
        reader.draw(int(segments[:, 2].max()))
        yield replace(make_batch(reader.text, segments, shape, reverses), state=reader.state(held))


def fill_rows(
    held: Sequence[Held | None], sentences: Iterator[tuple[int, int]], num_steps: int
) -> tuple[list[Segment], list[Held | None]]:
    """Fill one batch.

    Args:
        held: for each row the sentence that it continues; None: a new sentence.
        sentences: (number, inputs) of the next sentences. If they end, rows stay unfilled.
        num_steps: inputs of a row.

    Returns:
        The segments, row by row from left to right, and `held` for the next batch.
    """
    segments: list[Segment] = []
    after: list[Held | None] = []
    for row, current in enumerate(held):
        column = 0
        while column < num_steps:
            if current is None:
                drawn = next(sentences, None)
                if drawn is None:
                    break
                current = Held(drawn[0], 0, drawn[1])
            sentence, offset, left = current
            length = min(left, num_steps - column)
            segments.append(Segment(row, column, sentence, offset, length))
            column += length
            current = Held(sentence, offset + length, left - length) if left > length else None
        after.append(current)
    return segments, after


def make_batch(
    text: IndexedText, segments: np.ndarray, shape: tuple[int, int], reverses: Sequence[bool]
) -> Batch:
    """Create the batch of segments.

    Args:
        segments: (segments, 5) integers, the fields of `Segment`.
        shape: (B, T).
        reverses: whether each stream reads backwards.
    """
    row, column, sentence, offset, length = segments.T
    # For all N inputs, segment after segment: the number within the segment, and the index in the
    # flattened (B, T) arrays; both (N,).
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    where = np.repeat(row * shape[1] + column, length) + within

    start, end = text.starts[sentence], text.starts[sentence] + text.inputs[sentence]
    inputs, targets = [], []
    for reverse in reverses:
        first, step = (end - offset, -1) if reverse else (start + offset, 1)
        positions = np.repeat(first, length) + step * within
        inputs.append(text.words[positions])
        targets.append(text.words[positions + step])

    def laid_out(values: np.ndarray) -> np.ndarray:
        result = np.zeros(shape, values.dtype)
        result.reshape(-1)[where] = values
        return result

    ids = [text.vocabulary_ids[words] for words in inputs]
    characters, numbers = None, ids
    if text.characters is not None:
        rows, number = _number_distinct(np.concatenate(inputs), len(text.vocabulary_ids))
        characters, numbers = text.characters[rows], np.split(number, len(reverses))
    streams = (
        Stream(laid_out(token_ids), laid_out(words), laid_out(text.vocabulary_ids[next_words]))
        for token_ids, words, next_words in zip(ids, numbers, targets, strict=True)
    )
    mask = laid_out(np.ones(len(where), np.bool_))
    return Batch(tuple(streams), characters, mask)


def sentence_batches(
    text: IndexedText,
    reverses: Sequence[bool],
    max_tokens: int,
    first: int = 0,
    *,
    max_rows: int | None = None,
) -> Iterator[Batch]:
    """Batches with one sentence per row, from column 0, sentences of similar length together.

    Args:
        reverses: whether each stream reads backwards.
        max_tokens: most positions of a batch, including padding; a longer sentence is a batch of
            its own.
        first: number of the text's first sentence.
        max_rows: most rows of a batch; None: no limit.
    """
    order = np.argsort(text.inputs, kind="stable")
    for numbers in _cut(order, text.inputs[order], max_tokens, max_rows or len(order)):
        length = text.inputs[numbers].astype(np.int64)
        zeros = np.zeros_like(length)
        segments = np.stack((np.arange(len(numbers)), zeros, numbers, zeros, length), axis=1)
        shape = (len(numbers), int(length[-1]))
        yield replace(make_batch(text, segments, shape, reverses), sentences=first + numbers)


def _cut(
    order: np.ndarray, lengths: np.ndarray, max_tokens: int, max_rows: int
) -> Iterator[np.ndarray]:
    """Cut sentences sorted by length into runs of at most `max_rows` sentences and `max_tokens`
    positions, including padding."""
    first = 0
    for last, length in enumerate(lengths.tolist()):
        n_rows = last + 1 - first
        if (n_rows * length > max_tokens or n_rows > max_rows) and last > first:
            yield order[first:last]
            first = last
    if len(order) > first:
        yield order[first:]


def _number_distinct(rows: np.ndarray, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Number rows of a table by their first occurrence: the distinct rows, (distinct,), and the
    index in them of each entry of `rows`, (n,) int32.

    The order depends on the text only, not on the table, so that a resumed run, whose table may
    differ, makes bit-identical batches.
    """
    positions = np.arange(len(rows))
    first = np.empty(n_rows, np.int64)
    first[rows[::-1]] = positions[::-1]  # NumPy keeps the last of repeated assignments
    is_first = first[rows] == positions
    numbers = np.cumsum(is_first, dtype=np.int32) - 1
    return rows[is_first], numbers[first[rows]]
