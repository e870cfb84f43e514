"""Progress of long jobs, shown on standard error."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, Task, TaskID

# True: show on standard error. A function is called with (sentences, tokens) so far. None: show on
# standard error if the package's logger is at INFO.
ShowProgress = bool | Callable[[int, int], None] | None

# Seconds between two measurements of the rate, between two lines of a log, over which the rate is
# averaged, and before which none is shown.
_SAMPLE_INTERVAL = 0.1
_LINE_INTERVAL = 20.0
_RATE_PERIOD = 600.0
_SHORTEST_RATE = 0.5
_MEGABYTE = 1_000_000
_BAR_WIDTH = 12


class ProgressDisplay:
    """Shows the progress of a job, its rate and the remaining time.

    On a terminal one line is kept up to date; it fits the width by leaving out the bar first, then
    details. Elsewhere a plain line is written at most every 20 seconds, and at the end of each step
    of the job. Nothing is written before the first `update`. It is a context manager.

    Args:
        stream: where to write; None is standard error.
        clock: returns seconds.
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
        self._is_complete = False
        self._next_sample = self._next_line = 0.0
        self._last_line = ""

    def update(
        self,
        doing: str,
        done: int,
        total: int | None = None,
        unit: str = "",
        detail: str | Sequence[str] = "",
    ) -> None:
        """Show the job's progress, if it is time for it.

        Args:
            doing: the step of the job, such as "counting". Each step has its own rate.
            done: finished amount of the step.
            total: total amount; None if unknown.
            unit: unit of `done`, `total` and the rate; "bytes" are shown as MB. "" hides the rate.
            detail: more to show. Several texts are versions of different lengths, longest first; a
                terminal shows the first that fits.
        """
        if self._quiet:
            return
        if doing != self._doing or self._task is None:
            self._end_step()
            self._task = self._begin_step(doing, done, total)
        details = (detail,) if isinstance(detail, str) else tuple(detail)
        self._latest = {"completed": done, "total": total, "unit": unit, "details": details}
        now = self._clock()
        was_complete = self._is_complete
        self._is_complete = total is not None and done >= total
        ended = self._is_complete and not was_complete
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
        """Show the final state of the job and restore the terminal."""
        self._end_step()
        if self._terminal:
            self._progress.stop()

    def _begin_step(self, doing: str, done: int, total: int | None) -> TaskID:
        if self._terminal:
            self._progress.start()
        self._doing, self._last_line, self._is_complete = doing, "", False
        self._next_sample = self._next_line = 0.0
        task = self._progress.add_task(doing, True, total, done, unit="", details=("",))
        # The rate is measured from here.
        self._progress.advance(task, 0)
        return task

    def _end_step(self) -> None:
        if self._task is None:
            return
        self._progress.update(self._task, **self._latest)
        if not self._terminal:
            self._write_line()

    def _write_line(self) -> None:
        task = self._progress.tasks[-1]
        line = _line_of(task, task.fields["details"][0])
        if line != self._last_line:
            self._last_line = line
            self.note(line)


def _make_progress(stream: TextIO, clock: Callable[[], float]) -> Progress:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

    console = Console(file=stream, emoji=False)

    class Line(ProgressColumn):
        def render(self, task: Task) -> RenderableType:
            return _fitting_line(task, console)

    return Progress(
        Line(),
        console=console,
        refresh_per_second=4,
        speed_estimate_period=_RATE_PERIOD,
        get_time=clock,
        # Standard output is for results.
        redirect_stdout=False,
    )


def _fitting_line(task: Task, console: Console) -> RenderableType:
    """The bar and the line of a step; first the bar, then details are dropped to fit the width."""
    from rich.cells import cell_len
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    *_, shortest = lines = [_line_of(task, detail) for detail in task.fields["details"]]
    if cell_len(lines[0]) + _BAR_WIDTH + 1 < console.width:
        total = None if task.total is None else max(0, task.total)
        bar = ProgressBar(total, max(0, task.completed), _BAR_WIDTH, animation_time=task.get_time())
        grid = Table.grid(padding=(0, 1))
        grid.add_row(bar, Text(lines[0], no_wrap=True))
        return grid
    line = next((line for line in lines if cell_len(line) < console.width), shortest)
    return Text(line, no_wrap=True, overflow="ellipsis")


def _line_of(task: Task, detail: str) -> str:
    """A step's name, amount, detail, rate and time left."""
    unit = task.fields["unit"]
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
    """Seconds in words.

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
    """The function of (sentences, tokens) so far that an argument `show_progress` asks for."""
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
