"""Dealing the sentences of a corpus to bucket files, and making shards of the buckets.

Buckets are small enough to be shuffled in memory. A shard is made of one bucket, or of several if
it is large: sentences that were dealt at random and then shuffled bucket by bucket are shuffled.
"""

from __future__ import annotations

import gzip
import itertools
import lzma
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TypeVar

from bilm.data.text_files import ShowStage, Stage, read_all_lines
from bilm.errors import InputError
from bilm.files import flush_to_disk

COMPRESSIONS = ("gz", "xz")

# Text that is shuffled in memory at once, and text that waits there to be written to buckets.
_BUCKET_BYTES = 64_000_000
_WAITING_CHARACTERS = 16_000_000

Item = TypeVar("Item")
Draw = Callable[[], float]
"""Gives numbers from 0 to below 1."""


@dataclass(frozen=True)
class TextSize:
    """What text files hold: `n_bytes` are those of the sentences as UTF-8, line ends included."""

    n_sentences: int
    n_empty_lines: int
    n_bytes: int


@dataclass(frozen=True)
class Plan:
    """How a part of the corpus is made: its files, and the buckets that make each of them."""

    name: str
    n_sentences: int
    n_files: int
    buckets_per_file: int

    @classmethod
    def of(cls, name: str, n_sentences: int, n_files: int, size: TextSize) -> Plan:
        """With as many buckets as the part's share of the text asks for, none of them empty."""
        bytes_per_file = size.n_bytes * n_sentences // size.n_sentences // n_files
        needed = -(-bytes_per_file // _BUCKET_BYTES)
        return cls(name, n_sentences, n_files, max(1, min(needed, n_sentences // n_files)))

    @property
    def n_buckets(self) -> int:
        """Buckets of all files; the first file is made of the first ones."""
        return self.n_files * self.buckets_per_file


def measure(files: Sequence[str], progress: ShowStage) -> TextSize:
    """Read the text once; whatever is wrong with it is found here.

    Raises:
        InputError: a file is not UTF-8 (file and line) or damaged, or no file holds a sentence.
    """
    n_lines = n_sentences = n_bytes = 0
    for line in read_all_lines(files, "measuring", progress):
        n_lines += 1
        if not line.isspace():
            n_sentences += 1
            n_bytes += len(line.encode("utf-8"))
    if not n_sentences:
        raise InputError(f"{files[0]}{' ...' if len(files) > 1 else ''}: no sentence.")
    return TextSize(n_sentences, n_lines - n_sentences, n_bytes)


def scatter(
    files: Sequence[str],
    size: TextSize,
    plans: Sequence[Plan],
    folder: str,
    seed: int,
    shuffle: bool,
    progress: ShowStage,
) -> None:
    """Write every sentence to one bucket.

    The held-out sentences, `plans[1]` if there is one, are a random sample of exactly the planned
    size (drawn one by one: Knuth, The Art of Computer Programming, 3.4.2, algorithm S).

    Raises:
        InputError: the text is another one than was measured.
    """
    changed = InputError("The text was changed while it was read.")
    draw = _generator(seed, "sample")
    targets = [map(_bucket_names(plan, folder), _dealt(plan, seed, shuffle)) for plan in plans]
    waiting: dict[str, list[str]] = defaultdict(list)
    n_waiting = 0
    left, wanted = size.n_sentences, sum(plan.n_sentences for plan in plans[1:])
    for line in read_all_lines(files, "scattering", progress):
        if line.isspace():
            continue
        if not left:
            raise changed
        aside = bool(wanted) and draw() * left < wanted
        waiting[next(targets[aside])].append(line)
        left -= 1
        wanted -= aside
        n_waiting += len(line)
        if n_waiting > _WAITING_CHARACTERS:
            _append(waiting)
            n_waiting = 0
    if left:
        raise changed
    _append(waiting)


def _append(waiting: dict[str, list[str]]) -> None:
    """Append lines to their files, which are open one at a time: there may be thousands."""
    for path, lines in waiting.items():
        with open(path, "a", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
    waiting.clear()


def _dealt(plan: Plan, seed: int, shuffle: bool) -> Iterator[int]:
    """The bucket of each sentence of a part: evenly and at random, or one after the other."""
    if not shuffle:
        return (n * plan.n_buckets // plan.n_sentences for n in range(plan.n_sentences))
    draw = _generator(seed, f"{plan.name} buckets")
    rounds = (_shuffled([*range(plan.n_buckets)], draw) for _ in itertools.count())
    return itertools.chain.from_iterable(rounds)


def _bucket_names(plan: Plan, folder: str) -> Callable[[int], str]:
    names = [os.path.join(folder, f"{plan.name}-{number}") for number in range(plan.n_buckets)]
    return names.__getitem__


def write_files(
    plans: Sequence[Plan],
    buckets: str,
    folder: str,
    suffix: str,
    seed: int,
    shuffle: bool,
    progress: ShowStage,
) -> None:
    """Make the files of each part of their buckets, which are removed as they are used up.

    Args:
        buckets, folder: where the buckets are, and where the files go.
        suffix: of the files' names; how they are compressed follows from it.
    """
    total = sum(entry.stat().st_size for entry in os.scandir(buckets))
    done = 0
    for plan in plans:
        draw = _generator(seed, f"{plan.name} order")
        bucket_name = _bucket_names(plan, buckets)
        digits = max(2, len(str(plan.n_files - 1)))
        for number in range(plan.n_files):
            path = os.path.join(folder, f"{plan.name}-{number:0{digits}}{suffix}")
            first = number * plan.buckets_per_file
            with _open_for_writing(path) as file:
                for bucket in map(bucket_name, range(first, first + plan.buckets_per_file)):
                    lines = _read_lines(bucket)
                    file.writelines(_shuffled(lines, draw) if shuffle else lines)
                    done += os.path.getsize(bucket)
                    os.remove(bucket)
                    progress(Stage("writing", done, total, "bytes"))
            flush_to_disk(path)


def _read_lines(path: str) -> list[bytes]:
    with open(path, "rb") as file:
        return file.readlines()


def _open_for_writing(path: str) -> IO[bytes]:
    if path.endswith(".gz"):
        # Without the time of day the same text gives the same bytes.
        return gzip.GzipFile(path, "wb", mtime=0)  # type: ignore[return-value]
    if path.endswith(".xz"):
        return lzma.open(path, "wb")
    return open(path, "wb")


def _generator(seed: int, purpose: str) -> Draw:
    """Numbers that depend on a seed and on what they are for.

    Of the standard library's generator only `random()` is promised to stay the same in every
    version; NumPy's generators make no such promise.
    """
    return random.Random(f"{seed} {purpose}").random


def _shuffled(items: list[Item], draw: Draw) -> list[Item]:
    """`items`, shuffled in place."""
    for end in range(len(items), 1, -1):
        chosen = int(draw() * end)
        items[end - 1], items[chosen] = items[chosen], items[end - 1]
    return items
