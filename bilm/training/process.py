"""The process of a run: Ctrl-C and SIGTERM, and the lock of its folder.

An interrupt between the update of the variables and the count of the step would leave a state
that no run ever had, and it would be saved: it is held back while a step changes the model.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bilm.files.locks import locked
from bilm.files.reading import PathLike, require_name
from bilm.files.writing import folder_made

LOCK_FILE = ".train.lock"
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

    The folder is created if it is missing, and removed again if nothing was written into it. The
    lock file is `.train.lock`; see `bilm.files.locks.locked`.

    Raises:
        InputError: another process, or another run in this process, trains into the folder;
            `.train.lock` is not one of our lock files; or no folder can have this name.
        OSError: the folder cannot be written to.
    """
    path = Path(require_name(folder), LOCK_FILE)
    with folder_made(folder), locked(path, "trains into this folder"):
        yield
