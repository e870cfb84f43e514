"""How far a long job has come: one line that renews itself, or a line now and then in a log."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from bilm.training import TrainingProgress

# Seconds between two lines: of a terminal, and of a file, where every line stays.
_TERMINAL_INTERVAL = 0.2
_LOG_INTERVAL = 20.0


class ProgressLine:
    """Writes text about a running job to a stream, not too often.

    On a terminal a line takes the place of the one before; elsewhere there are few lines.

    Args:
        stream: where to write, as a rule sys.stderr.
        clock: gives seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._terminal = stream.isatty()
        self._next = 0.0
        self._width = 0

    def show(self, text: str, last: bool = False) -> None:
        """Show `text` if it is time for it; with `last` in any case."""
        now = self._clock()
        if now < self._next and not last:
            return
        self._next = now + (_TERMINAL_INTERVAL if self._terminal else _LOG_INTERVAL)
        if self._terminal:
            # A line that wraps could not be written over.
            text = text[: shutil.get_terminal_size().columns - 1]
            self._stream.write(f"\r{text.ljust(self._width)}")
            self._width = len(text)
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()
        if last:
            self.close()

    def add(self, text: str) -> None:
        """Write a line that stays."""
        self.close()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """End a line that stands on the terminal, so that other text begins on a new one."""
        if self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> [duration(s) for s in (7.4, 75, 3720, 200000)]
    ['7 s', '1 min 15 s', '1 h 02 min', '2 d 07 h']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


class TrainingLine:
    """Shows the progress events of `bilm.train`: place, perplexity, rate and time to the end.

    Args:
        line: where to show them.
        sampled: whether the loss is a sampled softmax's, whose perplexity is below the true one.
    """

    def __init__(self, line: ProgressLine, sampled: bool) -> None:
        self._line = line
        # Last in the line: a narrow terminal cuts it off.
        self._label = " (sampled)" if sampled else ""
        self._first: TrainingProgress | None = None

    def __call__(self, event: TrainingProgress) -> None:
        """Show one event."""
        if self._first is None:
            self._first = event
        text = (
            f"step {event.step:,}/{event.n_steps:,}  epoch {event.epoch}{self._speed(event)}  "
            f"perplexity {event.perplexity:,.1f}{self._label}"
        )
        self._line.show(text, last=event.step >= event.n_steps)
        if event.heldout is not None:
            self._line.add(_heldout(event))

    def _speed(self, event: TrainingProgress) -> str:
        """Rate and time to the end, from the second event on: the first step compiles."""
        first = self._first or event
        seconds = event.seconds - first.seconds
        if event.step <= first.step or seconds <= 0:
            return ""
        rate = (event.tokens - first.tokens) / seconds
        left = (event.n_steps - event.step) * seconds / (event.step - first.step)
        return f"  {rate:,.0f} tokens/s  {duration(left)} left"


def _heldout(event: TrainingProgress) -> str:
    """The held-out perplexity of an event in words."""
    perplexity = event.heldout
    if perplexity is None:
        return ""
    parts = ""
    if perplexity.backward is not None:
        parts = f" (forward {perplexity.forward:,.1f}, backward {perplexity.backward:,.1f})"
    best = ", the best so far" if event.is_best else ""
    return f"step {event.step:,}: held-out perplexity {float(perplexity):,.1f}{parts}{best}"
