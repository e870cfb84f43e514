"""Reading text and JSON files, and checks on the names of files."""

from __future__ import annotations

import codecs
import contextlib
import glob
import gzip
import json
import logging
import lzma
import os
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from bilm.core.errors import InputError, iterable, require, shown

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]

# The files of a model folder; a training folder also holds the last two.
WEIGHTS_FILE, OPTIONS_FILE, VOCABULARY_FILE = "model.hdf5", "options.json", "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
"""The record of how a text was tokenised; for a single text its name is a prefix."""

# Endings of compressed text files, and the commands that decompress them.
COMPRESSED = (".gz", ".xz")
_DECOMPRESS = {".gz": "gzip -dc", ".xz": "xz -dc"}

LONGEST_LINE = 2**24
"""Most bytes of a line of text, and of a word."""

# Bytes of text to decode at a time.
_BLOCK = 2**20
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
    files = matching_files(require_path(pattern, "a pattern of files"))
    if not files:
        hint = ""
        if os.path.isdir(pattern):
            hint = " It is a folder."
        elif os.path.exists(pattern):
            hint = " It is not a regular file: a corpus is read more than once."
        raise FileNotFoundError(f"No file matches {os.fspath(pattern)!r}.{hint}")
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
    found = glob.glob(glob.escape(folder) + pattern[len(folder) :])
    return sorted(
        path for path in found if os.path.isfile(path) and not path.endswith(TOKENIZER_FILE)
    )


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


def require_path(path: Any, what: str) -> str:
    """`path` as text."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"The name of {what} must be text or a path, got {shown(path)}.")
    return os.fsdecode(path)


def require_name(path: PathLike) -> str:
    """The name of a file or folder to write, as text."""
    path = require_path(path, "a file or folder")
    encoded = b""
    with contextlib.suppress(UnicodeEncodeError):  # a surrogate that encodes no byte
        encoded = os.fsencode(path)
    if not encoded or b"\0" in encoded:
        raise InputError(f"{path!r} cannot be the name of a file or folder.")
    return path


def require_utf8(path: PathLike) -> str:
    """The name of a file or folder for TensorFlow, as text."""
    path = require_name(path)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InputError(f"{path!r} must be UTF-8: TensorFlow writes no other names.") from None
    return path


def require_file(path: PathLike, what: str) -> str:
    """The name of a file that exists, as text."""
    path = require_path(path, f"the {what}")
    if not os.path.isfile(path):
        kind = "does not exist"
        if os.path.isdir(path):
            kind = "is a folder, not a file"
        elif os.path.exists(path):
            kind = "is a FIFO, a socket or a device, not a file"
        raise FileNotFoundError(f"The {what} {path!r} {kind}.")
    return path


def size_of(files: Iterable[PathLike]) -> int:
    """The total size of files on the disk, in bytes."""
    return sum(map(os.path.getsize, files))


# Text


def open_bytes(path: PathLike) -> IO[bytes]:
    """Open a text file for reading as bytes; .gz and .xz files are decompressed."""
    path = require_file(path, "text file")
    opened: Any = {".gz": gzip.open, ".xz": lzma.open}.get(os.path.splitext(path)[1], open)
    return opened(path, "rb")


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
        _raise_fault(path)


def _raise_fault(path: PathLike) -> NoReturn:
    """Raise an error with the line that cannot be read, unknown to readers of blocks."""
    for _ in read_lines(path):
        pass
    raise InputError(f"{path}: not UTF-8.")


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
    """The lines of UTF-8 text without their ends, LF or CRLF, and without a byte order mark.

    The stream must have `read1`, so that lines from a pipe are yielded immediately; `source` names
    it in messages.
    """
    number, begun, data = 0, b"", b"."  # lines so far, and the start of the next line
    while data:
        try:
            data = stream.read1(_BLOCK)  # type: ignore[attr-defined]
        except _DAMAGED as error:
            raise InputError(f"{source}: damaged after line {number}: {error}") from error
        first, last = data.find(b"\n"), data.rfind(b"\n")
        if len(begun) + (first if first >= 0 else len(data)) > LONGEST_LINE:
            raise InputError(
                f"{source}, line {number + 1}: a line must have at most {LONGEST_LINE:,} bytes. "
                "Write one sentence per line."
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
    """The lines of a block; `number` is the count of lines before it."""
    try:
        lines = block.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        start = block.rfind(b"\n", 0, error.start) + 1
        if start:
            yield from _decoded(block[: start - 1], source, number)
        number += block.count(b"\n", 0, start) + 1
        raise InputError(
            f"{source}, line {number}: not UTF-8: byte {error.start - start} is "
            f"0x{block[error.start]:02x}.{_advice(block[start:], source)}"
        ) from error
    yield from (line.rstrip("\r") for line in lines) if b"\r" in block else lines


def _advice(data: bytes, source: PathLike) -> str:
    """How to convert text that is not UTF-8, if its encoding can be guessed."""
    encoding = guess_encoding(data)
    if encoding is None:
        return ""
    command = f"iconv -f {encoding} -t UTF-8"
    if os.path.isfile(source):
        file = shlex.quote(os.fspath(source))
        unpack = _DECOMPRESS.get(os.path.splitext(source)[1])
        command = f"{unpack} {file} | {command}" if unpack else f"{command} {file}"
        command += " > NEW_FILE"
    return f" It looks like {encoding}; convert it: {command}"


# Frequent non-ASCII characters of texts in an encoding, by its name in Python and iconv.
_HAN = "的一是不了在有人我他大中国上来到说就地和也子年出而要于以可着你会生那得自下家小多，。"
_KANA = "のにはをたがでてとしれさあいうおかきくけこすせそちつなねまもやよらりるんっーイトスリ、。"
_CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюя"
_FREQUENT = {
    "GB18030": _HAN,
    "BIG5": "的一是不了在有人我他大中國上來到說就地和也子年出而要於以可著你會生那得自下家小多，。",
    "SHIFT_JIS": _KANA,
    "EUC-JP": _KANA,
    "EUC-KR": "이다는의에을가고를하은사지도한기리로스어자그인일아나라시정부대원보해수제있것",
    "CP1251": _CYRILLIC,
    "KOI8-R": _CYRILLIC,
}
_CONTROLS = frozenset({*range(32)} - {*b"\t\n\v\f\r\x1b"})
# The least proportion of these characters; text decoded with a wrong encoding has fewer.
_LEAST_FREQUENT = {"CP1251": 0.7, "KOI8-R": 0.7}
_LEAST_FREQUENT_OTHERS = 0.15


def guess_encoding(data: bytes) -> str | None:
    """The likely encoding of the first kilobytes of text that is not UTF-8, by its name in `iconv`;
    None if unknown."""
    data = data[: 2**16]
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    if n_zeros := data.count(0):
        is_little = data[1::2].count(0) > n_zeros // 2
        likely = "UTF-16LE" if is_little else "UTF-16BE"
        return likely if n_zeros > len(data) // 5 else None
    if not _CONTROLS.isdisjoint(data):
        return None  # not text
    high = [k for k, byte in enumerate(data) if byte > 127]
    n_alone = sum(data[k - 1 : k].isascii() and data[k + 1 : k + 2].isascii() for k in high)
    if n_alone > 0.5 * len(high):
        return "CP1252"  # single accented letters among ASCII letters
    shares = {}
    for encoding, frequent in _FREQUENT.items():
        text = codecs.getincrementaldecoder(encoding)("replace").decode(data)
        found = [character for character in text if not character.isascii()]
        shares[encoding] = sum(character in frequent for character in found) / (len(found) or 1)
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] >= _LEAST_FREQUENT.get(best, _LEAST_FREQUENT_OTHERS) else None


# JSON


def read_json_object(path: PathLike, what: str = "JSON file") -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    content = Path(require_file(path, what)).read_bytes()
    try:
        value = parse_json(content.decode("utf-8-sig"), path)
    except UnicodeDecodeError:
        _raise_fault(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: must hold a JSON object, got {shown(value)}.")
    return value


def parse_json(text: str | bytes, source: PathLike) -> Any:
    """Parse JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{source}, line {error.lineno}: not JSON: {error.msg}.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not JSON: {error}.") from error
