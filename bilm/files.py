"""Reading and writing files: text of any size, JSON objects, results that appear whole or not."""

from __future__ import annotations

import codecs
import contextlib
import errno
import filecmp
import glob
import gzip
import json
import logging
import lzma
import os
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from bilm.errors import InputError, require_iterable, shown

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]

# The files of a model folder; a training folder has the last two as well.
WEIGHTS_FILE, OPTIONS_FILE, VOCABULARY_FILE = "model.hdf5", "options.json", "vocab.txt"
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
# How file systems say that they have no links, or no more of them for a file.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


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
    """The files that a glob matches, sorted by name.

    Raises:
        FileNotFoundError: nothing matches.
    """
    pattern = require_path(pattern, "a glob of files")
    # A file whose name holds brackets is still a file, and not a pattern that misses it.
    found = [pattern] if os.path.isfile(pattern) else glob.glob(pattern)
    files = sorted(path for path in found if os.path.isfile(path))
    if not files:
        raise FileNotFoundError(f"No file matches {pattern!r}.")
    return files


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


def require_plain_output(path: PathLike) -> None:
    """Check that no FIFO, socket, device or link to nowhere has the name of a file to write: the
    file would take its place.

    Raises:
        InputError: one has.
    """
    if not os.path.lexists(path) or os.path.isfile(path) or os.path.isdir(path):
        return
    kind = "a FIFO, a socket or a device" if os.path.exists(path) else "a link that leads nowhere"
    raise InputError(f"{os.fspath(path)!r} is {kind}; a file is to be written there.")


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


def require_place(path: PathLike) -> str:
    """Check that a file can have this name, before the work whose result it is to hold.

    Returns:
        the name; of a link to a file that of the file, which is what is replaced.

    Raises:
        FileNotFoundError: the folder to write into does not exist.
        InputError: `path` is a folder, or something else that is no file, or no file can have this
            name.
    """
    path = require_name(path)
    if os.path.islink(path) and os.path.isfile(path):
        path = os.path.realpath(path)
    folder, name = os.path.split(path)
    if folder and not os.path.isdir(folder):
        raise FileNotFoundError(f"The folder {folder!r} to write {name!r} into does not exist.")
    if os.path.isdir(path):
        raise InputError(f"{path!r} is a folder; a file is to be written there.")
    require_plain_output(path)
    return path


@contextlib.contextmanager
def atomic_write(path: PathLike) -> Iterator[str]:
    """Give a temporary name beside `path`; rename it to `path` when the block ends well.

    The file is on the disk before it gets its name, so that a crash leaves the old file or the
    new one, never half of either. When the block fails, the temporary file is removed. Of a link
    to a file that file is replaced, and the link stays.

    Raises:
        FileNotFoundError, InputError: as `require_place`.
    """
    path = require_place(path)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        flush_to_disk(temporary)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


@contextlib.contextmanager
def atomic_write_all(paths: Sequence[PathLike], *, overwrite: bool = True) -> Iterator[list[str]]:
    """`atomic_write` for files that belong together: the first one, without which the others are
    nothing, gets its name last, and goes first if it is to be replaced. So whenever the program is
    killed, files of two results never stand side by side. When it fails, the old ones are back.

    Args:
        paths: the files.
        overwrite: False refuses files that are there; only without the first one, which a killed
            program did not come to, others with the same content will do.

    Raises:
        FileNotFoundError, InputError: as for `atomic_write`; or a file would be overwritten.
    """
    first, *others = (require_place(path) for path in paths)
    old: dict[str, str] = {}
    is_ready = False
    try:
        with contextlib.ExitStack() as stack:
            # Names are given in the reverse order.
            names = {path: stack.enter_context(atomic_write(path)) for path in (first, *others)}
            yield list(names.values())
            for path, temporary in names.items():
                flush_to_disk(temporary)
                if overwrite or not os.path.lexists(path):
                    continue
                if path == first or not filecmp.cmp(path, temporary, shallow=False):
                    raise InputError(f"{path!r} is there; it would be overwritten.")
            for path in filter(os.path.isfile, names) if others else ():
                os.replace(path, _old_name(names[path]))
                old[path] = _old_name(names[path])
            is_ready = True
    except BaseException:
        for path in (*others, first):
            if path in old:
                os.replace(old[path], path)
            elif is_ready and os.path.isfile(path) and others:
                os.remove(path)
        raise
    for path in (first, *others) if others else ():
        for left in _left(*os.path.split(path), ".old"):
            os.remove(left)


@contextlib.contextmanager
def folder_in_place(
    path: PathLike, replaces: str | None = None, *, adds: bool = False
) -> Iterator[str]:
    """Give a temporary folder beside `path`; rename it to `path` when the block ends well.

    Folders above it are made. When the block fails, the temporary folder is removed. What a killed
    program has left of an earlier one may be large, so a warning names it; what it had done to
    `path` is undone first.

    Args:
        path: the folder to write; one that is empty may be there.
        replaces: a file's name: a folder that is there and holds such a file is replaced.
        adds: of a folder that is there, keep what it holds, and give it the new files: all of
            them or none. The temporary folder is then within it.

    Raises:
        InputError: there is a file, or a folder that is not to be replaced, or a file of the same
            name in the folder to add to; or no folder can have this name.
    """
    path = require_name(path).rstrip(os.sep) or os.sep
    above, name = os.path.split(path)
    is_added = adds and os.path.isdir(path)
    home = path if is_added else above
    undo_killed(path)
    if not is_added:
        _require_replaceable(path, replaces)
    for left in _left(home, name, ".tmp"):
        logger.warning("%s/ is of a run that was killed, unless one is under way: remove it", left)
    temporary = os.path.join(home, f".{name}.{uuid.uuid4().hex[:8]}.tmp")
    with folder_made(home or os.curdir):
        os.mkdir(temporary)
        try:
            yield temporary
            for folder, _, files in os.walk(temporary):
                for file in files:
                    flush_to_disk(os.path.join(folder, file))
            if is_added:
                _add_to(path, temporary)
            else:
                _require_replaceable(path, replaces)
                _take_place(path, temporary)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def folder_made(path: PathLike) -> Iterator[None]:
    """Make a folder and those above it for the block; those that were made and are empty at its
    end, because it failed for instance, go again."""
    made, folder = [], os.path.abspath(path)
    while not os.path.isdir(folder):
        made.append(folder)
        folder = os.path.dirname(folder)
    try:
        os.makedirs(path, exist_ok=True)
        yield
    finally:
        for folder in made:
            with contextlib.suppress(OSError):  # which is raised for one that is not empty
                os.rmdir(folder)


def undo_killed(path: PathLike) -> None:
    """Undo what a program that was killed within `folder_in_place` had done to `path`.

    A folder that was about to be replaced gets its name again; of the files that were to be added
    to a folder those go that had their names before the others.
    """
    path = os.fspath(path).rstrip(os.sep) or os.sep
    above, name = os.path.split(path)
    for old in _left(above, name, ".old"):
        if not os.path.lexists(path):
            os.replace(old, path)
    for left in _left(path, name, ".tmp"):
        for file in os.listdir(left):
            added = os.path.join(path, file)
            if os.path.isfile(added) and os.path.samefile(added, os.path.join(left, file)):
                os.remove(added)
    for done in _left(path, name, ".old"):
        shutil.rmtree(done, ignore_errors=True)


def _left(folder: str, name: str, ending: str) -> list[str]:
    """Hidden names of ours in a folder that a killed program has left."""
    pattern = f".{glob.escape(name)}.{'[0-9a-f]' * 8}{ending}"
    return glob.glob(os.path.join(glob.escape(folder), pattern))


def _take_place(path: str, temporary: str) -> None:
    """Give a folder the name of another one, which goes."""
    if not os.path.isdir(path):
        os.replace(temporary, path)
        return
    old = _old_name(temporary)
    os.replace(path, old)
    try:
        os.replace(temporary, path)
    except BaseException:
        os.replace(old, path)
        raise
    try:
        os.replace(old, temporary)  # before its files go: under its own name it is whole
    except OSError:
        shutil.rmtree(old, ignore_errors=True)


def _add_to(path: str, temporary: str) -> None:
    """Give the files of a folder names in another one, all or none.

    Where files can have two names, the folder keeps them until all have theirs: by that a later
    run knows what a killed one has done.
    """
    targets = {os.path.join(temporary, name): os.path.join(path, name)
               for name in sorted(os.listdir(temporary))}  # fmt: skip
    for target in targets.values():
        if os.path.lexists(target):
            raise InputError(f"{target!r} is there; it would be overwritten.")
    added: list[str] = []
    try:
        for file, target in targets.items():
            try:
                os.link(file, target)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                os.rename(file, target)
            added.append(target)
        os.replace(temporary, _old_name(temporary))
    except BaseException:
        for target in added:
            os.remove(target)
        raise
    shutil.rmtree(_old_name(temporary), ignore_errors=True)


def _old_name(temporary: str) -> str:
    """The hidden name of what goes when something else has its name."""
    return f"{temporary.removesuffix('.tmp')}.old"


def _require_replaceable(path: str, replaces: str | None) -> None:
    if not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path)):
        return
    if not os.path.isdir(path):
        raise InputError(f"{path!r} is a file; a folder is to be written there.")
    if replaces is None:
        raise InputError(f"The folder {path!r} is there already; it would be overwritten.")
    if not os.path.isfile(os.path.join(path, replaces)):
        raise InputError(f"The folder {path!r} holds no {replaces}; it is not replaced.")


def flush_to_disk(path: PathLike) -> None:
    """Wait until a file's bytes are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: PathLike, value: object) -> None:
    """Write `value` as JSON, whole or not at all."""
    with atomic_write(path) as temporary:
        text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
        Path(temporary).write_text(text, encoding="utf-8")
