"""How the learning rate changes over a run.

Adagrad makes its steps smaller by itself, and the original trained at one rate: that is the
default. A rate that falls to zero helps when the end of the run is known; a warm-up helps a model
that was trained before, whose accumulators start anew.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bilm.errors import InputError

SCHEDULES = ("constant", "linear", "cosine")


@dataclass(frozen=True)
class Schedule:
    """A factor of the options' learning rate for every step.

    Args:
        kind: after the warm-up the factor is 1 ("constant"), or falls from 1 to 0 at the end of
            the run along a line ("linear") or half a cosine ("cosine").
        warmup_steps: steps in which the factor rises from near 0 to 1; 0 is no warm-up.

    Raises:
        InputError: there is no such kind, or the number of steps is not one.
    """

    kind: str = "constant"
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULES:
            raise InputError(
                f"schedule: one of {', '.join(SCHEDULES)} is expected, not {self.kind!r}."
            )
        if not isinstance(self.warmup_steps, int) or self.warmup_steps < 0:
            raise InputError(
                f"warmup_steps: a whole number from 0 is expected, not {self.warmup_steps!r}."
            )

    def factor(self, step: int, n_steps: int) -> float:
        """The factor of a step.

        Args:
            step: counted from 0 over the whole run.
            n_steps: of the whole run.

        >>> [Schedule("linear", warmup_steps=2).factor(step, 6) for step in range(6)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
        """
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.kind == "constant":
            return 1.0
        done = min(1.0, (step - self.warmup_steps) / max(1, n_steps - self.warmup_steps))
        return 1.0 - done if self.kind == "linear" else (1.0 + math.cos(math.pi * done)) / 2

    def to_dict(self) -> dict[str, Any]:
        """The schedule as JSON takes it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Schedule:
        """A schedule from what `to_dict` gave."""
        return cls(**values)
