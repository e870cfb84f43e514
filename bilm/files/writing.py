"""Output files: checked before the work, written under a hidden name, renamed when complete.

Until it is complete, NAME is `.NAME.partial` in the same folder, locked against other processes. A
killed run leaves that file, and the next run overwrites it.
"""

import contextlib
import errno
import fcntl
import gzip
import io
import json
import logging
import lzma
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TextIO

from bilm.core.errors import InputError
from bilm.files.reading import PathLike, must_be_new, require_path

logger = logging.getLogger(__name__)

_PARTIAL = ".partial"
_MOST_LOCKS = 100  # a process may open a limited number of files, and a text has many shards

Inputs = Mapping[str, PathLike | Iterable[PathLike] | None]


class Outputs:
    """The files that a command or a function writes; checked here, before the work.

    `temporaries` yields names to write to, and renames the files when its block succeeds, one after
    the other. The first file, without which the others are useless, is renamed last. A file that
    appeared in the meantime is not replaced without `overwrite`.

    Args:
        paths: files, and complete folders (also in `folders`); None is skipped. A link to a file or
            folder stands for its target.
        inputs: input files by argument name; they must not be overwritten.
        overwrite: replace existing files. An existing folder is replaced only if it holds the
            first file of `replaces`, and no files but these.
        allowed_by: flag or argument that allows overwriting, for messages.
        folders: folders of some of `paths` that are created if missing.
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
        self.updated = [self._check_path(path) for path in updated if path is not None]
        self._overwrite, self._replaces = overwrite, replaces
        _require_distinct([*self.paths, *self.updated], inputs or {})
        existing = [path for path in self.paths if _is_taken(path)]
        if existing and not overwrite:
            raise overwritten(*existing, allowed_by=allowed_by)
        for path in filter(os.path.isdir, existing):
            _require_only(path, replaces)

    def _check_path(self, path: PathLike) -> str:
        """The path of an output, with links resolved, if a file can be written there."""
        name = require_path(path)
        is_folder = _folder_name(name) in self._folders
        if is_folder:
            name = _folder_name(name)
        elif os.path.islink(name) and os.path.isfile(name):
            name = os.path.realpath(name)
        folder, file = os.path.split(name)
        for path in {name, folder} & self._folders:
            if os.path.lexists(path) and not os.path.isdir(path):
                raise InputError(f"{path!r} must be a folder or not exist.")
        if is_folder and os.path.lexists(old := _old_name(name)):
            raise InputError(f"{old!r} was left by a killed run: rename it, or remove it.")
        if not is_folder:
            if folder and folder not in self._folders and not os.path.isdir(folder):
                raise FileNotFoundError(
                    f"The folder {folder!r} to write {file!r} into does not exist."
                )
            if not file or (os.path.lexists(name) and not os.path.isfile(name)):
                raise InputError(f"{name!r} must be a regular file or not exist.")
        folder = folder or os.curdir
        if os.path.isdir(folder) and not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        with contextlib.suppress(FileNotFoundError):
            os.lstat(partial_name(name))  # raises an error for a name that is too long
        return name

    @contextlib.contextmanager
    def temporaries(self) -> Iterator[list[str]]:
        """Yield names to write to; rename the files after the block, which must write them all.
        Folders are created before it. If the block fails, nothing is renamed.

        Raises:
            InputError: another process writes a file, or it appeared in the meantime.
            OSError: the disk is full or fails; the error names a path.
        """
        with contextlib.ExitStack() as stack:
            names = []
            for number, path in enumerate(self.paths):
                above = os.path.dirname(path)
                if above and not os.path.isdir(above):
                    os.makedirs(above)
                    stack.callback(_remove_if_empty, above)
                is_folder, is_locked = path in self._folders, number < _MOST_LOCKS
                names.append(stack.enter_context(_partial(path, is_folder, is_locked)))
            with named_in_errors(self.paths[0] if self.paths else ""):
                yield names
                for name in names:
                    _flush(name)
            appeared = [path for path in self.paths if _is_taken(path)]
            if appeared and not self._overwrite:
                raise overwritten(*appeared)
            for name, path in reversed(list(zip(names, self.paths, strict=True))):
                self._rename(name, path)

    def _rename(self, name: str, path: str) -> None:
        """Rename the complete file or folder `name` to `path`."""
        if not os.path.isdir(name):
            _rename_file(name, path, not must_be_new(path) and self._overwrite)
        elif _is_taken(path):
            _require_only(path, self._replaces)  # again: files may have been added during the work
            os.rename(path, _old_name(path))
            os.rename(name, path)
            _remove(_old_name(path))
        else:
            os.rename(name, path)  # `path` may be an empty folder


def overwritten(*paths: PathLike, allowed_by: str | None = None) -> InputError:
    """The error for files or folders that would be overwritten; `allowed_by` is the flag or
    argument that allows it."""
    names = ", ".join(repr(os.fspath(path)) for path in paths)
    how = f": {allowed_by} allows it" if allowed_by else ""
    return InputError(f"{names} would be overwritten{how}.")


def partial_name(path: PathLike) -> str:
    """The name of a file or folder until it is complete."""
    folder, name = os.path.split(os.fspath(path))
    return os.path.join(folder, f".{name}{_PARTIAL}")


def _old_name(folder: str) -> str:
    """The name of a folder until its replacement has its name."""
    return partial_name(folder).removesuffix(_PARTIAL) + ".old"


@contextlib.contextmanager
def locked(path: PathLike, problem: str) -> Iterator[None]:
    """Lock a file or folder against other processes for the block. A missing file is created, and
    an empty one removed at the end.

    The operating system releases the lock when the process ends. On a file system without locks,
    the block runs without a lock.

    Args:
        problem: message of the InputError if another process holds the lock.
    """
    while True:
        with contextlib.ExitStack() as stack:
            flags = os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT
            file = os.open(path, flags | os.O_NOFOLLOW, 0o666)
            stack.callback(os.close, file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(problem) from None
            except OSError as error:
                logger.warning("%s: cannot be locked: %s", path, error.strerror)
            # The last holder may have renamed or removed the file before we locked it.
            if not _is_open_file(path, file):
                continue
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # such as a folder
                    if _is_open_file(path, file) and not os.fstat(file).st_size:
                        os.remove(path)
            return


def _is_open_file(path: PathLike, file: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(file))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _partial(path: str, is_folder: bool, is_locked: bool) -> Iterator[str]:
    """Lock the file or empty folder `partial_name(path)` for the block; remove it if that fails."""
    name = partial_name(path)
    if is_folder:
        os.makedirs(name, exist_ok=True)
    lock = locked(name, f"{path!r}: another process writes it.")
    with lock if is_locked else contextlib.nullcontext():
        for entry in os.scandir(name) if is_folder else ():  # left by a killed run
            _remove(entry.path)
        try:
            yield name
        except BaseException:
            _remove(name)
            raise


@contextlib.contextmanager
def work_folder(path: PathLike) -> Iterator[str]:
    """An empty, locked folder for the block, with the `partial_name` of `path`. After a kill, the
    next run empties it."""
    with _partial(os.fspath(path), is_folder=True, is_locked=True) as name:
        yield name
        _remove(name)


def _rename_file(name: str, path: str, overwrite: bool) -> None:
    if overwrite:
        with contextlib.suppress(OSError):
            os.chmod(name, stat.S_IMODE(os.stat(path).st_mode))
        os.replace(name, path)
        return
    try:
        os.link(name, path)
    except OSError:  # such as of a file system without hard links
        if os.path.lexists(path):
            raise overwritten(path) from None
        os.rename(name, path)
    else:
        os.remove(name)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def _remove_if_empty(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(folder)


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


def _is_taken(path: str) -> bool:
    """Whether the name exists and is not an empty folder."""
    is_empty = os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path)
    return os.path.lexists(path) and not is_empty


def _folder_name(path: PathLike) -> str:
    """The name of a folder to write; a link to a folder stands for its target."""
    name = require_path(path).rstrip(os.sep) or os.sep
    return os.path.realpath(name) if os.path.islink(name) and os.path.isdir(name) else name


# A single file


@contextlib.contextmanager
def atomic_write(path: PathLike, *, overwrite: bool = True) -> Iterator[str]:
    """Yield a temporary name for the file `path`; see `Outputs`."""
    with Outputs([path], overwrite=overwrite).temporaries() as (temporary,):
        yield temporary


def write_json(path: PathLike, value: object) -> None:
    """Write `value` as JSON by `atomic_write`."""
    with atomic_write(path) as temporary:
        fill_json(temporary, value)


def fill_json(path: PathLike, value: object) -> None:
    """Write `value` as JSON into one of the files of `temporaries`."""
    text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    if not text.isascii() and re.search("[\ud800-\udfff]", text):  # a name that is not UTF-8
        text = json.dumps(value, indent=1) + "\n"
    Path(path).write_text(text, encoding="utf-8")


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
    with named_in_errors(path), open(path, "rb") as file:
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
    """A file for writing, compressed if its name, also of `partial_name`, ends in .gz or .xz."""
    ending = os.path.splitext(os.fspath(path).removesuffix(_PARTIAL))[1].lower()
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
