"""Ctrl-C and SIGTERM during a run.

An interrupt between the update of the variables and of the step count would save an inconsistent
state, so the first interrupt is only recorded, and raised later at a safe point.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from bilm.terminal import end_orderly

# Other handlers, set by the application, are kept.
_REPLACEABLE = (signal.SIG_DFL, signal.default_int_handler, end_orderly)


class Interrupts:
    """Records SIGINT and SIGTERM; `due` raises them as `KeyboardInterrupt`. A second signal is
    raised at once."""

    def __init__(self) -> None:
        self._is_recorded = False

    def due(self) -> None:
        """Raise a recorded interrupt."""
        if self._is_recorded:
            self._is_recorded = False
            raise KeyboardInterrupt

    def _handle(self, *_: Any) -> None:
        if self._is_recorded:
            raise KeyboardInterrupt
        self._is_recorded = True

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals within the block, in the main thread only."""
        with _handler(self._handle, signal.SIGINT, signal.SIGTERM):
            yield
        self.due()


def killable() -> contextlib.AbstractContextManager[None]:
    """Let Ctrl-C end a wait inside TensorFlow, which Python's own handler cannot interrupt."""
    return _handler(signal.SIG_DFL, signal.SIGINT)


@contextlib.contextmanager
def _handler(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    previous: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in numbers}
        previous = {number: old for number, old in handlers.items() if old in _REPLACEABLE}
    for number in previous:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)
