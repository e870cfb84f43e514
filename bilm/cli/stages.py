"""What a job over files shows of its progress: how far it is, how fast, and when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bilm.cli.progress import ProgressLine, duration

if TYPE_CHECKING:
    from bilm.files import Stage

_MEGABYTE = 1_000_000
# A rate of less time than this says nothing.
_LEAST_SECONDS = 0.5


class StageLine:
    """Shows the `Stage` events of a job, with the rate and the time to the end of each step.

    Args:
        line: where to show them.
        clock: gives seconds.
    """

    def __init__(self, line: ProgressLine, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = line
        self._clock = clock
        self._doing = ""
        self._begin = 0.0
        self._ended = False

    def __call__(self, stage: Stage) -> None:
        """Show one event."""
        if stage.doing != self._doing:
            self._doing = stage.doing
            self._begin = self._clock()
            self._ended = False
        if self._ended:
            return
        self._ended = ended = stage.total is not None and stage.done >= stage.total
        seconds = self._clock() - self._begin
        self._line.show(f"{_amount(stage)}{_speed(stage, seconds)}", last=ended)


def _amount(stage: Stage) -> str:
    scale, unit = 1, stage.unit
    if unit == "bytes":
        small = stage.total is not None and stage.total < 10 * _MEGABYTE
        scale, unit = (1000, "kB") if small else (_MEGABYTE, "MB")
    done = f"{stage.doing}  {stage.done / scale:,.0f}"
    if stage.total is None:
        return f"{done} {unit}"
    return f"{done} of {stage.total / scale:,.0f} {unit}"


def _speed(stage: Stage, seconds: float) -> str:
    if stage.unit != "bytes" or not stage.done or seconds < _LEAST_SECONDS:
        return ""
    rate = stage.done / seconds
    if stage.total is None or stage.done >= stage.total:
        return f"  {rate / _MEGABYTE:,.1f} MB/s"
    left = (stage.total - stage.done) / rate
    return f"  {rate / _MEGABYTE:,.1f} MB/s  {duration(left)} to go"
