"""Text files in ranges of lines, which can be read independently on any machine with the files.

The lines are the same as from `bilm.files.reading.read_lines`; a line's id is its 0-based number
over all files, in the given order. Ranges have about the same number of bytes; their lines and ids
depend on the files only. A range of a plain file is read directly; for a compressed file, the text
before the range is decompressed as well.

If lines do not matter, as for counting words, `cut_into_parts` cuts files between words without
reading them, and `read_blocks` reads one of its spans.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from bilm.core.errors import InputError
from bilm.files.reading import (
    COMPRESSED,
    LONGEST_LINE,
    PathLike,
    ShowStage,
    Stage,
    bytes_read,
    open_bytes,
    quiet,
    reading_text,
)

# Small enough that a small corpus occupies several workers, and that recomputing a lost range takes
# minutes.
_SMALLEST, _LARGEST, _N_RANGES = 2**18, 2**21, 256
_BLOCK = 1 << 20  # bytes that are read at a time
_SEPARATORS = (b"\n", b" ", b"\t", b"\r")


class FileLines(NamedTuple):
    """Consecutive lines of a file; all numbers are 0-based."""

    path: str
    start: int  # bytes of the file's text, decompressed
    stop: int
    checksum: int  # CRC-32 of these bytes
    n_lines: int
    line: int  # number of the first line in its file
    id: int  # number of the first line over all files


class TextRange(NamedTuple):
    """Lines with consecutive ids, of one file or several."""

    number: int
    parts: tuple[FileLines, ...]

    @property
    def first_id(self) -> int:
        """The id of the first line."""
        return self.parts[0].id if self.parts else 0

    @property
    def n_lines(self) -> int:
        """The number of lines."""
        return sum(part.n_lines for part in self.parts)

    @property
    def n_bytes(self) -> int:
        """Bytes of text."""
        return sum(part.stop - part.start for part in self.parts)

    def place(self, row: int) -> tuple[str, int]:
        """The file of a line of this range, and its number there, both 0-based."""
        for part in self.parts:
            if row < part.n_lines:
                return part.path, part.line + row
            row -= part.n_lines
        raise IndexError(row)

    def __str__(self) -> str:
        """The lines, for messages, in which they are 1-based."""
        return "; ".join(
            f"{part.path}, lines {part.line + 1:,} to {part.line + part.n_lines:,}"
            for part in self.parts
        )


def find_ranges(
    files: Sequence[PathLike], range_bytes: int | None = None, show: ShowStage = quiet
) -> list[TextRange]:
    """Read text files once, and divide them into ranges of about `range_bytes` (None: chosen by the
    size of the files). Empty files have one range without lines."""
    paths = [os.fspath(path) for path in files]
    total, done = sum(map(os.path.getsize, paths)), 0
    if range_bytes is None:
        range_bytes = min(max(total // _N_RANGES, _SMALLEST), _LARGEST)
    groups: list[list[FileLines]] = []
    size = range_bytes
    n_lines = 0
    show(Stage("reading", 0, total))
    for path in paths:
        for part in _cut(path, range_bytes, n_lines):
            # Small files share a range.
            if size + part.stop - part.start > range_bytes:
                groups.append([])
                size = 0
            groups[-1].append(part)
            size += part.stop - part.start
            n_lines = part.id + part.n_lines
            show(Stage("reading", min(done + part.stop, total), total))
        done += os.path.getsize(path)
    return [TextRange(k, tuple(group)) for k, group in enumerate(groups)] or [TextRange(0, ())]


def _cut(path: str, n_bytes: int, first_id: int) -> Iterator[FileLines]:
    """A file in pieces of about `n_bytes`, read and checked."""
    start = line = 0
    with reading_text(path) as file:
        while content := file.read(n_bytes):
            if not content.endswith(b"\n"):
                content += file.readline(LONGEST_LINE + 1)
            if len(content) > n_bytes + LONGEST_LINE:
                raise InputError(
                    f"{path}: a line must have at most {LONGEST_LINE:,} bytes; one after line "
                    f"{line + content.count(10)} has more."
                )
            stop, n = start + len(content), _n_lines(content, start)
            _decoded(content, start)
            yield FileLines(path, start, stop, zlib.crc32(content), n, line, first_id + line)
            start, line = stop, line + n


def _decoded(content: bytes, start: int) -> str:
    """Text of a file from the byte `start` on, without a byte order mark."""
    return content.decode("utf-8" if start else "utf-8-sig")


def _n_lines(content: bytes, start: int) -> int:
    if start == 0:
        content = content.removeprefix(codecs.BOM_UTF8)
    return content.count(b"\n") + (content != b"" and not content.endswith(b"\n"))


class RangeReader:
    """Reads the lines of ranges; `folder` is the folder of files with relative names.

    The last file stays open, so that consecutive ranges of a compressed file are decompressed only
    once.
    """

    def __init__(self, folder: PathLike = "") -> None:
        self._folder = folder
        self._path: str | None = None
        self._file: IO[bytes] | None = None

    def lines(self, text_range: TextRange) -> list[str]:
        """The lines, without their ends."""
        return [line for part in text_range.parts for line in self._lines(part)]

    def _lines(self, part: FileLines) -> list[str]:
        content = None
        # A network disk may return the data when the file is opened again.
        for _ in range(2):
            with contextlib.suppress(EOFError, zlib.error):
                content = self._read(part)
            if content is not None and zlib.crc32(content) == part.checksum:
                text = _decoded(content, part.start)
                lines = text.removesuffix("\n").split("\n") if part.n_lines else []
                return [line.rstrip("\r") for line in lines]
            self.close()
        raise InputError(
            f"{part.path} must not change during the job, but its text has changed in the bytes "
            f"{part.start:,} to {part.stop:,}."
        )

    def _read(self, part: FileLines) -> bytes:
        if self._file is None or part.path != self._path:
            self.close()
            self._file = open_bytes(os.path.join(self._folder, part.path))
            self._path = part.path
        self._file.seek(part.start)
        return self._file.read(part.stop - part.start)

    def close(self) -> None:
        """Close the open file."""
        if self._file is not None:
            self._file.close()
        self._file = self._path = None

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Text without lines


class Span(NamedTuple):
    """Bytes `start` to `stop` of a file on the disk; all bytes of a compressed file."""

    path: str
    start: int
    stop: int


def read_blocks(span: Span, block: int = _BLOCK) -> Iterator[tuple[str, int]]:
    """The text of a span in blocks of about a megabyte that end between words, with the number of
    bytes read on the disk for each. Memory does not depend on the length of lines."""
    is_whole = span.path.endswith(COMPRESSED)
    with reading_text(span.path) as stream:
        if not is_whole:
            stream.seek(span.start)
        left, position, rest = span.stop - span.start, span.start, b""
        while data := stream.read(block if is_whole else min(block, left)):
            left -= len(data)
            if position == 0:
                data = data.removeprefix(codecs.BOM_UTF8)
            data = rest + data
            end = 1 + max(map(data.rfind, _SEPARATORS))
            rest = data[end:]
            if len(rest) > LONGEST_LINE:
                raise InputError(f"{span.path}: a word must have at most {LONGEST_LINE:,} bytes.")
            before, position = position, min(bytes_read(stream), span.stop)
            yield data[:end].decode("utf-8"), position - before
        yield rest.decode("utf-8"), span.stop - position


def cut_into_parts(files: Sequence[str], part_bytes: int) -> list[list[Span]]:
    """Divide files among parts of about `part_bytes` on the disk.

    Plain files are cut between words; compressed files are not cut, and empty files left out.
    """
    parts: list[list[Span]] = []
    room = 0
    for path in files:
        start, size = 0, os.path.getsize(path)
        while start < size:
            if room <= 0:
                parts.append([])
                room = part_bytes
            is_whole = path.endswith(COMPRESSED) or size - start <= room
            stop = size if is_whole else _behind_separator(path, start + room)
            parts[-1].append(Span(path, start, stop))
            room -= stop - start
            start = stop
    return parts


def _behind_separator(path: str, offset: int) -> int:
    """The first position >= `offset` after white space, or the file's end."""
    with open(path, "rb") as file:
        position = file.seek(offset - 1)
        for data in iter(functools.partial(file.read, 1 << 16), b""):
            found = [end for end in map(data.find, _SEPARATORS) if end >= 0]
            if found:
                return position + min(found) + 1
            position += len(data)
        return position
