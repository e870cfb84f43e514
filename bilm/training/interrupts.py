"""Ctrl-C and the polite request to end, held back while a step changes the model.

An interrupt between the update of the variables and the count of the step would leave a state
that no run ever had, and it would be saved.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_ASKED = (signal.SIGINT, signal.SIGTERM)
# Handlers that an application has set stay.
_OURS_TO_CHANGE = (signal.SIG_DFL, signal.default_int_handler)


class Interrupts:
    """SIGINT and SIGTERM as `KeyboardInterrupt`, at the places where it does no harm.

    Attributes:
        is_torn: an interrupt came through while it was held back, because it was the second one:
            the state is not to be saved.
    """

    def __init__(self) -> None:
        self.is_torn = False
        self._held = False
        self._asked = False

    def due(self) -> None:
        """Raise the interrupt that is held back, if there is one."""
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._held and not self._asked:
            self._asked = True
            return
        self.is_torn = self._held
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
    before: dict[Any, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _ASKED}
        for number, handler in before.items():
            if handler in _OURS_TO_CHANGE:
                signal.signal(number, handling._handle)
    try:
        yield handling
    finally:
        for number, handler in before.items():
            if handler in _OURS_TO_CHANGE:
                signal.signal(number, handler)


@contextlib.contextmanager
def killable() -> Iterator[None]:
    """Let Ctrl-C end the process at once, where it waits within TensorFlow and nothing is lost.

    Python's own handler would come when the wait is over.
    """
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not in_main or before not in _OURS_TO_CHANGE:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
