"""Time of a run: since its begin, since the last checkpoint, and for a step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator


class Clock:
    """Counts steps and time.

    Args:
        clock: gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._n_steps = 0
        self._paused = 0.0
        self.start()

    def start(self) -> None:
        """The first step begins."""
        self._start = self._saved = self._first = self._last = self._clock()

    def step(self) -> float:
        """A step is done; return the seconds since the first one began."""
        self._last = self._clock()
        self._n_steps += 1
        if self._n_steps == 1:
            self._first, self._paused = self._last, 0.0
        return self._last - self._start

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The time of the block is not that of a step."""
        before = self._clock()
        try:
            yield
        finally:
            self._paused += self._clock() - before

    def saved(self) -> None:
        """A checkpoint is written."""
        self._saved = self._clock()

    def since_save(self) -> float:
        """Seconds since the last checkpoint, or since the start."""
        return self._clock() - self._saved

    def steps_per_second(self) -> float | None:
        """Rate of the steps after the first one, which compiles; None before there are any."""
        now = self._clock()
        seconds = now - self._first - self._paused
        return (self._n_steps - 1) / seconds if self._n_steps > 1 and seconds > 0 else None
