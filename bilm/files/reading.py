"""Reading text and JSON files, and checks on the names of files."""

from __future__ import annotations

import codecs
import contextlib
import glob
import gzip
import io
import itertools
import json
import logging
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, NamedTuple

from bilm.core.errors import InputError, iterable, require, shown

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]

# The files of a model folder; a training folder also holds the last two.
WEIGHTS_FILE, OPTIONS_FILE, VOCABULARY_FILE = "model.hdf5", "options.json", "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
"""The record of how a text was tokenised; for a single text its name is a prefix."""

# Endings of compressed text files.
COMPRESSED = (".gz", ".xz")

LONGEST_LINE = 2**24
"""Most bytes of a line of text, and of a word."""

# Exceptions from readers of compressed files if the data is truncated or damaged.
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)


class Stage(NamedTuple):
    """Progress of a job over files: `done` of `total` bytes on the disk in the step `doing`, such
    as "counting"."""

    doing: str
    done: int
    total: int
    unit: str = "bytes"


ShowStage = Callable[[Stage], None]


def quiet(stage: Stage) -> None:
    """A progress callback that does nothing."""


# Names


def find_files(pattern: PathLike) -> list[str]:
    """The files that a glob matches, sorted by name; see `matching_files`."""
    pattern = require_path(pattern, "a pattern of files")
    files = matching_files(pattern)
    if not files:
        hint = " It is not a regular file." if os.path.exists(pattern) else ""
        raise FileNotFoundError(f"No file matches {pattern!r}.{hint}")
    return files


def matching_files(pattern: str) -> list[str]:
    """The files that a glob matches, sorted by name; may be empty.

    Records of `bilm tokenize` are left out. Brackets in the name of an existing file or folder are
    literal.
    """
    if os.path.isfile(pattern):
        return [pattern]
    folder = os.path.dirname(pattern)
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    found = glob.glob(glob.escape(folder) + pattern.removeprefix(folder))
    files = sorted(filter(os.path.isfile, found))
    return [path for path in files if not path.endswith(TOKENIZER_FILE)]


def find_all_files(patterns: PathLike | Iterable[PathLike]) -> list[str]:
    """The files that one or several globs match, without duplicates, sorted by name."""
    if isinstance(patterns, str | os.PathLike):
        patterns = [patterns]
    require(iterable("names of files"), patterns=patterns)
    files: dict[str, str] = {}
    for path in sorted({path for pattern in patterns for path in find_files(pattern)}):
        known = files.setdefault(os.path.realpath(path), path)
        if known != path:
            logger.warning("%s is the same file as %s, which is read only once", path, known)
    if not files:
        raise InputError("patterns must name at least one file.")
    return list(files.values())


def require_path(path: Any, what: str = "a file or folder") -> str:
    """The name of a file or folder as text."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(f"The name of {what} must be text or a path, got {shown(path)}.")
    return os.fsdecode(path)


def require_file(path: PathLike, what: str) -> str:
    """The name of a file that exists, as text."""
    path = require_path(path, f"the {what}")
    if not os.path.isfile(path):
        problem = "is not a regular file" if os.path.exists(path) else "does not exist"
        raise FileNotFoundError(f"The {what} {path!r} {problem}.")
    return path


def size_of(files: Iterable[PathLike]) -> int:
    """The total size of files on the disk, in bytes."""
    return sum(map(os.path.getsize, files))


# Text


def open_bytes(path: PathLike) -> IO[bytes]:
    """Open a text file for reading as bytes; .gz and .xz files are decompressed."""
    path = require_file(path, "text file")
    opened: Any = {".gz": gzip.open, ".xz": lzma.open}.get(os.path.splitext(path)[1])
    return io.BufferedReader(opened(path, "rb")) if opened else open(path, "rb")


def bytes_read(stream: IO[bytes]) -> int:
    """Bytes read of a file on the disk, which may be compressed."""
    return os.lseek(stream.fileno(), 0, os.SEEK_CUR)


@contextlib.contextmanager
def reading_text(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a text file (plain, .gz or .xz) for reading as bytes within the block; the error for
    damaged data and for text that is not UTF-8 names the line."""
    try:
        with open_bytes(path) as stream:
            yield stream
    except (UnicodeDecodeError, *_DAMAGED):
        for _ in read_lines(path):  # raises an error with the line, unknown to readers of blocks
            pass
        raise


def read_lines(path: PathLike) -> Iterator[str]:
    """The lines of a text file (plain, .gz or .xz) without their ends; see `lines_of`."""
    with reading_text(path) as stream:
        yield from lines_of(stream, path)


def read_files(
    files: Iterable[str], doing: str, progress: ShowStage
) -> Iterator[tuple[str, Iterator[str]]]:
    """Pairs of a text file and its lines, which must be read before the next file; `doing` names
    the stage in progress reports."""
    files = list(files)
    before, total = 0, size_of(files)

    def lines(path: str, stream: IO[bytes]) -> Iterator[str]:
        for number, line in enumerate(lines_of(stream, path)):
            if number % 256 == 0:
                progress(Stage(doing, before + bytes_read(stream), total))
            yield line

    for path in files:
        with reading_text(path) as stream:
            yield path, lines(path, stream)
        before += os.path.getsize(path)
    progress(Stage(doing, total, total))


def lines_of(stream: IO[bytes], source: PathLike) -> Iterator[str]:
    """The lines of UTF-8 text without their ends, LF or CRLF, and without a byte order mark;
    `source` names the stream in messages."""
    for number in itertools.count(1):
        try:
            data = stream.readline(LONGEST_LINE + 2)
        except _DAMAGED as error:
            raise InputError(f"{source}: damaged after line {number - 1}: {error}") from error
        if number == 1:
            data = data.removeprefix(codecs.BOM_UTF8)
        if not data:
            return
        data = data.rstrip(b"\r\n")
        if len(data) > LONGEST_LINE:
            raise InputError(
                f"{source}, line {number}: a line must have at most {LONGEST_LINE:,} bytes. Write "
                "one sentence per line."
            )
        try:
            yield data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{source}, line {number}: not UTF-8: byte {error.start} is "
                f"0x{data[error.start]:02x}. Convert the text: iconv -f ENCODING -t UTF-8."
            ) from error


# JSON


def read_json_object(path: PathLike, what: str = "JSON file") -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    value = parse_json("\n".join(read_lines(require_file(path, what))), path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: must hold a JSON object, got {shown(value)}.")
    return value


def parse_json(text: str | bytes, source: PathLike) -> Any:
    """Parse JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{source}: not JSON: {error}.") from error
