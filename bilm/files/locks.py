"""Locks that keep two processes from writing to the same folder."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from bilm.core.errors import InputError
from bilm.files.reading import PathLike, require_path

TRAINING_LOCK = ".train.lock"

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def training_lock(folder: PathLike) -> Iterator[None]:
    """Create a folder, and lock it against other training processes for the block."""
    folder = require_path(folder)
    os.makedirs(folder, exist_ok=True)
    with locked(Path(folder, TRAINING_LOCK), "trains into this folder"):
        yield


@contextlib.contextmanager
def locked(path: Path, doing: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path` for the block, and remove it at the end.

    The lock file names the process that holds it. The operating system releases the lock when that
    process ends, so a file left by a killed process does not block others. On file systems without
    locks, the block runs without a lock.

    Args:
        doing: activity of the holder in messages, such as "trains into this folder".
        wait: wait for another holder instead of raising an error.
    """
    file = _lock(path, doing, wait)
    if file is None:
        yield
        return
    with file:
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            yield
        finally:
            path.unlink(missing_ok=True)  # still locked, so it cannot be another process's


def _not_a_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _lock(path: Path, doing: str, wait: bool) -> TextIO | None:
    """The open file that holds the lock; None on a file system without locks."""
    while True:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(path, "a+", encoding="utf-8", opener=_not_a_link))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise InputError(
                    f"{path.parent}: {holder} {doing}; wait until it ends or stop it, or choose "
                    "another folder."
                ) from None
            except OSError as error:
                logger.warning("%s: cannot be locked: %s", path, error.strerror)
                return None
            # The last holder may have removed the file between our opening and our locking.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    stack.pop_all()
                    return file
