"""The sentences that fill the rows of batches, read one after the other, and where reading is."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bilm.data.corpus import Corpus, IndexedText, SentenceChunks, SentenceIds
from bilm.errors import InputError


class RowPosition(NamedTuple):
    """The sentence that a row is within: `offset` of its inputs have been given."""

    shard: int
    sentence: int
    offset: int


class IteratorState(NamedTuple):
    """How far a corpus has been read after a batch, as a value that can be saved.

    Attributes:
        corpus: fingerprint of the shards' names and sizes.
        seed, shuffle_on_load, test: the data set's arguments.
        worker, n_workers: this worker's index, and how many share the corpus.
        batch_size, num_steps: rows of a batch, and inputs of a row.
        shard: number of the shard being read, counted over all epochs.
        sentence: number, in that shard's order, of the sentence that is drawn next.
        rows: for each row of the batch the sentence that it continues, which may be of an earlier
            shard; None if it takes a new one.
    """

    corpus: int
    seed: int
    shuffle_on_load: bool
    test: bool
    worker: int
    n_workers: int
    batch_size: int
    num_steps: int
    shard: int
    sentence: int
    rows: tuple[RowPosition | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """The state in lists and numbers, fit for JSON."""
        return {**self._asdict(), "rows": [row and list(row) for row in self.rows]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IteratorState:
        """A state from what `to_dict` gave, now or in an earlier version.

        Raises:
            InputError: it is not such a dict.
        """
        try:
            if "shard" not in values:
                values = {**values, "shard": values["load"]}
            flags = ("shuffle_on_load", "test")
            checked = {
                name: _value(values[name], name in flags) for name in cls._fields if name != "rows"
            }
            rows = tuple(
                None if row is None else RowPosition(*map(_value, row)) for row in values["rows"]
            )
            if len(rows) != checked["batch_size"]:
                raise ValueError(f"{len(rows)} rows of {checked['batch_size']}")
            return cls(**checked, rows=rows)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not the state of an iteration over a corpus: {error!r}.") from error

    def with_batches(self, batch_size: int, num_steps: int) -> IteratorState:
        """For batches of another shape: they begin with the sentence that is drawn next.

        What is left of the rows' unfinished sentences is skipped.
        """
        return self._replace(batch_size=batch_size, num_steps=num_steps, rows=(None,) * batch_size)

    def with_worker(self, worker: int, n_workers: int) -> IteratorState:
        """For one of another number of workers: at the beginning of the shard being read.

        Their shares of a shard are others, so that it is read anew.
        """
        rows = (None,) * self.batch_size
        return self._replace(worker=worker, n_workers=n_workers, sentence=0, rows=rows)

    def require_like(self, beginning: IteratorState) -> None:
        """Refuse to resume under other settings, with which other batches would follow.

        Args:
            beginning: the state in which the data set begins.

        Raises:
            InputError: names each setting that differs, with both values.
        """
        changes = [
            "the corpus has other files or sizes"
            if name == "corpus"
            else f"{name} was {old} and is now {new}"
            for name, old, new in zip(self._fields[:-3], self, beginning, strict=False)
            if old != new
        ]
        if changes:
            raise InputError(f"cannot resume reading the corpus: {'; '.join(changes)}.")


def _value(value: Any, is_flag: bool = False) -> Any:
    """A value of a state, once it is known to be a whole number from 0, or true or false."""
    if type(value) is not (bool if is_flag else int) or value < 0:
        raise TypeError(f"{value!r} is not {'true or false' if is_flag else 'a number from 0'}")
    return value


class Held(NamedTuple):
    """A sentence that a row is within: `offset` of its inputs are given, `left` are not."""

    sentence: int
    offset: int
    left: int


class _Carried(NamedTuple):
    """A sentence of an earlier shard that is not read to its end."""

    shard: int
    sentence: int
    content: list[str] | SentenceIds


class SentenceReader(Iterator[SentenceIds]):
    """Sentences one by one as ids, or for `_get_batch` by their numbers in `text`.

    In memory are the sentences of one shard, preceded by those of earlier shards that rows are
    still within, or that no row has taken.

    Args:
        source: what to read.
        reverse: give sentences from `</S>` to `<S>`.

    Attributes:
        text: the sentences in memory.
    """

    def __init__(self, source: Corpus | SentenceChunks, *, reverse: bool = False) -> None:
        self.source = source
        self.reverse = reverse
        self.text = IndexedText.from_ids([], source.max_word_length)
        self._shard = -1  # number of the shard in `text`
        self._carried: Sequence[_Carried] = ()  # the first sentences of `text`, of earlier shards
        self._next = 0  # the sentence of `text` that is drawn next
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
        """Begin batches with those that followed the batch of this state."""
        self._start = state

    def begin(self, batch_size: int, num_steps: int) -> list[Held | None]:
        """Prepare for batches of this shape; gives what their rows hold at first.

        Raises:
            InputError: the state to resume from is of other settings, or the corpus is shorter.
        """
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
                        "cannot resume reading the corpus: it has fewer sentences or words there."
                    ) from None
        return [None] * batch_size

    def unread(self) -> Iterator[tuple[int, int]]:
        """(number, inputs) of each sentence of `text` that was not drawn yet."""
        return enumerate(self.text.inputs[self._next :].data, self._next)

    def draw(self, last: int) -> None:
        """The sentences up to this number are in a batch."""
        self._next = max(self._next, last + 1)

    def load_more(self, held: Sequence[Held | None]) -> list[Held | None] | None:
        """Bring the next shard into `text`, behind the sentences that rows are within and the
        unread ones.

        Returns:
            What the rows hold, by the new numbers; None if there are no more sentences.
        """
        return self._load(self._shard + 1, held, range(self._next, len(self.text)))

    def state(self, held: Sequence[Held | None]) -> IteratorState | None:
        """How far the corpus is read, given what the rows hold; None if it cannot be saved."""
        if self._beginning is None:
            return None
        shard, sentence = self._origin(self._next)
        rows = tuple(row and RowPosition(*self._origin(row.sentence), row.offset) for row in held)
        return self._beginning._replace(shard=shard, sentence=sentence, rows=rows)

    def _origin(self, number: int) -> tuple[int, int]:
        """Shard and number within it of a sentence of `text`."""
        if number < len(self._carried):
            return self._carried[number][:2]
        return self._shard, number - len(self._carried)

    def _load(
        self, shard: int, held: Sequence[Held | None], unread: Iterable[int] = ()
    ) -> list[Held | None] | None:
        """Bring a shard into `text`, behind what is carried; the rows by the new numbers."""
        if not self.source.has(shard):
            return None
        within = [row.sentence for row in held if row is not None]
        carried = [
            _Carried(*self._origin(number), self.text.content(number))
            for number in (*within, *unread)
        ]
        del self.text  # before the next one comes, so that one at a time is in memory
        self.text = self.source.read(shard, [sentence.content for sentence in carried])
        self._shard, self._carried, self._next = shard, carried, len(within)
        numbers = itertools.count()
        return [row and row._replace(sentence=next(numbers)) for row in held]

    def _go_to(self, state: IteratorState) -> list[Held | None]:
        """Read what a state needs: the earlier shards that rows are within, then its own."""
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
