"""How far a long job has come, shown on standard error to whoever asks for it."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID

# True: on standard error; a function is called with (sentences, tokens) so far; None: on standard
# error if the logger of the package is at INFO.
ShowProgress = bool | Callable[[int, int], None] | None

# All in seconds: between two measurements of the rate, between two lines of a log, the time that
# a rate is taken over, and the time that is too short for one.
_SAMPLE_INTERVAL = 0.1
_LINE_INTERVAL = 20.0
_RATE_PERIOD = 600.0
_SHORTEST_RATE = 0.5
_MEGABYTE = 1_000_000


class ProgressDisplay:
    """Shows how much of a job is done, how fast it goes, and how much time is left.

    On a terminal a line with a bar is kept up to date. Elsewhere a plain line is written at most
    every 20 seconds, and at the end of each step of the job. Nothing is written before the first
    `update`. It is a context manager.

    Args:
        stream: where to write; None is standard error.
        clock: gives seconds.
        quiet: show nothing.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        quiet: bool = False,
    ) -> None:
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._progress = _make_progress(self._stream, clock)
        self._task: TaskID | None = None
        self._doing = ""
        self._latest: dict[str, Any] = {}
        self._next_sample = self._next_line = 0.0
        self._last_line = ""

    def update(
        self, doing: str, done: int, total: int | None = None, unit: str = "", detail: str = ""
    ) -> None:
        """Show the job's progress, if it is time for it.

        Args:
            doing: the step of the job, such as "counting". The rate begins anew with each step.
            done: how much of the step is done.
            total: how much there is to do; None if that is not known.
            unit: of both, which the rate is given in; "bytes" are shown as MB. "" gives no rate.
            detail: more to show.
        """
        if self._quiet:
            return
        if doing != self._doing or self._task is None:
            self._end_step()
            self._task = self._begin_step(doing, done, total)
        self._latest = {"completed": done, "total": total, "unit": unit, "detail": detail}
        now = self._clock()
        ended = total is not None and done >= total
        if now < self._next_sample and not ended:
            return
        self._next_sample = now + _SAMPLE_INTERVAL
        self._progress.update(self._task, **self._latest)
        if not self._terminal and (ended or now >= self._next_line):
            self._next_line = now + _LINE_INTERVAL
            self._write_line()

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *error: object) -> None:
        """Show where the job has ended, and leave the terminal as it was."""
        self._end_step()
        if self._terminal:
            self._progress.stop()

    def _begin_step(self, doing: str, done: int, total: int | None) -> TaskID:
        if self._terminal:
            self._progress.start()
        self._doing, self._last_line = doing, ""
        self._next_sample = self._next_line = 0.0
        task = self._progress.add_task(doing, True, total, done, unit="", detail="")
        # The rate counts from here.
        self._progress.advance(task, 0)
        return task

    def _end_step(self) -> None:
        if self._task is None:
            return
        self._progress.update(self._task, **self._latest)
        if not self._terminal:
            self._write_line()

    def _write_line(self) -> None:
        line = _line_of(self._progress.tasks[-1])
        if line != self._last_line:
            self._last_line = line
            self.note(line)


def _make_progress(stream: TextIO, clock: Callable[[], float]) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn
    from rich.text import Text

    class Line(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_line_of(task), no_wrap=True, overflow="ellipsis")

    return Progress(
        BarColumn(bar_width=12),
        Line(),
        console=Console(file=stream, emoji=False),
        refresh_per_second=4,
        speed_estimate_period=_RATE_PERIOD,
        get_time=clock,
        # Results go to standard output, which is not ours.
        redirect_stdout=False,
    )


def _line_of(task: Task) -> str:
    """What is said of a step: its name, amount and detail, the rate, and the time left."""
    unit, detail = task.fields["unit"], task.fields["detail"]
    scale = 1
    if unit == "bytes":
        small = task.total is not None and task.total < 10 * _MEGABYTE
        scale, unit = (1000, "kB") if small else (_MEGABYTE, "MB")
    amount = f"{task.completed / scale:,.0f}"
    if task.total is not None:
        amount += f"/{task.total / scale:,.0f}"
    parts = [f"{task.description} {amount} {unit}".rstrip(), detail]
    measured = (task.elapsed or 0) >= _SHORTEST_RATE
    if measured and task.speed and scale > 1:
        parts.append(f"{task.speed / _MEGABYTE:,.1f} MB/s")
    elif measured and task.speed and unit:
        parts.append(f"{task.speed:,.0f} {unit}/s")
    if measured and task.time_remaining:
        parts.append(f"{duration(task.time_remaining)} left")
    return "  ".join(filter(None, parts))


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


@contextlib.contextmanager
def encoding_progress(show_progress: ShowProgress) -> Iterator[Callable[[int, int], None]]:
    """What an argument `show_progress` asks for: a function of the sentences and tokens so far."""
    if show_progress is None:
        show_progress = logging.getLogger("bilm").isEnabledFor(logging.INFO)
    if callable(show_progress):
        yield show_progress
    elif not show_progress:
        yield lambda n_sentences, n_tokens: None
    else:
        with ProgressDisplay() as display:
            display.update("embedding", 0, None, "tokens")
            yield lambda n_sentences, n_tokens: display.update(
                "embedding", n_tokens, None, "tokens", f"{n_sentences:,} sentences"
            )
