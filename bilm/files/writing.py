"""Results that appear whole or not at all, whatever ends the program that writes them."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import glob
import json
import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from bilm.core.errors import InputError
from bilm.files.reading import PathLike, require_name

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

# How file systems say that they have no links, or no more of them for a file.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


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
def named_in_errors(path: PathLike) -> Iterator[None]:
    """Add a file's name to errors of the disk that name none, such as that it is full."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


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
        with named_in_errors(path):
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


def require_alone(file: IO[Any], folder: str) -> None:
    """Lock an open file of a folder until it is closed, where the system can.

    Raises:
        InputError: another process has locked it.
    """
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(f"{folder}: another process is writing there.") from error
