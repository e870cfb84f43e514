"""The process of a run: Ctrl-C and SIGTERM, and the lock of its folder.

An interrupt between the update of the variables and the count of the step would leave a state
that no run ever had, and it would be saved: it is held back while a step changes the model.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bilm.core.errors import InputError, shown
from bilm.files.reading import PathLike, require_name
from bilm.files.writing import folder_made

try:
    import fcntl
except ImportError:  # not on Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

LOCK_FILE = ".train.lock"
_PROCESS = "process "  # how a lock file begins
_ASKED = (signal.SIGINT, signal.SIGTERM)
# Handlers that an application has set stay.
_OURS_TO_CHANGE = (signal.SIG_DFL, signal.default_int_handler)


class Interrupts:
    """SIGINT and SIGTERM as `KeyboardInterrupt`, where it does no harm.

    Attributes:
        interrupted_within_step: an interrupt came through while it was held back, because it was
            the second one: the state is not to be saved.
    """

    def __init__(self) -> None:
        self.interrupted_within_step = False
        self._held = False
        self._asked = False

    def due(self) -> None:
        """Raise the interrupt that is held back, if there is one."""
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt

    def handle(self, *_: Any) -> None:
        """Take a signal."""
        if self._held and not self._asked:
            self._asked = True
            return
        self.interrupted_within_step = self._held
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Interrupts come at the end of the outermost block; a second one comes at once."""
        outer, self._held = self._held, True
        try:
            yield
        finally:
            self._held = outer
        if not outer:
            self.due()


@contextlib.contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Handle the signals within the block; outside the main thread nothing is changed."""
    handling = Interrupts()
    with _handlers(handling.handle, _ASKED):
        yield handling


@contextlib.contextmanager
def killable() -> Iterator[None]:
    """Let Ctrl-C end a wait within TensorFlow: Python's own handler would come when it is over."""
    with _handlers(signal.SIG_DFL, (signal.SIGINT,)):
        yield


@contextlib.contextmanager
def _handlers(handler: Any, numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Handle signals by `handler` within the block, where that is ours to change."""
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in numbers}
    ours = {number: old for number, old in before.items() if old in _OURS_TO_CHANGE}
    for number in ours:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in ours.items():
            signal.signal(number, old)


@contextlib.contextmanager
def folder_lock(folder: PathLike) -> Iterator[None]:
    """Keep other processes from training into a folder while the block runs.

    The folder is created if it is missing, and removed again if nothing was written into it.
    `.train.lock` names the process that holds the lock. The operating system releases the lock
    when that process ends, so a file left by a killed process does not block the next one.

    Raises:
        InputError: another process, or another run in this process, trains into the folder;
            `.train.lock` is not one of our lock files; or no folder can have this name.
        OSError: the folder cannot be written to.
    """
    with folder_made(require_name(folder)):
        path = Path(folder, LOCK_FILE)
        descriptor = _lock(path)
        try:
            yield
        finally:
            if descriptor is not None:
                try:
                    path.unlink(missing_ok=True)  # while still locked, so it cannot be another's
                finally:
                    os.close(descriptor)


def _lock(path: Path) -> int | None:
    """The descriptor that holds the lock; None where files cannot be locked."""
    while fcntl is not None:
        descriptor, is_kept = _open(path), False
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_free = True
            except BlockingIOError:
                is_free = False
            holder = _holder(path, descriptor)
            if not is_free:
                raise InputError(
                    f"{path.parent}: {holder or 'another process'} trains into this folder; wait "
                    "until it ends or stop it, or choose another folder."
                )
            # Its holder may have removed it between our opening and our locking.
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                is_kept = True
                with contextlib.suppress(OSError):  # the lock holds all the same
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
    """Open a lock file, but not through a link: locking rewrites the file, and removes it."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise _not_our_lock(path, "is a link") from error
        raise


def _holder(path: Path, descriptor: int) -> str:
    """What a lock file says about its process, perhaps an earlier one; "" if it is new.

    Raises:
        InputError: the file is not a lock file of ours.
    """
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
