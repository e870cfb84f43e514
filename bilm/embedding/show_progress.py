"""How far a long call has come, for whoever asked to see it."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

# True: on standard error; a function is called with (sentences, tokens) so far; None: if the
# logger of the package is at INFO.
ShowProgress = bool | Callable[[int, int], None] | None

_INTERVAL = 0.5


class Progress:
    """Is told how far a call has come, and that it is over; this one shows nothing."""

    def show(self, n_sentences: int, n_tokens: int) -> None:
        """So many sentences and tokens are done."""

    def close(self) -> None:
        """The call is over."""


def progress_for(show_progress: ShowProgress) -> Progress:
    """The `Progress` that an argument `show_progress` asks for."""
    if show_progress is None:
        show_progress = logging.getLogger("bilm").isEnabledFor(logging.INFO)
    if callable(show_progress):
        return _Function(show_progress)
    return _Line() if show_progress else Progress()


class _Function(Progress):
    def __init__(self, function: Callable[[int, int], None]) -> None:
        self._function = function

    def show(self, n_sentences: int, n_tokens: int) -> None:
        self._function(n_sentences, n_tokens)


class _Line(Progress):
    """A line on standard error that renews itself, not too often."""

    def __init__(self) -> None:
        self._start = self._shown = time.monotonic()
        self._text = ""

    def show(self, n_sentences: int, n_tokens: int) -> None:
        now = time.monotonic()
        rate = n_tokens / max(now - self._start, 1e-3)
        self._text = f"{n_sentences:,} sentences  {n_tokens:,} tokens  {rate:,.0f} tokens/s"
        if now - self._shown >= _INTERVAL:
            self._shown = now
            self._write("\r" + self._text)

    def close(self) -> None:
        if self._text:
            self._write(f"\r{self._text}\n")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
