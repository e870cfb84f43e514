"""Parse durations and intervals: "30min", "2h", "500 steps"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bilm.core.errors import InputError, shown

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
