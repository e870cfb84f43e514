"""Text files in ranges of lines, which can be read independently on any machine with the files.

A line's id is its 0-based number over all files, in the given order. Ranges depend on the files
only. For a range of a compressed file, the text before it is decompressed as well.

If the numbers of lines do not matter, as for counting words, `cut` divides files without reading
them, and `read_span` reads one of the spans.
"""

from __future__ import annotations

import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple

from bilm.core.errors import InputError
from bilm.files.reading import (
    LONGEST_LINE,
    PLAIN,
    PathLike,
    ShowStage,
    Stage,
    decompressed,
    open_text,
    quiet,
    read_lines,
    require_file,
    size_of,
)

# Small enough that a small corpus occupies several workers, and that recomputing a lost range takes
# minutes.
_SMALLEST, _LARGEST, _N_RANGES = 2**18, 2**21, 256


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
        return self.parts[0].id if self.parts else 0

    @property
    def n_lines(self) -> int:
        return sum(part.n_lines for part in self.parts)

    @property
    def n_bytes(self) -> int:
        return sum(part.stop - part.start for part in self.parts)

    def file_and_line(self, row: int) -> tuple[str, int]:
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
    """Divide text files into ranges of about `range_bytes`; None: by the size of the files. Empty
    files have one range without lines."""
    paths = [os.fspath(path) for path in files]
    total, done = size_of(paths), 0
    if range_bytes is None:
        range_bytes = min(max(total // _N_RANGES, _SMALLEST), _LARGEST)
    groups: list[list[FileLines]] = []
    size = range_bytes
    n_lines = 0
    show(Stage("reading", 0, total))
    for path in paths:
        for part in _parts(path, range_bytes, n_lines):
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


def _parts(path: str, n_bytes: int, first_id: int) -> Iterator[FileLines]:
    """A file in parts of about `n_bytes`, read and checked."""
    start = line = 0
    for _ in read_lines(path):  # raises the errors that name the line
        pass
    with open_bytes(path) as stream:
        for content in _blocks(stream, path, n_bytes):
            text, stop, checksum = _text(content, start), start + len(content), zlib.crc32(content)
            n_lines = text.count("\n") + (text[-1:] not in ("", "\n"))
            yield FileLines(path, start, stop, checksum, n_lines, line, first_id + line)
            start, line = stop, line + n_lines


def _blocks(stream: IO[bytes], path: str, n_bytes: int, stop: int = sys.maxsize) -> Iterator[bytes]:
    """Complete lines in blocks of about `n_bytes`, as far as the line with the byte `stop - 1`."""
    while content := stream.read(max(0, min(n_bytes, stop - stream.tell()))):
        if not content.endswith(b"\n"):
            rest = stream.readline(LONGEST_LINE + 1)
            if len(rest) > LONGEST_LINE:
                for _ in read_lines(path):  # raises the error that names the line
                    pass
            content += rest
        yield content


def _text(content: bytes, start: int) -> str:
    """Text of a file from the byte `start` on, without a byte order mark."""
    return content.decode("utf-8" if start else "utf-8-sig")


def open_bytes(path: PathLike) -> IO[bytes]:
    stream = open(require_file(path, "text file"), "rb")  # noqa: SIM115
    return io.BufferedReader(decompressed(stream))


class RangeReader:
    """Reads the lines of ranges; relative file names are resolved against `folder`.

    The last file stays open, so that consecutive ranges of a compressed file are decompressed only
    once.
    """

    def __init__(self, folder: PathLike = "") -> None:
        self._folder = folder
        self._path: str | None = None
        self._file: IO[bytes] | None = None

    def lines(self, text_range: TextRange) -> list[str]:
        return [line for part in text_range.parts for line in self._lines(part)]

    def _lines(self, part: FileLines) -> list[str]:
        try:
            content = self._read(part)
        except (EOFError, zlib.error):
            content = b""
        if zlib.crc32(content) != part.checksum:
            raise InputError(
                f"{part.path} must not change during the job, but its text has changed in the "
                f"bytes {part.start:,} to {part.stop:,}."
            )
        lines = _text(content, part.start).removesuffix("\n").split("\n")
        return [line.rstrip("\r") for line in lines[: part.n_lines]]

    def _read(self, part: FileLines) -> bytes:
        if self._file is None or part.path != self._path:
            self.close()
            self._file = open_bytes(os.path.join(self._folder, part.path))
            self._path = part.path
        self._file.seek(part.start)
        return self._file.read(part.stop - part.start)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


# Text without numbers of lines


class Span(NamedTuple):
    """The lines that begin in the bytes `start` to `stop` of a file on the disk; all lines of a
    compressed file."""

    path: str
    start: int
    stop: int


def cut(files: Sequence[str], span_bytes: int) -> list[Span]:
    """Divide files into spans of about `span_bytes`; only plain, uncompressed text is divided."""
    spans = []
    for path in files:
        size = os.path.getsize(path)
        with open_text(path) as text:
            divisible = text.kind == PLAIN and not text.is_compressed
        step = span_bytes if divisible else max(1, size)
        spans += [Span(path, start, min(start + step, size)) for start in range(0, size, step)]
    return spans


def read_span(span: Span, block: int = 1 << 20) -> Iterator[tuple[str, int]]:
    """The sentences of a span in blocks, with the number of bytes read on the disk so far."""
    blocks: Iterable[str]
    with open_text(span.path) as text:
        if text.kind != PLAIN:
            blocks = (f"{sentence}\n" for sentence in text.sentences())
        elif text.is_compressed:
            blocks = text.blocks()
        else:
            blocks = text.span(span.start, span.stop, block)
        for content in blocks:
            yield content, min(text.bytes_read(), span.stop) - span.start
