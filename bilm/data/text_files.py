"""The files of a corpus as text of any size: which they are, and reading them piece by piece."""

from __future__ import annotations

import codecs
import contextlib
import glob
import gzip
import io
import logging
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, NamedTuple, cast

from bilm.errors import InputError
from bilm.files import PathLike, find_files, open_text, read_lines

logger = logging.getLogger(__name__)

COMPRESSED = (".gz", ".xz")

_BLOCK = 1 << 20
# Less than this is not worth a process of its own.
_LEAST_PART = 4 << 20
_SEPARATORS = (b"\n", b" ", b"\t", b"\r")
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)


class Stage(NamedTuple):
    """How far a job over files has come.

    Attributes:
        doing: the step of the job, such as "counting".
        done: how much of it is done, in `unit`.
        total: how much there is to do; None if that is not known.
        unit: "bytes" (of files as they lie on the disk) or "words".
    """

    doing: str
    done: int
    total: int | None
    unit: str


ShowStage = Callable[[Stage], None]


def quiet(stage: Stage) -> None:
    """Shows nothing: the progress of whoever does not ask for it."""


class Span(NamedTuple):
    """Bytes `start` to `stop` of a file as it lies on the disk; of a compressed file, all."""

    path: str
    start: int
    stop: int


def corpus_files(patterns: PathLike | Iterable[PathLike]) -> list[str]:
    """The files that one or several globs match, sorted by name, each of them once.

    Raises:
        FileNotFoundError: a pattern matches nothing.
        InputError: there is no pattern.
    """
    if isinstance(patterns, str | os.PathLike):
        patterns = [patterns]
    files: dict[str, str] = {}
    for path in sorted({path for pattern in patterns for path in find_files(pattern)}):
        known = files.setdefault(os.path.realpath(path), path)
        if known != path:
            logger.warning("%s is the same file as %s: it is read once", path, known)
    if not files:
        raise InputError("No file is named.")
    return list(files.values())


def on_disk(files: Iterable[PathLike]) -> int:
    """The bytes of files as they lie on the disk."""
    return sum(map(os.path.getsize, files))


@contextlib.contextmanager
def work_folder(home: PathLike, prefix: str) -> Iterator[str]:
    """A new folder within `home` for files in between, removed at the end of the block.

    What a killed run has left there under the same `prefix` may be large, so it is told.
    """
    for left in glob.glob(os.path.join(glob.escape(os.fspath(home)), f"{prefix}*")):
        logger.warning("%s is of a run that was cut off, unless one is under way: remove it", left)
    with tempfile.TemporaryDirectory(dir=home, prefix=prefix) as folder:
        yield folder


@contextlib.contextmanager
def _reading(path: str) -> Iterator[io.TextIOWrapper]:
    """Open a text file; what is wrong with its text is told as `read_lines` tells it."""
    try:
        with open_text(path) as text:
            yield text
    except (UnicodeDecodeError, *_DAMAGED):
        for _ in read_lines(path):
            pass
        raise


def _bytes_read(text: io.TextIOWrapper) -> int:
    """How far an open file has been read on the disk: also of a compressed one."""
    return os.lseek(text.fileno(), 0, os.SEEK_CUR)


def read_all_lines(files: Sequence[str], doing: str, progress: ShowStage) -> Iterator[str]:
    """The lines of files one after the other, each with a newline at its end.

    Args:
        doing: what they are read for, as progress calls it.
        progress: is told now and then how many bytes on the disk have been read.

    Raises:
        InputError: a file is not UTF-8 (file and line), or its compressed data is damaged.
    """
    before, total = 0, on_disk(files)
    for path in files:
        with _reading(path) as text:
            for number, line in enumerate(text):
                if number % 4096 == 0:
                    progress(Stage(doing, before + _bytes_read(text), total, "bytes"))
                yield line if line.endswith("\n") else f"{line}\n"
        before += os.path.getsize(path)
    progress(Stage(doing, total, total, "bytes"))


def read_blocks(span: Span, report: Callable[[int], None]) -> Iterator[str]:
    """The text of a span in blocks of about a megabyte, none of which ends within a word.

    So a file of one line that goes on for gigabytes needs no more memory than any other.

    Args:
        report: is told after each block how many bytes on the disk were read for it.

    Raises:
        InputError: the text is not UTF-8 (file and line), or its compressed data is damaged.
    """
    whole = span.path.endswith(COMPRESSED)
    with _reading(span.path) as text:
        stream = cast(IO[bytes], text.buffer)
        if not whole:
            stream.seek(span.start)
        left, place, rest = span.stop - span.start, span.start, b""
        while data := stream.read(_BLOCK if whole else min(_BLOCK, left)):
            left -= len(data)
            if place == 0:
                data = data.removeprefix(codecs.BOM_UTF8)
            data = rest + data
            end = 1 + max(map(data.rfind, _SEPARATORS))
            rest = data[end:]
            yield data[:end].decode("utf-8")
            before, place = place, min(_bytes_read(text), span.stop)
            report(place - before)
        yield rest.decode("utf-8")


def cut_into_parts(files: Sequence[str], n_parts: int) -> list[list[Span]]:
    """Divide files among about `n_parts` parts of like size on the disk.

    Plain files are cut between words; compressed ones cannot be cut. A small corpus has fewer
    parts, for each has some megabytes. Files without a byte are in none.
    """
    share = max(_LEAST_PART, -(-on_disk(files) // n_parts))
    parts: list[list[Span]] = [[]]
    room = share
    for path in files:
        start, size = 0, os.path.getsize(path)
        while start < size:
            whole = path.endswith(COMPRESSED) or size - start <= room
            stop = size if whole else _behind_separator(path, start + room)
            parts[-1].append(Span(path, start, stop))
            room -= stop - start
            start = stop
            if room <= 0:
                parts.append([])
                room = share
    return [part for part in parts if part]


def _behind_separator(path: str, offset: int) -> int:
    """The first place from `offset` on that stands behind white space, or the file's end."""
    with open(path, "rb") as file:
        file.seek(offset - 1)
        place = offset - 1
        while data := file.read(1 << 16):
            found = [end for end in map(data.find, _SEPARATORS) if end >= 0]
            if found:
                return place + min(found) + 1
            place += len(data)
        return place
