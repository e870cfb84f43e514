"""Progress of long jobs: events, their display on standard error; durations and intervals."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

from bilm.core.errors import InputError, shown

if TYPE_CHECKING:
    from rich.progress import Progress, Task

T = TypeVar("T")


class Stage(NamedTuple):
    """Progress of a job: `done` of `total` (None if unknown) in the step `doing`, such as
    "counting"."""

    doing: str
    done: int
    total: int | None
    unit: str = "bytes"  # as stored on the disk, shown as MB; "" hides the rate
    detail: str = ""  # more text to show


ShowStage = Callable[[Stage], None]


def quiet(stage: Stage) -> None:
    """A progress callback that does nothing."""


def counted(
    items: Iterable[T], progress: ShowStage, doing: str, total: int | None, unit: str
) -> Iterator[T]:
    """The items. `progress` is called when each is done, and before the first is computed, so that
    the rate includes its time."""
    progress(Stage(doing, 0, total, unit))
    for done, item in enumerate(items, start=1):
        yield item
        progress(Stage(doing, done, total, unit))


# True: show on standard error. A function is called with each `Stage`. None: show on standard error
# if the package's logger is at INFO.
ShowProgress = bool | ShowStage | None

# Seconds
_SAMPLE_INTERVAL = 0.1  # between two measurements of the rate
_LINE_INTERVAL = 20.0  # between two lines of a log
_RATE_PERIOD = 600.0  # over which the rate is averaged
_SHORTEST_RATE = 0.5  # before the first rate is shown
_MEGABYTE = 1_000_000
_BAR_WIDTH = 12


class ProgressDisplay:
    """Shows the progress of a job, its rate and the remaining time.

    On a terminal, one line is updated, and cut if it is too long. Elsewhere, a plain line is
    written at most every 20 seconds, and at the end of each step of the job. Nothing is written
    before the first `show`. It is a context manager.

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
        stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._clock = clock
        self._terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._progress = _make_progress(stream, clock)
        self._task: Task | None = None
        self._latest: dict[str, Any] = {}
        self._next_sample = self._next_line = 0.0
        self._last_line = ""

    def show(self, stage: Stage) -> None:
        """Show the job's progress, if an update is due. Each step has its own rate."""
        if self._quiet:
            return
        doing, done, total, unit, detail = stage
        if self._task is None or self._task.description != doing:
            self._end_step()
            self._task = self._begin_step(doing, done, total)
        self._latest = {"completed": done, "total": total, "unit": unit, "detail": detail}
        now = self._clock()
        has_ended = total is not None and done >= total and not self._task.finished
        if now < self._next_sample and not has_ended:
            return
        self._next_sample = now + _SAMPLE_INTERVAL
        self._progress.update(self._task.id, **self._latest)
        if not self._terminal and (has_ended or now >= self._next_line):
            self._next_line = now + _LINE_INTERVAL
            self._write_line(self._task)

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

    def _begin_step(self, doing: str, done: int, total: int | None) -> Task:
        if self._terminal:
            self._progress.start()
        self._next_sample = self._next_line = 0.0
        task = self._progress.add_task(doing, True, total, done, unit="", detail="")
        self._progress.advance(task, 0)  # the rate is measured from here
        return self._progress.tasks[-1]

    def _end_step(self) -> None:
        if self._task is not None:
            self._progress.update(self._task.id, **self._latest)
            if not self._terminal:
                self._write_line(self._task)

    def _write_line(self, task: Task) -> None:
        line = _line_of(task)
        if line != self._last_line:
            self._last_line = line
            self.note(line)


def _make_progress(stream: TextIO, clock: Callable[[], float]) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn
    from rich.table import Column
    from rich.text import Text

    class Line(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_line_of(task))

    return Progress(
        BarColumn(_BAR_WIDTH),
        Line(Column(no_wrap=True, overflow="ellipsis")),
        console=Console(file=stream, emoji=False),
        refresh_per_second=4,
        speed_estimate_period=_RATE_PERIOD,
        get_time=clock,
        # Standard output is for results.
        redirect_stdout=False,
    )


def _line_of(task: Task) -> str:
    """A step's name, amount, time left, rate and detail."""
    unit, scale = task.fields["unit"], 1
    if unit == "bytes":
        is_small = task.total is not None and task.total < 10 * _MEGABYTE
        scale, unit = (1000, "kB") if is_small else (_MEGABYTE, "MB")
    amount = f"{task.completed / scale:,.0f}"
    if task.total is not None:
        amount += f"/{task.total / scale:,.0f}"
    parts = [f"{task.description} {amount} {unit}".rstrip()]
    if (task.elapsed or 0) >= _SHORTEST_RATE:
        if task.time_remaining:
            parts.append(f"{duration(task.time_remaining)} left")
        if task.speed and scale > 1:
            parts.append(f"{task.speed / _MEGABYTE:,.1f} MB/s")
        elif task.speed and unit:
            rate = f"{task.speed:,.0f}" if task.speed >= 1 else f"{task.speed:.1g}"
            parts.append(f"{rate} {unit}/s")
    return "  ".join(filter(None, [*parts, task.fields["detail"]]))


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
def encoding_progress(show_progress: ShowProgress) -> Iterator[ShowStage]:
    """The progress callback for an argument `show_progress`; stages count tokens."""
    if show_progress is None:
        show_progress = logging.getLogger("bilm").isEnabledFor(logging.INFO)
    if callable(show_progress) or not show_progress:
        yield show_progress or quiet
        return
    with ProgressDisplay() as display:
        display.show(Stage("embedding", 0, None, "tokens"))
        yield display.show


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COUNT = re.compile(r"([1-9]\d*)?\s*(epoch|step)s?")
DURATION_RULE = "must be a duration such as 30min or 2h"
INTERVAL_RULE = "must be epoch, 2epochs, 500steps, 30min or the like"


def parse_duration(text: str) -> float:
    """Seconds in "90s", "30min", "2h" or "1.5 days".

    >>> parse_duration("30min")
    1800.0
    """
    match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or not float(match[1]):
        raise InputError(f"time {DURATION_RULE}, got {shown(text)}.")
    return float(match[1]) * _SECONDS[match[2][0]]


@dataclass(frozen=True)
class Interval:
    """Every `number` epochs, steps or seconds.

    With epochs or steps, a resumed run evaluates after the same steps as an uninterrupted one.
    """

    number: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> Interval:
        """Read "epoch", "2 epochs", "500 steps", "30min" and the like."""
        match = _COUNT.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is not None:
            return cls(int(match[1] or 1), f"{match[2]}s")
        try:
            return cls(parse_duration(text), "seconds")
        except InputError:
            raise InputError(f"heldout_every {INTERVAL_RULE}, got {shown(text)}.") from None

    def falls_on(self, step: int, steps_per_epoch: int) -> bool:
        """Whether to evaluate after `step` steps of a run; always False for seconds."""
        if self.unit == "seconds":
            return False
        length = self.number * (steps_per_epoch if self.unit == "epochs" else 1)
        return step > 0 and step % int(length) == 0
