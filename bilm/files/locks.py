"""Locks that keep two processes from writing to the same folder."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from bilm.core.errors import InputError, shown

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

_PROCESS = "process "  # the beginning of a lock file


@contextlib.contextmanager
def locked(path: Path, doing: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path` for the block, and remove it at the end.

    The lock file names the process that holds it. The operating system releases the lock when that
    process ends, so a file left by a killed process does not block others. On file systems without
    locks, the block runs without a lock.

    Args:
        doing: activity of the holder, for messages: "trains into this folder".
        wait: wait for another holder; by default it is an error.
    """
    descriptor = _lock(path, doing, wait)
    try:
        yield
    finally:
        if descriptor is not None:
            try:
                path.unlink(missing_ok=True)  # while still locked, so it cannot be another's
            finally:
                os.close(descriptor)


def _lock(path: Path, doing: str, wait: bool) -> int | None:
    """The descriptor that holds the lock; None on a file system without locks."""
    while fcntl is not None:
        descriptor, is_kept = _open(path), False
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                is_free = True
            except BlockingIOError:
                is_free = False
            holder = _holder(path, descriptor)
            if not is_free:
                raise InputError(
                    f"{path.parent}: {holder or 'another process'} {doing}; wait until it ends or "
                    "stop it, or choose another folder."
                )
            # Its holder may have removed it between our opening and our locking.
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                is_kept = True
                with contextlib.suppress(OSError):  # the name is not essential
                    os.ftruncate(descriptor, 0)
                    name = f"{_PROCESS}{os.getpid()} on {socket.gethostname()}\n"
                    os.pwrite(descriptor, name.encode(), 0)
                return descriptor
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("%s: cannot be locked: %s", path, error.strerror)
            return None
        finally:
            if not is_kept:
                os.close(descriptor)
    return None


def _open(path: Path) -> int:
    """Open a lock file, but not through a link, because locking rewrites and removes the file."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise _not_our_lock(path, "is a link") from error
        raise


def _holder(path: Path, descriptor: int) -> str:
    """The process named in a lock file, maybe an earlier one; "" if the file is new."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise _not_our_lock(path, "is not a regular file")
    text = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()
    if text and not text.startswith(_PROCESS):
        raise _not_our_lock(path, f"holds {shown(text)}")
    return text


def _not_our_lock(path: Path, found: str) -> InputError:
    return InputError(
        f"{path} must be a lock file of bilm or not exist, but it {found}: move it away, or choose "
        "another folder."
    )
