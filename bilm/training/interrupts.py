"""Ctrl-C and SIGTERM during a run.

An interrupt between the update of the variables and the count of the step would save a state that
no run ever had, so interrupts are held back while a step changes the model.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

_ASKED = (signal.SIGINT, signal.SIGTERM)
# Handlers that an application has set stay.
_OURS_TO_CHANGE = (signal.SIG_DFL, signal.default_int_handler)


class Interrupts:
    """Raises SIGINT and SIGTERM as `KeyboardInterrupt` where it does no harm.

    Attributes:
        interrupted_within_step: whether a second interrupt was raised while the first was held
            back, so that the state must not be saved.
    """

    def __init__(self) -> None:
        self.interrupted_within_step = False
        self._held = False
        self._asked = False

    def due(self) -> None:
        """Raise the interrupt that is held back, if any."""
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt

    def handle(self, *_: Any) -> None:
        """The signal handler."""
        if self._held and not self._asked:
            self._asked = True
            return
        self.interrupted_within_step = self._held
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raise an interrupt at the end of the outermost block; a second one at once."""
        outer, self._held = self._held, True
        try:
            yield
        finally:
            self._held = outer
        if not outer:
            self.due()


@contextlib.contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Handle the signals within the block; does nothing outside the main thread."""
    handling = Interrupts()
    with _handlers(handling.handle, _ASKED):
        yield handling


@contextlib.contextmanager
def killable() -> Iterator[None]:
    """Let Ctrl-C end a wait inside TensorFlow, which Python's own handler cannot interrupt."""
    with _handlers(signal.SIG_DFL, (signal.SIGINT,)):
        yield


@contextlib.contextmanager
def _handlers(handler: Any, numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Handle signals by `handler` within the block, unless the application has its own handler."""
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
