"""Counts of more words than memory holds: sorted runs on the disk, merged when they are read."""

from __future__ import annotations

import heapq
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bilm.files import PathLike

Record = tuple[str, int]
"""A word, which holds no white space, and its count."""

# Files that are merged at once.
_FAN_IN = 64


def by_count(record: Record) -> tuple[int, str]:
    """The order of a vocabulary: falling count, then the word."""
    word, count = record
    return -count, word


class SortedRuns:
    """Records of any number in a folder, to be read in order; counts of a word are added up.

    Each run is a sorted file. 64 runs of a level are merged to one of the next level, so that
    few files are open at once and a record is rewritten few times however many there are.

    Args:
        folder: where the runs go. Whoever made it removes it, and with it what is left of them.
        order: gives the key by which records are sorted; None sorts them by word.
    """

    def __init__(
        self, folder: PathLike, order: Callable[[Record], tuple[int, str]] | None = None
    ) -> None:
        self._folder = os.fspath(folder)
        self._order: Callable[[Record], Any] | None = order
        self._levels: list[list[str]] = []

    def add(self, records: Iterable[Record]) -> None:
        """Write records, which memory holds, as a run."""
        self.adopt(self._write(sorted(records, key=self._order)))

    def adopt(self, run: str) -> None:
        """Take over a run that `collapse` of another object has made."""
        self._push(run, 0)

    def __iter__(self) -> Iterator[Record]:
        """All records in order, each word's counts added up."""
        return self._merged([run for level in self._levels for run in level])

    def collapse(self) -> str:
        """Merge everything into one run; gives its path."""
        runs = [run for level in self._levels for run in level]
        if len(runs) != 1:
            runs = [self._merge(runs)]
        self._levels = [runs]
        return runs[0]

    def _push(self, run: str, level: int) -> None:
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append(run)
        if len(self._levels[level]) == _FAN_IN:
            merged = self._merge(self._levels[level])
            self._levels[level] = []
            self._push(merged, level + 1)

    def _merge(self, runs: list[str]) -> str:
        merged = self._write(self._merged(runs))
        for run in runs:
            os.remove(run)
        return merged

    def _merged(self, runs: list[str]) -> Iterator[Record]:
        return _summed(heapq.merge(*map(_read, runs), key=self._order))

    def _write(self, records: Iterable[Record]) -> str:
        path = os.path.join(self._folder, f"{uuid.uuid4().hex}.run")
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{word}\t{count}\n" for word, count in records)
        return path


def _read(run: str) -> Iterator[Record]:
    with open(run, encoding="utf-8", newline="\n") as file:
        for line in file:
            word, _, count = line.partition("\t")
            yield word, int(count)


def _summed(records: Iterator[Record]) -> Iterator[Record]:
    """Neighbours of one word become one record."""
    first = next(records, None)
    if first is None:
        return
    word, total = first
    for other, count in records:
        if other == word:
            total += count
        else:
            yield word, total
            word, total = other, count
    yield word, total
