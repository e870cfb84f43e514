"""Names and contents of files that are read: text of any size, JSON objects."""

from __future__ import annotations

import codecs
import contextlib
import glob
import gzip
import json
import logging
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from bilm.core.errors import InputError, require_iterable, shown

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]

# The files of a model folder; a training folder has the last two as well.
WEIGHTS_FILE, OPTIONS_FILE, VOCABULARY_FILE = "model.hdf5", "options.json", "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
"""How a text was tokenised; the name of one text's record has that of the text before it."""

COMPRESSED = (".gz", ".xz")
"""Endings of text files that are read as compressed."""

LONGEST_LINE = 2**24
"""Bytes of a line of text, of a word, and of a JSON file: what is taken into memory as a whole."""

# Data that is unpacked has at most so many times the bytes that it has on the disk, or so many.
# Text and models are packed three to ten times.
_MOST_UNPACKED, _UNPACKED_ANYWAY = 50, 2**22
# Bytes of text that are decoded at a time.
_BLOCK = 2**20
# What the readers of compressed files raise when the data is cut off or changed.
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)


class Stage(NamedTuple):
    """How far a job over files has come: of its step `doing`, such as "counting", `done` of `total`
    bytes of files as they lie on the disk."""

    doing: str
    done: int
    total: int
    unit: str = "bytes"


ShowStage = Callable[[Stage], None]


def quiet(stage: Stage) -> None:
    """Shows nothing: the progress of whoever does not ask for it."""


def find_files(pattern: PathLike) -> list[str]:
    """The files that a glob matches, sorted by name; see `matching_files`.

    Raises:
        FileNotFoundError: nothing matches.
    """
    pattern = require_path(pattern, "a glob of files")
    files = matching_files(pattern)
    if not files:
        raise FileNotFoundError(f"No file matches {pattern!r}.")
    return files


def matching_files(pattern: str) -> list[str]:
    """The files that a glob matches, sorted by name; maybe none.

    The records that `bilm tokenize` writes are left out. Brackets in the name of an existing file
    or folder stand for themselves.
    """
    if os.path.isfile(pattern):
        return [pattern]
    folder = os.path.dirname(pattern)
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    found = glob.glob(glob.escape(folder) + pattern[len(folder) :])
    return sorted(
        path for path in found if os.path.isfile(path) and not path.endswith(TOKENIZER_FILE)
    )


def find_all_files(patterns: PathLike | Iterable[PathLike]) -> list[str]:
    """The files that one or several globs match, sorted by name, each of them once.

    Raises:
        FileNotFoundError: a pattern matches nothing.
        InputError: there is no pattern.
    """
    if isinstance(patterns, str | os.PathLike):
        patterns = [patterns]
    require_iterable("names of files", patterns=patterns)
    files: dict[str, str] = {}
    for path in sorted({path for pattern in patterns for path in find_files(pattern)}):
        known = files.setdefault(os.path.realpath(path), path)
        if known != path:
            logger.warning("%s is the same file as %s: it is read once", path, known)
    if not files:
        raise InputError("No file is named.")
    return list(files.values())


def require_path(path: Any, what: str) -> str:
    """`path` as text.

    Raises:
        InputError: it is no path; the message calls it `what`.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"The name of {what} is expected as text or a path, not {shown(path)}.")
    return os.fsdecode(path)


def require_name(path: PathLike) -> str:
    """`path` as text, once it is known that a file can have this name.

    Raises:
        InputError: it holds the character 0 or a lone surrogate, or is empty.
    """
    path = require_path(path, "a file or folder")
    encoded = b""
    with contextlib.suppress(UnicodeEncodeError):  # of a surrogate that stands for no byte
        encoded = os.fsencode(path)
    if not encoded or b"\0" in encoded:
        raise InputError(f"{path!r} cannot be the name of a file or folder.")
    return path


def require_utf8(path: PathLike) -> str:
    """`path` as text, once it is known that TensorFlow can take it.

    Raises:
        InputError: as `require_name`; or it is not UTF-8.
    """
    path = require_name(path)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{path!r}: a name in UTF-8 is expected, TensorFlow writes no others."
        ) from None
    return path


def size_of(files: Iterable[PathLike]) -> int:
    """The bytes of files as they lie on the disk."""
    return sum(map(os.path.getsize, files))


def require_file(path: PathLike, what: str) -> str:
    """`path` as text, once it is known to be a file.

    Raises:
        FileNotFoundError: there is no such file; the message calls it `what`.
    """
    path = require_path(path, f"the {what}")
    if not os.path.isfile(path):
        kind = "is a folder, not a file" if os.path.isdir(path) else "does not exist"
        if os.path.exists(path) and not os.path.isdir(path):
            kind = "is a FIFO, a socket or a device, not a file"
        raise FileNotFoundError(f"The {what} {path!r} {kind}.")
    return path


def most_unpacked(n_bytes: int) -> int:
    """How many bytes may come of `n_bytes` of compressed data."""
    return max(_UNPACKED_ANYWAY, _MOST_UNPACKED * n_bytes)


def open_bytes(path: PathLike) -> IO[bytes]:
    """Open a text file's bytes for reading: decompressed, as its ending .gz or .xz says."""
    path = require_file(path, "text file")
    opened: Any = {".gz": gzip.open, ".xz": lzma.open}.get(os.path.splitext(path)[1], open)
    return opened(path, "rb")


@contextlib.contextmanager
def reading_text(path: PathLike) -> Iterator[IO[bytes]]:
    """Open a text file for reading as bytes: plain, or unpacked as its ending .gz or .xz says.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: what the block reads is not UTF-8 (the line is named), is damaged, or needs
            more memory than there is, as .xz can.
    """
    try:
        with open_bytes(path) as stream:
            yield stream
    except (UnicodeDecodeError, *_DAMAGED):
        _raise_fault(path)
    except MemoryError as error:
        raise InputError(f"{path}: there is too little memory to read it.") from error


def _raise_fault(path: PathLike) -> NoReturn:
    """Say which line of a text file cannot be read: its reader reads ahead and does not know."""
    for _ in read_lines(path):
        pass
    raise InputError(f"{path}: not UTF-8.")


def read_lines(path: PathLike) -> Iterator[str]:
    """The lines of a text file, one after the other, without their ends; see `lines_of`."""
    with reading_text(path) as stream:
        yield from lines_of(stream, path)


def lines_of(stream: IO[bytes], source: PathLike) -> Iterator[str]:
    """The lines of UTF-8 text, without their ends, LF or CRLF: a CR elsewhere ends no line.

    A byte order mark, which some editors put before the first word, is not part of the text.

    Args:
        stream: with `read1`: what has come through a pipe is not waited for to be more.
        source: its name, for messages.

    Raises:
        InputError: a line is not UTF-8 or too long (named by its number); the compressed data is
            damaged, or unpacks to too much.
    """
    number, begun, data = 0, b"", b"."  # lines so far, and the beginning of the next one
    while data:
        try:
            data = stream.read1(_BLOCK)  # type: ignore[attr-defined]
        except _DAMAGED as error:
            raise InputError(f"{source}: damaged after line {number}: {error}") from error
        require_bounded(stream, source)
        first, last = data.find(b"\n"), data.rfind(b"\n")
        if len(begun) + (first if first >= 0 else len(data)) > LONGEST_LINE:
            raise InputError(
                f"{source}, line {number + 1}: at most {LONGEST_LINE:,} bytes are expected in a "
                "line, and it has more."
            )
        if data and first < 0:
            begun += data
            continue
        block, begun = begun + data[: max(last, 0)], data[last + 1 :]
        if number == 0:
            block = block.removeprefix(codecs.BOM_UTF8)
        if data or block:
            yield from _decoded(block, source, number)
            number += block.count(b"\n") + 1


def _decoded(block: bytes, source: PathLike, number: int) -> Iterator[str]:
    """The lines of a block of whole ones; `number` come before it."""
    try:
        lines = block.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        start = block.rfind(b"\n", 0, error.start) + 1
        if start:
            yield from _decoded(block[: start - 1], source, number)
        number += block.count(b"\n", 0, start) + 1
        byte = f"byte {error.start - start} is 0x{block[error.start]:02x}"
        raise InputError(f"{source}, line {number}: not UTF-8: {byte}.") from error
    yield from (line.rstrip("\r") for line in lines) if b"\r" in block else lines


def require_bounded(stream: IO[bytes], source: PathLike) -> None:
    """Refuse compressed data of which far more has come than text has.

    Raises:
        InputError: it has.
    """
    if not isinstance(stream, gzip.GzipFile | lzma.LZMAFile):
        return
    n_bytes = bytes_read(stream)
    if stream.tell() > most_unpacked(n_bytes):
        raise InputError(
            f"{source}: {n_bytes:,} bytes of it unpack to more than {most_unpacked(n_bytes):,}: "
            "text that is so much longer has to be unpacked first."
        )


def bytes_read(stream: IO[bytes]) -> int:
    """How far an open file has been read on the disk: also of a compressed one."""
    return os.lseek(stream.fileno(), 0, os.SEEK_CUR)


def read_whole(path: PathLike, what: str, most: int = LONGEST_LINE) -> bytes:
    """All bytes of a file that is not large.

    Raises:
        FileNotFoundError: there is no such file; the message calls it `what`.
        InputError: it has more than `most` bytes.
    """
    path = require_file(path, what)
    if os.path.getsize(path) > most:
        raise InputError(
            f"{path}: at most {most:,} bytes are expected in a {what}, not "
            f"{os.path.getsize(path):,}."
        )
    return Path(path).read_bytes()


def read_json_object(path: PathLike, what: str = "JSON file") -> dict[str, Any]:
    """Read a JSON file that holds one object.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: too large, not UTF-8, not JSON, JSON of another kind, nested too deep, with a
            number of thousands of digits, or with a key that an object has twice.
    """
    try:
        value = parse_json(read_whole(path, what).decode("utf-8-sig"), path)
    except UnicodeDecodeError:
        _raise_fault(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: a JSON object is expected, not {_kind(value)}.")
    return value


def parse_json(text: str | bytes, source: PathLike) -> Any:
    """What JSON of anybody's says.

    Raises:
        InputError: it is not JSON, nested too deep, has a number of thousands of digits, or a key
            that an object has twice; names the source.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        raise InputError(f"{source}, line {error.lineno}: not JSON: {error.msg}.") from error
    except (RecursionError, MemoryError) as error:
        raise InputError(f"{source}: JSON that is nested too deep, or too large.") from error
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: not UTF-8: {error}.") from error
    except ValueError as error:
        raise InputError(f"{source}: a number has too many digits: {error}.") from error


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, none of whose keys is there twice: readers differ in which one holds."""
    value: dict[str, Any] = {}
    for key, of_key in pairs:
        if key in value:
            raise InputError(f"the key {shown(key)} is there more than once.")
        value[key] = of_key
    return value


def _kind(value: object) -> str:
    kinds = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
