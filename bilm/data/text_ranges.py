"""Text files in parts that can be read apart from each other, on any machine that sees the files.

The lines are those of `bilm.files.reading.read_lines`, and a line's id is its number
over all files, in
the order in which they are named. A part has some bytes of text, so that which lines are in it, and
which ids they have, depends on the files alone: not on who reads it, or how many do.

A plain file is cut after a line feed at or after some number of bytes, and can be read from there.
A compressed one is cut likewise, as text; who wants a part of it decompresses what lies before.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from bilm.core.errors import InputError
from bilm.files.reading import (
    COMPRESSED,
    PathLike,
    ShowStage,
    Stage,
    open_bytes,
    quiet,
    reading_text,
)

MapFunction = Callable[[Callable[["TextRange"], list["Piece"]], Sequence["TextRange"]], Any]
"""As `map`: calls a function for each item and gives the results in the order of the items."""

# Of a part: much for small corpora to have a part for each of some workers, and little enough that
# a part which has to be computed again is minutes and not hours.
_SMALLEST_PART, _LARGEST_PART, _PARTS = 2**18, 2**21, 256
# Of a plain file that one call looks through.
_RANGE_BYTES = 2**28
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TextRange(NamedTuple):
    """Where to look for lines: those that begin in the bytes from `start` to `stop` of a file's
    text, cut into pieces of about `piece_bytes`. `stop` is None for the file's end."""

    path: str
    start: int
    stop: int | None
    piece_bytes: int


class Piece(NamedTuple):
    """Some lines of a file, one after the other."""

    path: str
    start: int  # bytes of the file's text, decompressed
    stop: int
    checksum: int  # CRC-32 of these bytes
    n_lines: int
    line: int = 0  # number of the first line in its file, from 0
    id: int = 0  # number of the first line over all files, from 0


class Part(NamedTuple):
    """Lines whose ids follow each other, of one file or several."""

    number: int
    pieces: tuple[Piece, ...]

    @property
    def first_id(self) -> int:
        """The id of the first line."""
        return self.pieces[0].id if self.pieces else 0

    @property
    def n_lines(self) -> int:
        """How many lines there are."""
        return sum(piece.n_lines for piece in self.pieces)

    @property
    def n_bytes(self) -> int:
        """Bytes of text."""
        return sum(piece.stop - piece.start for piece in self.pieces)

    def place(self, row: int) -> tuple[str, int]:
        """The file of a line of this part, and its number there, both from 0."""
        for piece in self.pieces:
            if row < piece.n_lines:
                return piece.path, piece.line + row
            row -= piece.n_lines
        raise IndexError(row)


def find_parts(
    files: Sequence[PathLike],
    part_bytes: int | None = None,
    *,
    map_function: MapFunction = map,
    range_bytes: int = _RANGE_BYTES,
    show: ShowStage = quiet,
) -> list[Part]:
    """Read text files once, and divide them into parts.

    Args:
        files: UTF-8 text, plain or compressed as their endings say.
        part_bytes: of text in a part, about; None: by the size of the files.
        map_function: as `map`, for instance one that works on several machines.
        range_bytes: of a plain file that one call of it looks through.
        show: is called with how far it has come.

    Returns:
        the parts by their numbers, at least one; the first has no lines if there are none.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: a line is not UTF-8 (named by file and number), or a file is damaged.
    """
    paths = [os.fspath(path) for path in files]
    sizes = [os.path.getsize(path) for path in paths]
    if part_bytes is None:
        part_bytes = min(max(sum(sizes) // _PARTS, _SMALLEST_PART), _LARGEST_PART)
    ranges = [
        text_range
        for path, size in zip(paths, sizes, strict=True)
        for text_range in _ranges(path, size, range_bytes, part_bytes)
    ]
    total, done = sum(sizes), 0
    show(Stage("reading", 0, total))
    found: list[Piece] = []
    for text_range, pieces in zip(ranges, map_function(find_pieces, ranges), strict=True):
        found += pieces
        if text_range.stop is None:
            done += os.path.getsize(text_range.path) - text_range.start
        else:
            done += text_range.stop - text_range.start
        show(Stage("reading", min(done, total), total))
    return _parts(list(_numbered(found)), part_bytes)


def _ranges(path: str, size: int, range_bytes: int, piece_bytes: int) -> Iterator[TextRange]:
    if path.endswith(COMPRESSED):
        size = 0
    starts = range(0, max(size, 1), range_bytes)
    for start, stop in itertools.zip_longest(starts, starts[1:]):
        yield TextRange(path, start, stop, piece_bytes)


def find_pieces(text_range: TextRange) -> list[Piece]:
    """The pieces of a range, read and checked; they end where the line ends that the range ends in.

    Raises:
        FileNotFoundError, InputError: as `find_parts`.
    """
    path, start, stop, piece_bytes = text_range
    pieces = []
    with reading_text(path) as file:
        if start:
            # The line that the range begins in is of the range before, unless it begins there.
            file.seek(start - 1)
            file.readline()
            start = file.tell()
        while stop is None or start < stop:
            content = file.read(piece_bytes if stop is None else min(piece_bytes, stop - start))
            if not content:
                break
            if not content.endswith(b"\n"):
                content += file.readline()
            _decoded(content, start)
            end = start + len(content)
            pieces.append(Piece(path, start, end, zlib.crc32(content), _n_lines(content, start)))
            start = end
    return pieces


def _decoded(content: bytes, start: int) -> str:
    """Text of a file from the byte `start` on, which has no mark of the byte order."""
    return content.decode("utf-8" if start else "utf-8-sig")


def _n_lines(content: bytes, start: int) -> int:
    """As many as a reader gives that takes CR, LF and CRLF for the end of a line."""
    if start == 0:
        content = content.removeprefix(_BYTE_ORDER_MARK)
    return content.count(b"\n") + (content != b"" and not content.endswith(b"\n"))


def _numbered(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Pieces in the order of the files, with the numbers of their first lines."""
    path, line, number = "", 0, 0
    for piece in pieces:
        if piece.path != path:
            path, line = piece.path, 0
        yield piece._replace(line=line, id=number)
        line += piece.n_lines
        number += piece.n_lines


def _parts(pieces: Sequence[Piece], part_bytes: int) -> list[Part]:
    """Small pieces together, until they are about as large as a part is to be."""
    groups: list[list[Piece]] = []
    size = part_bytes
    for piece in pieces:
        if size + piece.stop - piece.start > part_bytes:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece.stop - piece.start
    return [Part(number, tuple(group)) for number, group in enumerate(groups)] or [Part(0, ())]


class PartReader:
    """Reads the lines of parts. A context manager.

    The file that was read last stays open: of a compressed one, parts that come in their order are
    then read without decompressing anything twice.

    Args:
        folder: of the files with relative names.
    """

    def __init__(self, folder: PathLike = "") -> None:
        self._folder = folder
        self._path: str | None = None
        self._file: IO[bytes] | None = None

    def lines(self, part: Part) -> list[str]:
        """The lines, without their ends.

        Raises:
            FileNotFoundError: a file has gone.
            InputError: it has changed since the parts were found.
        """
        return [line for piece in part.pieces for line in self._lines(piece)]

    def _lines(self, piece: Piece) -> list[str]:
        content = None
        # What a network disk could not give may be there when the file is opened anew.
        for _ in range(2):
            with contextlib.suppress(EOFError, zlib.error):
                content = self._read(piece)
            if content is not None and zlib.crc32(content) == piece.checksum:
                lines = _decoded(content, piece.start)
                found = lines.removesuffix("\n").split("\n") if piece.n_lines else []
                return [line.rstrip("\r") for line in found]
            self.close()
        raise InputError(
            f"{piece.path}: changed since the job began, in the bytes {piece.start:,} to "
            f"{piece.stop:,} of its text; it must stay as it is until the job is over."
        )

    def _read(self, piece: Piece) -> bytes:
        if self._file is None or piece.path != self._path:
            self.close()
            self._file = open_bytes(os.path.join(self._folder, piece.path))
            self._path = piece.path
        self._file.seek(piece.start)
        return self._file.read(piece.stop - piece.start)

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
        self._file = self._path = None

    def __enter__(self) -> PartReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
