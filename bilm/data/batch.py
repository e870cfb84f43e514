"""Batches: how sentences are read and fill rows, as in the original program.

A row is filled with complete sentences and cut after `num_steps` inputs; the rest of its last
sentence starts the same row of the next batch. Rows are filled one after the other.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bilm.core.errors import integer, require
from bilm.core.options import MOST_ROWS
from bilm.data.corpus import (
    Corpus,
    IndexedText,
    IteratorCorpus,
    IteratorState,
    RowPosition,
    SentenceIds,
)

_KEYS = ("token_ids", "tokens_characters", "next_token_id")


class Stream(NamedTuple):
    """One direction of a batch: (B, T) int32; 0 where the batch's mask is False."""

    token_ids: np.ndarray  # the vocabulary id of each input; `<UNK>` outside the vocabulary
    words: np.ndarray  # its row of `Batch.characters`; `token_ids` if there are no characters
    next_token_id: np.ndarray  # the target: the vocabulary id of the sentence's next token


@dataclass(frozen=True, eq=False)
class Batch(Mapping[str, "np.ndarray | None"]):
    """B rows of T inputs, with the characters of each distinct word once.

    As a mapping it is a batch of the original program, whose arrays are created on access:
    `token_ids` and `next_token_id` (B, T) int32; `tokens_characters` (B, T, max_word_length) int32,
    or None without characters; for the second stream the same names with the suffix `_reverse`.

    Attributes:
        streams: one for `LMDataset`, (forward, reverse) for `BidirectionalLMDataset`, of the same
            sentences.
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


class Unfinished(NamedTuple):
    """Where a row stopped: in a sentence, after `offset` inputs."""

    sentence: int
    offset: int


class SentenceReader(Iterator[SentenceIds]):
    """Iterates over sentences as ids; `_get_batch` fills rows with them.

    With `reverse`, sentences run from `</S>` to `<S>`. `text` holds unfinished and unread sentences
    of earlier shards, then all sentences of one shard; sentences are numbered by index in `text`.
    """

    def __init__(self, source: Corpus | IteratorCorpus, *, reverse: bool = False) -> None:
        self.source = source
        self.reverse = reverse
        self.text = IndexedText.from_ids([], source.max_word_length)
        self.drawn = 0  # number of sentences drawn, the index of the next one
        self.rows: list[Unfinished | None] = []  # where each row stopped; None: at a sentence's end
        self._shard = -1  # number of the shard in `text`
        self._origins: list[tuple[int, int]] = []  # shard and number of earlier shards' sentences
        self._beginning: IteratorState | None = None
        self._digests: tuple[str | None, ...] = ()  # of the files read so far

    def __next__(self) -> SentenceIds:
        """The next sentence: int32 (n,) and int32 (n, max_word_length)."""
        while self.drawn == len(self.text):
            if not self.load_more():
                raise StopIteration
        ids, characters = self.text.sentence_ids(self.drawn)
        self.drawn += 1
        step = -1 if self.reverse else 1
        return ids[::step], None if characters is None else characters[::step].astype(np.int32)

    def begin(self, batch_size: int, num_steps: int, state: IteratorState | None) -> None:
        """Prepare for batches of this shape, starting after `state`."""
        self.rows = [None] * batch_size
        if isinstance(self.source, Corpus):
            self._beginning = self.source.beginning(batch_size, num_steps)
            if state is not None:
                self._digests = state.digests
                self._go_to(state)

    def fill(self, num_steps: int) -> tuple[np.ndarray, list[Unfinished | None], int]:
        """Fill the rows of a batch, as far as the sentences in memory suffice.

        Returns:
            Segments, row by row from left to right, and `rows` and `drawn` after the batch. A
            segment is consecutive inputs of one sentence: row, first column, sentence, number of
            the first input in the sentence, and number of inputs; (segments, 5) int64.
        """
        n_inputs, drawn = self.text.n_inputs.data, self.drawn
        segments: list[tuple[int, ...]] = []
        after: list[Unfinished | None] = []
        for row, current in enumerate(self.rows):
            column = 0
            while column < num_steps and (current is not None or drawn < len(n_inputs)):
                if current is None:
                    current = Unfinished(drawn, 0)
                    drawn += 1
                sentence, offset = current
                n_remaining = n_inputs[sentence] - offset
                length = min(n_remaining, num_steps - column)
                segments.append((row, column, sentence, offset, length))
                column += length
                current = Unfinished(sentence, offset + length) if n_remaining > length else None
            after.append(current)
        return np.array(segments, np.int64).reshape(-1, 5), after, drawn

    def load_more(self) -> bool:
        """Load the next shard into `text`; False at the end of the corpus."""
        return self._load(self._shard + 1, range(self.drawn, len(self.text)))

    def state(self) -> IteratorState | None:
        """The position in the corpus; None if the source is not a `Corpus`."""
        if self._beginning is None:
            return None
        shard, sentence = self._origin(self.drawn)
        rows = (row and RowPosition(*self._origin(row.sentence), row.offset) for row in self.rows)
        return self._beginning._replace(
            shard=shard, sentence=sentence, rows=tuple(rows), digests=self._digests
        )

    def _origin(self, number: int) -> tuple[int, int]:
        """The shard of a sentence, and its number in the shard."""
        if number < len(self._origins):
            return self._origins[number]
        return self._shard, number - len(self._origins)

    def _load(self, shard: int, unread: Sequence[int] = ()) -> bool:
        """Load a shard into `text`, after the unfinished and the unread sentences."""
        if not self.source.has(shard):
            return False
        numbers = [*(row.sentence for row in self.rows if row), *unread]
        contents = list(map(self.text.content, numbers))
        self._origins = list(map(self._origin, numbers))
        del self.text  # only one text is in memory
        self.text = self.source.read(shard, contents)
        if isinstance(self.source, Corpus):
            self._digests = self.source.add_digest(shard, self._digests)
        self._shard, self.drawn = shard, len(numbers) - len(unread)
        new_numbers = itertools.count()
        self.rows = [row and row._replace(sentence=next(new_numbers)) for row in self.rows]
        return True

    def _go_to(self, state: IteratorState) -> None:
        """Load the shards of a state: those with unfinished sentences, then the current one."""
        earlier = {row.shard for row in state.rows if row} - {state.shard}
        for shard in (*sorted(earlier), state.shard):
            self._load(shard)
            for number, row in enumerate(state.rows):
                if row and row.shard == shard:
                    self.rows[number] = Unfinished(len(self._origins) + row.sentence, row.offset)
        self.drawn = len(self._origins) + state.sentence


def _get_batch(
    generator: Iterable[SentenceIds],
    batch_size: int,
    num_steps: int,
    max_word_length: int | None,
    *,
    bidirectional: bool = False,
    incomplete: bool = False,
    state: IteratorState | None = None,
) -> Iterator[Batch]:
    """Batches of sentences whose rows continue from one batch to the next.

    Args:
        generator: sentences from `get_sentence` of a data set: (ids, char_ids) with `<S>` and
            `</S>`, integers (n,) and (n, max_word_length); `char_ids` may be None for word input.
            May be read slightly ahead.
        batch_size, num_steps: rows of a batch, and inputs of a row.
        max_word_length: characters per word; None for word input.
        bidirectional: add a second stream, which reads each sentence in reverse.
        incomplete: also yield the last, partly filled batches, which the original left out.
        state: the state of the batch before the first; None: the start of the corpus.

    Yields:
        `Batch`, which includes the original's dict.

    Raises:
        InputError: a size is out of range; a sentence's arrays have wrong shapes, or are not
            integers.
    """
    require(integer(1, MOST_ROWS), batch_size=batch_size, num_steps=num_steps)
    reader = generator
    if not isinstance(reader, SentenceReader) or reader.source.max_word_length != max_word_length:
        chunks = IteratorCorpus(generator, max_word_length, batch_size * num_steps)
        reader = SentenceReader(chunks)
    reverses = (reader.reverse, not reader.reverse)[: 1 + bidirectional]
    reader.begin(batch_size, num_steps, state)
    while True:
        segments, rows, drawn = reader.fill(num_steps)
        is_full = segments[:, -1].sum() == batch_size * num_steps
        # All sentences of a batch must be in one text: fill again after loading more.
        if not is_full and reader.load_more():
            continue
        if not len(segments) or not (is_full or incomplete):
            return
        reader.rows, reader.drawn = rows, drawn
        batch = make_batch(reader.text, segments, (batch_size, num_steps), reverses)
        yield replace(batch, state=reader.state())


def make_batch(
    text: IndexedText, segments: np.ndarray, shape: tuple[int, int], reverses: Sequence[bool]
) -> Batch:
    """The batch (B, T) of segments from `SentenceReader.fill`; `reverses`: whether
    each stream reads backwards."""
    row, column, sentence, offset, length = segments.T
    # For all N inputs, segment after segment: the number within the segment, and the index in the
    # flattened (B, T) arrays; both (N,).
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    where = np.repeat(row * shape[1] + column, length) + within

    start, end = text.starts[sentence], text.starts[sentence] + text.n_inputs[sentence]
    inputs, targets = [], []
    for reverse in reverses:
        first, step = (end - offset, -1) if reverse else (start + offset, 1)
        positions = np.repeat(first, length) + step * within
        inputs.append(text.words[positions])
        targets.append(text.words[positions + step])

    def lay_out(values: np.ndarray) -> np.ndarray:
        result = np.zeros(shape, values.dtype)
        result.reshape(-1)[where] = values
        return result

    ids = [text.vocabulary_ids[words] for words in inputs]
    characters, numbers = None, ids
    if text.characters is not None:
        distinct, numbering = _number_distinct(np.concatenate(inputs), len(text.vocabulary_ids))
        characters, numbers = text.characters[distinct], np.split(numbering, len(reverses))
    streams = (
        Stream(lay_out(token_ids), lay_out(words), lay_out(text.vocabulary_ids[next_words]))
        for token_ids, words, next_words in zip(ids, numbers, targets, strict=True)
    )
    mask = lay_out(np.ones(len(where), np.bool_))
    return Batch(tuple(streams), characters, mask)


def sentence_batches(
    text: IndexedText, reverses: Sequence[bool], max_tokens: int, first: int = 0
) -> Iterator[Batch]:
    """Batches with one sentence per row, sentences of similar length together.

    Args:
        reverses: for each stream, whether it reads backwards.
        max_tokens: most positions of a batch, including padding; a longer sentence is a batch of
            its own.
        first: number of the text's first sentence.
    """
    order = np.argsort(text.n_inputs, kind="stable")
    for numbers in _cut(order, text.n_inputs[order], max_tokens):
        length = text.n_inputs[numbers].astype(np.int64)
        zeros = np.zeros_like(length)
        segments = np.stack((np.arange(len(numbers)), zeros, numbers, zeros, length), axis=1)
        shape = (len(numbers), int(length[-1]))
        yield replace(make_batch(text, segments, shape, reverses), sentences=first + numbers)


def _cut(order: np.ndarray, lengths: np.ndarray, max_tokens: int) -> Iterator[np.ndarray]:
    """Cut sentences sorted by length into runs of at most `max_tokens` positions, including
    padding."""
    first = 0
    for last, length in enumerate(lengths.tolist()):
        if (last + 1 - first) * length > max_tokens and last > first:
            yield order[first:last]
            first = last
    if len(order) > first:
        yield order[first:]


def _number_distinct(rows: np.ndarray, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a table in the order of their first occurrence, (distinct,), and the index in them of
    each entry of `rows`, (n,) int32. Batches thus do not depend on the order of the table."""
    positions = np.arange(len(rows))
    first = np.empty(n_rows, np.int64)
    first[rows[::-1]] = positions[::-1]  # NumPy keeps the last of repeated assignments
    is_first = first[rows] == positions
    numbers = np.cumsum(is_first, dtype=np.int32) - 1
    return rows[is_first], numbers[first[rows]]
