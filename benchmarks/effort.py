"""How much work a run puts into each row."""

from __future__ import annotations

import enum
from typing import TypeVar

T = TypeVar("T")


class Effort(enum.Enum):
    """FULL is for figures to publish, QUICK for the whole table within ten minutes on two cores.

    TRIAL shows that every row works, on the tiny network; its figures mean nothing.
    """

    FULL = "full"
    QUICK = "quick"
    TRIAL = "trial"

    def pick(self, full: T, quick: T, trial: T) -> T:
        """The one of the three that belongs to this effort."""
        return {Effort.FULL: full, Effort.QUICK: quick, Effort.TRIAL: trial}[self]

    def preset(self, name: str) -> str:
        """The preset to measure where a row is about `name`."""
        return "tiny" if self is Effort.TRIAL else name
