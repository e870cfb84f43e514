"""Ctrl-C and SIGTERM during a run.

An interrupt between the update of the variables and the count of the step would save a state that
no run ever had, so the first interrupt is only noted, and raised where it does no harm.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

# Handlers that an application has set stay.
_REPLACEABLE = (signal.SIG_DFL, signal.default_int_handler)


class Interrupts:
    """Notes SIGINT and SIGTERM for `due`, which raises them as `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self._noted = False
        # A second interrupt was raised at once, perhaps within a step: the state must not be saved.
        self.insisted = False

    def due(self) -> None:
        """Raise the interrupt that was noted, if any."""
        if self._noted:
            self._noted = False
            raise KeyboardInterrupt

    def _handle(self, *_: Any) -> None:
        if self._noted:
            self.insisted = True
            raise KeyboardInterrupt
        self._noted = True

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals within the block; does nothing outside the main thread."""
        with _handler(self._handle, signal.SIGINT, signal.SIGTERM):
            yield
        self.due()


def killable() -> contextlib.AbstractContextManager[None]:
    """Let Ctrl-C end a wait inside TensorFlow, which Python's own handler cannot interrupt."""
    return _handler(signal.SIG_DFL, signal.SIGINT)


@contextlib.contextmanager
def _handler(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in numbers}
        before = {number: old for number, old in handlers.items() if old in _REPLACEABLE}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
