"""Output files: checked before the work, and put in place together when they are complete."""

from __future__ import annotations

import contextlib
import errno
import glob
import gzip
import io
import json
import logging
import lzma
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TextIO

from bilm.core.errors import InputError
from bilm.files.reading import PathLike, require_path

logger = logging.getLogger(__name__)

# Errors of os.link on a file system without hard links.
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_TEMPORARY, _OLD = "tmp", "old"

Inputs = Mapping[str, PathLike | Iterable[PathLike] | None]


class Outputs:
    """The files that a command or a function writes.

    All are checked when the object is created, before the work. `temporaries` yields names to write
    to, and renames the files into place when its block succeeds: all of them, or none. A file that
    appeared in the meantime is not replaced without `overwrite`; with it, old files stay until the
    new ones are in place.

    The first file, without which the others are useless, is renamed last. After a kill between two
    renames it is missing, and the files that are already in place are recognised: the same outputs
    can be declared again.

    Args:
        paths: files, and complete folders (also in `folders`); None is skipped. A link to a file or
            folder stands for its target.
        inputs: input files by argument name; they must not be overwritten.
        overwrite: replace existing files. An existing folder is replaced only if it holds the
            first file of `replaces`, and no files but these.
        allowed_by: flag or argument that allows overwriting, for messages.
        folders: folders of some of `paths` that are created if missing. Files of a new folder
            appear at once.
        updated: other output files, which may exist; the caller writes them by other means.
        replaces: relative names of the files in a folder that may be replaced.

    Raises:
        FileNotFoundError: the folder of a file does not exist.
        InputError: a path names an existing file, an input, two outputs, or something other than a
            regular file.
        PermissionError: a folder is not writable.
    """

    def __init__(
        self,
        paths: Iterable[PathLike | None],
        *,
        inputs: Inputs | None = None,
        overwrite: bool = False,
        allowed_by: str | None = None,
        folders: Iterable[PathLike] = (),
        updated: Iterable[PathLike | None] = (),
        replaces: Sequence[str] = (),
    ) -> None:
        self._folders = set(map(_folder_name, folders))
        self.paths = [self._check_path(path) for path in paths if path is not None]
        updated_paths = [self._check_path(path) for path in updated if path is not None]
        self._overwrite = overwrite
        _require_distinct([*self.paths, *updated_paths], inputs or {})
        existing = [path for path in self.paths if _is_taken(path)]
        self._replaceable: set[str] = set()
        self._replaces = replaces
        if not overwrite:
            if existing and self.paths[0] not in existing:
                self._replaceable = set(filter(is_of_killed_run, existing))
            if existing := [path for path in existing if path not in self._replaceable]:
                raise overwritten(*existing, allowed_by=allowed_by)
        for path in filter(os.path.isdir, existing):
            _require_only(path, replaces)

    def _check_path(self, path: PathLike) -> str:
        """The path of an output, with links resolved, if a file can be written there."""
        name = require_path(path)
        if _folder_name(name) in self._folders:
            name = _folder_name(name)
            _require_folder(name)
            _require_writable(os.path.dirname(name))
            return name
        if os.path.islink(name) and os.path.isfile(name):
            name = os.path.realpath(name)
        folder, file = os.path.split(name)
        if folder in self._folders:
            _require_folder(folder)
        elif folder and not os.path.isdir(folder):
            raise FileNotFoundError(f"The folder {folder!r} to write {file!r} into does not exist.")
        if not file or (os.path.lexists(name) and not os.path.isfile(name)):
            raise InputError(f"{name!r} must be a regular file or not exist.")
        _require_writable(folder)
        return name

    @contextlib.contextmanager
    def temporaries(self) -> Iterator[list[str]]:
        """Yield names to write to, with the same endings; put the files in place after the block.

        The block must write every file; folders are created before it. If the block fails, nothing
        is put in place.

        Raises:
            InputError: a file appeared in the meantime.
            OSError: the disk is full or fails; the error names a path.
        """
        if not self.paths:
            yield []
            return
        moves: dict[str, str] = {}  # a file or a new folder: its temporary name
        names = []
        for path in self.paths:
            folder = os.path.dirname(path)
            is_in_new = folder in self._folders and not _is_taken(folder)
            target = folder if is_in_new else path
            temporary = moves.setdefault(target, _beside(target, _TEMPORARY))
            names.append(
                os.path.join(temporary, os.path.basename(path)) if is_in_new else temporary
            )
        try:
            for target, temporary in moves.items():
                if target in self._folders:
                    _warn_of_killed_runs(target)
                    os.makedirs(os.path.dirname(temporary) or os.curdir, exist_ok=True)
                    os.mkdir(temporary)
            with named_in_errors(self.paths[0]):
                yield names
                for temporary in moves.values():
                    _flush(temporary)
            self._put_in_place(list(moves.items()))
        finally:
            for temporary in moves.values():
                _remove(temporary)

    def _put_in_place(self, moves: list[tuple[str, str]]) -> None:
        old: dict[str, str] = {}
        try:
            for target, _ in moves:
                is_folder = os.path.isdir(target)
                if _is_taken(target) and self._may_replace(target) and (is_folder or moves[1:]):
                    if is_folder:  # again, because files may have been added during the work
                        _require_only(target, self._replaces)
                    old[target] = _beside(target, _OLD)
                    # The first file must never be next to other files of another result.
                    _keep(target, old[target], move=is_folder or target == moves[0][0])
            for target, temporary in reversed(moves):
                _move(temporary, target, self._may_replace(target))
        except BaseException:
            with contextlib.suppress(OSError):  # the old files stay under their hidden names
                for target, temporary in moves:
                    if (moves[1:] or target in old) and _is_moved(temporary, target):
                        _remove(target)
                for target, backup in old.items():
                    if os.path.exists(target) and os.path.samefile(backup, target):
                        os.remove(backup)
                    elif os.path.lexists(backup):
                        os.replace(backup, target)
            raise
        for backup in old.values():
            _remove(backup)

    def _may_replace(self, target: str) -> bool:
        return self._overwrite or target in self._replaceable


def overwritten(*paths: PathLike, allowed_by: str | None = None) -> InputError:
    """The error for files or folders that would be overwritten; `allowed_by` is the flag or
    argument that allows it."""
    names = ", ".join(repr(os.fspath(path)) for path in paths)
    how = f": {allowed_by} allows it" if allowed_by else ""
    return InputError(f"{names} would be overwritten{how}.")


def _require_distinct(paths: Sequence[str], inputs: Inputs) -> None:
    """Require that no file is two outputs, or an output and an input."""
    names = list(map(os.path.realpath, paths))
    for path, name in zip(paths, names, strict=True):
        if names.count(name) > 1:
            raise InputError(f"{path!r} is named for two outputs.")
    existing = [path for path in paths if os.path.exists(path)]
    for argument, value in inputs.items() if existing else ():
        for source in [value] if isinstance(value, str | os.PathLike) else value or ():
            for path in existing:
                if os.path.exists(source) and os.path.samefile(path, source):
                    raise InputError(f"{path!r} is an input ({argument}): name another output.")


def _require_writable(folder: str) -> None:
    folder = folder or os.curdir
    if os.path.isdir(folder) and not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


def _require_folder(path: str) -> None:
    if os.path.lexists(path) and not os.path.isdir(path):
        raise InputError(f"{path!r} must be a folder or not exist.")


def _require_only(folder: str, names: Sequence[str]) -> None:
    """Require that a folder holds the first of `names`, and no files but these."""
    files = [path for path in Path(folder).rglob("*") if path.is_symlink() or not path.is_dir()]
    others = sorted({str(path.relative_to(folder)) for path in files} - set(names))
    if names and not os.path.isfile(os.path.join(folder, names[0])):
        others.append(f"no {names[0]}")
    if others:
        raise InputError(
            f"{folder!r} must hold {names[0] if names else 'nothing'} and no other files to be "
            f"replaced, got {others[0]}: choose another folder."
        )


# Moving


def _beside(path: str, kind: str) -> str:
    """A hidden name next to `path`, with the same ending."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{uuid.uuid4().hex[:8]}.{kind}.{name}")


def _hidden(path: str, kind: str) -> list[str]:
    """The existing names of `_beside`."""
    folder, name = map(glob.escape, os.path.split(path))
    return glob.glob(os.path.join(folder, f".{8 * '[0-9a-f]'}.{kind}.{name}"))


def _is_taken(path: str) -> bool:
    """Whether the name exists and is not an empty folder."""
    is_empty = os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path)
    return os.path.lexists(path) and not is_empty


def is_of_killed_run(path: str) -> bool:
    """Whether a killed run put the file in place, but did not finish."""
    return any(os.path.samefile(path, hidden) for hidden in _hidden(path, _TEMPORARY))


def _warn_of_killed_runs(folder: str) -> None:
    for path in _hidden(folder, _TEMPORARY) + _hidden(folder, _OLD):
        logger.warning("%s was left by a killed run; remove it unless a run is active", path)


def _keep(path: str, backup: str, *, move: bool) -> None:
    """Give a file or folder another name; without `move` a file has both names if possible."""
    if not move:
        try:
            os.link(path, backup)
            return
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
    os.rename(path, backup)


def _move(temporary: str, target: str, overwrite: bool) -> None:
    if os.path.isdir(temporary):
        if _is_taken(target):
            raise overwritten(target)
        os.rename(temporary, target)  # the target may be an empty folder
    elif overwrite:
        os.replace(temporary, target)
    else:
        try:
            # The second name is the record of a killed run: see `is_of_killed_run`.
            os.link(temporary, target)
        except FileExistsError:
            raise overwritten(target) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(target):
                raise overwritten(target) from None
            os.rename(temporary, target)


def _is_moved(temporary: str, target: str) -> bool:
    if not os.path.lexists(temporary):
        return True
    return os.path.exists(target) and os.path.samefile(temporary, target)


def _remove(path: str) -> None:
    """Remove a file or folder if it exists."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def _folder_name(path: PathLike) -> str:
    """The name of a folder to write; a link to a folder stands for its target."""
    name = require_path(path).rstrip(os.sep) or os.sep
    return os.path.realpath(name) if os.path.islink(name) and os.path.isdir(name) else name


# A single file


@contextlib.contextmanager
def atomic_write(path: PathLike, *, overwrite: bool = True) -> Iterator[str]:
    """Yield a temporary name next to `path`; rename the file to `path` when the block succeeds.

    The file is flushed to the disk before it is renamed, so a crash leaves either the old or the
    new file. If the block fails, the temporary file is removed.

    Raises:
        FileNotFoundError, InputError, OSError: see `Outputs`.
    """
    with Outputs([path], overwrite=overwrite).temporaries() as (temporary,):
        yield temporary


def write_json(path: PathLike, value: object, *, overwrite: bool = True) -> None:
    """Write `value` as JSON by `atomic_write`."""
    with atomic_write(path, overwrite=overwrite) as temporary:
        text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
        if not text.isascii() and re.search("[\ud800-\udfff]", text):  # a name that is not UTF-8
            text = json.dumps(value, indent=1) + "\n"
        Path(temporary).write_text(text, encoding="utf-8")


# Parts of writing


@contextlib.contextmanager
def named_in_errors(path: PathLike) -> Iterator[None]:
    """Add a file's name to OSErrors without a name, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


def flush_to_disk(path: PathLike) -> None:
    """Flush a file to the disk (fsync)."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _flush(path: str) -> None:
    """Flush a file, or all files of a folder, to the disk."""
    if not os.path.isdir(path):
        flush_to_disk(path)
    for folder, _, files in os.walk(path):
        for file in files:
            flush_to_disk(os.path.join(folder, file))


@contextlib.contextmanager
def compressed(path: PathLike) -> Iterator[IO[bytes]]:
    """A file for writing, compressed if its name ends in .gz or .xz."""
    ending = os.path.splitext(path)[1].lower()
    with contextlib.ExitStack() as stack:
        file: Any = stack.enter_context(open(path, "wb"))
        if ending == ".gz":  # reproducible: without file name and time
            file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        elif ending == ".xz":
            file = stack.enter_context(lzma.open(file, "wb"))
        yield file


@contextlib.contextmanager
def text_file(path: PathLike) -> Iterator[TextIO]:
    """A file for UTF-8 text, compressed if its name ends in .gz or .xz."""
    with compressed(path) as file, io.TextIOWrapper(file, encoding="utf-8", newline="\n") as text:
        yield text
