"""Reading a corpus batch by batch: which part of which sentence goes where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bilm.data.corpus import Corpus
from bilm.data.place import Place, RowPlace, Settings
from bilm.data.rows import Held, fill_rows
from bilm.data.shard import Shard
from bilm.errors import InputError


class Carried(NamedTuple):
    """A sentence of an earlier load that is not read to its end."""

    load: int
    sentence: int
    words: list[str]


class Reader:
    """Fills the rows of one batch after the other.

    In memory are the sentences of one load, preceded by those of earlier loads that rows are
    still within. When the sentences do not fill a batch, the next load is read, what is unread is
    carried over to it, and the batch is filled anew: a batch never spans two tables of words.

    Args:
        corpus: what to read.
        batch_size: rows.
        num_steps: inputs of a row.
        place: go on from there; None begins at the beginning.

    Attributes:
        shard: holds the sentences of the batch that `next_segments` gave last.

    Raises:
        InputError: `batch_size` or `num_steps` is below 1; the place is of other settings.
    """

    def __init__(
        self, corpus: Corpus, batch_size: int, num_steps: int, place: Place | None = None
    ) -> None:
        for name, value in (("batch_size", batch_size), ("num_steps", num_steps)):
            if value < 1:
                raise InputError(f"{name} must be 1 or more, not {value}.")
        self._corpus = corpus
        self._settings = Settings(
            corpus=corpus.fingerprint,
            seed=corpus.seed,
            shuffle_on_load=corpus.shuffle,
            test=corpus.one_pass,
            worker=corpus.worker[0],
            n_workers=corpus.worker[1],
            batch_size=batch_size,
            num_steps=num_steps,
        )
        self._load: int  # number of the load in `shard`
        self._carried: Sequence[Carried]  # the first sentences of `shard`, of earlier loads
        self._next: int  # the sentence of `shard` that is drawn next
        self._held: list[Held | None]  # for each row the sentence of `shard` that it is within
        if place is None:
            place = Place(self._settings, load=0, sentence=0, rows=(None,) * batch_size)
        place.require(self._settings)
        self._go_to(place)

    def next_segments(self) -> np.ndarray | None:
        """The segments of the next batch: (segments, 5) int64, the fields of `Segment`.

        `sentence` is a number of `shard`. The batch is full unless the corpus has ended; None
        after its end.
        """
        full = self._settings.batch_size * self._settings.num_steps
        while True:
            unread = enumerate(self.shard.inputs[self._next :].data, self._next)
            filled, held = fill_rows(self._held, unread, self._settings.num_steps)
            segments = np.array(filled, np.int64).reshape(-1, 5)
            if segments[:, 4].sum() == full or not self._corpus.has(self._load + 1):
                break
            self._load_next()
        if not filled:
            return None
        self._held = held
        self._next = max(self._next, int(segments[:, 2].max()) + 1)
        return segments

    def place(self) -> Place:
        """Where the corpus goes on after the batch that `next_segments` gave last."""
        rows = tuple(
            held and RowPlace(*self._origin(held.sentence), held.offset) for held in self._held
        )
        return Place(self._settings, *self._origin(self._next), rows)

    def _origin(self, number: int) -> tuple[int, int]:
        """Load and number within it of a sentence of `shard`."""
        if number < len(self._carried):
            return self._carried[number].load, self._carried[number].sentence
        return self._load, number - len(self._carried)

    def _load_next(self) -> None:
        """Read the next load; the sentences that rows are within and the unread ones precede it."""
        within = [held.sentence for held in self._held if held is not None]
        unread = range(self._next, len(self.shard))
        carried = [
            Carried(*self._origin(number), self.shard.sentence_words(number))
            for number in (*within, *unread)
        ]
        numbers = iter(range(len(within)))
        self._held = [held and held._replace(sentence=next(numbers)) for held in self._held]
        self._next = len(within)
        del self.shard  # before the next one comes, so that one at a time is in memory
        self._read(self._load + 1, carried)

    def _read(self, load: int, carried: Sequence[Carried]) -> None:
        self._load = load
        self._carried = carried
        self.shard = self._corpus.read(load, [sentence.words for sentence in carried])

    def _go_to(self, place: Place) -> None:
        """Read what `place` needs: the earlier loads that its rows are within, then its own."""
        try:
            carried = []
            for load in sorted({row.load for row in place.rows if row} - {place.load}):
                carried += _carry(self._corpus.read(load), load, place.rows)
            self._read(place.load, carried)
            earlier = {sentence[:2]: number for number, sentence in enumerate(carried)}
            self._next = len(carried) + place.sentence
            if self._next > len(self.shard):
                raise IndexError(place.sentence)
            self._held = [row and self._hold(row, earlier) for row in place.rows]
        except IndexError:
            raise InputError(
                "cannot go on from this place: the corpus has fewer sentences or words there."
            ) from None

    def _hold(self, row: RowPlace, earlier: dict[tuple[int, int], int]) -> Held:
        number = earlier.get((row.load, row.sentence), len(earlier) + row.sentence)
        left = int(self.shard.inputs[number]) - row.offset
        if left < 1:
            raise IndexError(row.offset)
        return Held(number, row.offset, left)


def _carry(shard: Shard, load: int, rows: Iterable[RowPlace | None]) -> list[Carried]:
    """The sentences of a load that rows are within."""
    return [
        Carried(load, row.sentence, shard.sentence_words(row.sentence))
        for row in rows
        if row and row.load == load
    ]
