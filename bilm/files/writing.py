"""Atomic writing: files and folders appear under their names only when complete."""

from __future__ import annotations

import contextlib
import filecmp
import glob
import gzip
import json
import logging
import lzma
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from bilm.core.errors import InputError
from bilm.files.reading import PathLike, require_path

logger = logging.getLogger(__name__)


# Checks before the work


def require_place(path: PathLike) -> str:
    """Require that a file can be written, and return its name; a link to a file is resolved, so
    that the file gets replaced."""
    path = require_path(path)
    if os.path.islink(path) and os.path.isfile(path):
        path = os.path.realpath(path)
    folder, name = os.path.split(path)
    if folder and not os.path.isdir(folder):
        raise FileNotFoundError(f"The folder {folder!r} to write {name!r} into does not exist.")
    if os.path.lexists(path) and not os.path.isfile(path):
        raise InputError(f"{path!r} must be a regular file or not exist.")
    return path


def overwritten(*paths: PathLike, allowed_by: str | None = None) -> InputError:
    """The error for files or folders that would be overwritten; `allowed_by` is the flag or
    argument that allows it."""
    names = ", ".join(repr(os.fspath(path)) for path in paths)
    how = f": {allowed_by} allows it" if allowed_by else ""
    return InputError(f"{names} would be overwritten{how}.")


# Files


@contextlib.contextmanager
def named_in_errors(path: PathLike) -> Iterator[None]:
    """Add a file's name to OSErrors without a name, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


@contextlib.contextmanager
def atomic_write(path: PathLike) -> Iterator[str]:
    """Yield a temporary name next to `path`; rename the file to `path` when the block succeeds.

    The file is flushed to the disk before it is renamed, so a crash leaves either the old or the
    new file. If the block fails, the temporary file is removed. If `path` is a link to a file, that
    file is replaced.

    Raises:
        FileNotFoundError, InputError: As for `require_place`.
        OSError: The disk is full or fails; the error names `path`.
    """
    path = require_place(path)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with named_in_errors(path):
            yield temporary
            flush_to_disk(temporary)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


@contextlib.contextmanager
def atomic_write_all(paths: Sequence[PathLike], *, overwrite: bool = True) -> Iterator[list[str]]:
    """`atomic_write` for files that belong together.

    The first file, without which the others are useless, is removed before the others are replaced,
    and renamed into place last. So if the program is killed, the first file is never next to files
    of another result. Without `overwrite`, an existing file is an error, except a file with the
    same content that a killed program left without the first file.
    """
    paths = [require_place(path) for path in paths]
    with contextlib.ExitStack() as stack:  # renames in reverse order
        temporaries = [stack.enter_context(atomic_write(path)) for path in paths]
        yield temporaries
        for path, temporary in zip(paths, temporaries, strict=True):
            flush_to_disk(temporary)
            if overwrite or not os.path.lexists(path):
                continue
            if path == paths[0] or not filecmp.cmp(path, temporary, shallow=False):
                raise overwritten(path)
        if len(paths) > 1:
            with contextlib.suppress(FileNotFoundError):
                os.remove(paths[0])


def flush_to_disk(path: PathLike) -> None:
    """Flush a file to the disk (fsync)."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def compressed_as(name: PathLike, path: PathLike) -> Iterator[IO[bytes]]:
    """A file at `path` for writing, compressed if `name` ends in .gz or .xz."""
    ending = os.path.splitext(name)[1]
    with contextlib.ExitStack() as stack:
        file: Any = stack.enter_context(open(path, "wb"))
        if ending == ".gz":  # reproducible: without file name and time
            file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        elif ending == ".xz":
            file = stack.enter_context(lzma.open(file, "wb"))
        yield file


def write_json(path: PathLike, value: object) -> None:
    """Write `value` as JSON by `atomic_write`."""
    with atomic_write(path) as temporary:
        text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
        Path(temporary).write_text(text, encoding="utf-8")


# Folders


@contextlib.contextmanager
def folder_in_place(path: PathLike, replaces: Sequence[str] = ()) -> Iterator[str]:
    """Yield a temporary folder next to `path`; rename it to `path` when the block succeeds.

    Parent folders are created. If the block fails, the temporary folder is removed. `path` must be
    missing, empty, or a folder of the same kind: `replaces` are globs of the files that it may
    hold; it must hold the first and no others.
    """
    path = _folder_name(path)
    _require_replaceable(path, replaces)
    above, name = os.path.split(path)
    os.makedirs(above or os.curdir, exist_ok=True)
    with _temporary_folder(above, name) as temporary:
        with named_in_errors(path):
            yield temporary
            _flush_files(temporary)
        old = f"{temporary.removesuffix('.tmp')}.old"
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, old)
        os.rename(temporary, path)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def files_added(path: PathLike) -> Iterator[str]:
    """Yield a temporary folder; its files are moved to the folder `path` when the block succeeds.

    `path` is created if missing, and keeps its files. If the block fails, no file is added.
    """
    path = _folder_name(path)
    if not os.path.isdir(path) or not os.listdir(path):
        with folder_in_place(path) as temporary:
            yield temporary
        return
    with _temporary_folder(path, os.path.basename(path)) as temporary:
        with named_in_errors(path):
            yield temporary
            _flush_files(temporary)
        names = sorted(os.listdir(temporary))
        if taken := [name for name in names if os.path.lexists(os.path.join(path, name))]:
            raise overwritten(os.path.join(path, taken[0]))
        for name in names:
            os.rename(os.path.join(temporary, name), os.path.join(path, name))


def _folder_name(path: PathLike) -> str:
    """The name of a folder to write; a link to a folder is resolved."""
    path = require_path(path).rstrip(os.sep) or os.sep
    return os.path.realpath(path) if os.path.islink(path) and os.path.isdir(path) else path


@contextlib.contextmanager
def _temporary_folder(folder: str, name: str) -> Iterator[str]:
    """A hidden folder in `folder` for the block, after a warning about folders of killed runs."""
    hidden = os.path.join(glob.escape(folder), f".{glob.escape(name)}.{'[0-9a-f]' * 8}")
    for left in glob.glob(f"{hidden}.tmp") + glob.glob(f"{hidden}.old"):
        logger.warning("%s was left by a killed run; remove it unless a run is active", left)
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex[:8]}.tmp")
    os.mkdir(temporary)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _flush_files(folder: str) -> None:
    for above, _, files in os.walk(folder):
        for file in files:
            flush_to_disk(os.path.join(above, file))


def _require_replaceable(path: str, replaces: Sequence[str]) -> None:
    if not os.path.lexists(path):
        return
    if not os.path.isdir(path):
        raise InputError(f"{path!r} must be a folder or not exist.")
    known = {file for pattern in replaces for file in glob.glob(pattern, root_dir=path)}
    files = [file for file in Path(path).rglob("*") if file.is_symlink() or not file.is_dir()]
    found = {str(file.relative_to(path)) for file in files}
    if found and not replaces:
        raise overwritten(path)
    if found and not {replaces[0]} <= found <= known:
        others = sorted(found - known) or [f"no {replaces[0]}"]
        raise InputError(
            f"{path!r} must hold {replaces[0]} and no files of other kinds to be replaced, got "
            f"{others[0]}: choose another folder."
        )
