"""A folder is of one run at a time: a lock that goes with its process, however that ends."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from bilm.errors import InputError
from bilm.files import PathLike

try:
    import fcntl
except ImportError:  # not on Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

LOCK_FILE = ".train.lock"


@contextlib.contextmanager
def sole_use(folder: PathLike) -> Iterator[None]:
    """Keep other processes from training into a folder while the block runs.

    The folder is made when it is missing, and goes again if nothing has been written into it.
    The file `.train.lock` says who holds it. The lock is the system's: when the process has died,
    the file may still be there, and holds nobody up.

    Raises:
        InputError: another process, or another run of this one, trains into the folder.
        OSError: the folder cannot be written to.
    """
    was_there = os.path.isdir(folder)
    os.makedirs(folder, exist_ok=True)
    path = Path(folder, LOCK_FILE)
    descriptor = _lock(path)
    try:
        yield
    finally:
        if descriptor is not None:
            path.unlink(missing_ok=True)  # before it is free: nobody else's can be removed
            os.close(descriptor)
        if not was_there:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # which is an error if it is not empty


def _lock(path: Path) -> int | None:
    """The descriptor that holds the lock; None where files cannot be locked."""
    while fcntl is not None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode("utf-8", "replace").strip()
            os.close(descriptor)
            raise InputError(
                f"{path.parent}: {holder or 'another process'} trains into this folder; wait for "
                "its end or stop it, or choose another folder."
            ) from None
        except OSError as error:
            os.close(descriptor)
            logger.warning("%s: cannot be locked: %s", path, error.strerror)
            return None
        if _is_still(path, descriptor):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
            return descriptor
        os.close(descriptor)  # its holder removed it between our opening and our locking
    return None


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
