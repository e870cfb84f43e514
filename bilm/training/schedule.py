"""The length of a run and its learning rates, in tokens: predictions per direction.

Steps do not measure progress, because a resumed run may have a different batch size.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from dataclasses import dataclass
from typing import Any

from bilm.core.options import Options

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The length of a run, and where its rates rise and fall: positions in its tokens."""

    end: int | None  # None in a run by time while its speed is measured
    start: int = 0  # start of the warm-up: 0, or the former end of an extended run
    warmup: int = 0  # end of the warm-up
    decay: int = 0  # start of the decay
    seconds: float | None = None  # time limit of a run by time
    # The options that determine the plan: n_epochs, n_steps, n_train_tokens, warmup_steps.
    settings: tuple[int | None, ...] = ()

    @classmethod
    def with_end(cls, end: int, warmup: int, start: int = 0, **facts: Any) -> Plan:
        """A plan whose decay follows its warm-up. The warm-up takes at most half of the run, so
        that the rate falls in short runs too."""
        warmup = start + min(warmup, max(1, (end - start) // 2))
        return cls(end, start, warmup, warmup, **facts)

    @classmethod
    def from_options(cls, options: Options, tokens_per_step: int, start: int = 0) -> Plan:
        """The plan by `n_steps`, or by `n_epochs` if it is None."""
        n_steps = options.n_steps
        if n_steps is None:
            n_steps = (options.n_epochs or 1) * steps_per_epoch(options, tokens_per_step)
        end, warmup = (n * tokens_per_step for n in (n_steps, options.warmup_steps))
        return cls.with_end(end, warmup, start, settings=_settings(options))

    @classmethod
    def by_time(cls, seconds: float, options: Options, tokens_per_step: int) -> Plan:
        """The plan of a run by time, whose end is set by `fixed`."""
        warmup = options.warmup_steps * tokens_per_step
        return cls(None, 0, warmup, warmup, seconds, _settings(options))

    def fixed(self, position: int, end: int, options: Options) -> Plan:
        """The plan of a run by time with an end: rates fall from `position` to `end`."""
        plan = self.with_end(end, self.warmup, settings=_settings(options), seconds=self.seconds)
        return dataclasses.replace(plan, decay=max(plan.decay, position))

    def resumed(self, options: Options, position: int, tokens_per_step: int) -> Plan:
        """The plan of a run resumed at `position`, whose options may have a new length.

        If a finished run is extended, its rates rise and fall once more.
        """
        is_unchanged = self.settings == _settings(options)
        if is_unchanged or (options.n_steps is None and options.n_epochs is None):
            return self
        ended = self.end is not None and position >= self.end
        plan = self.from_options(options, tokens_per_step, position if ended else self.start)
        if plan.end is None or plan.end <= position:
            return self if ended else plan
        if ended and options.schedule != "constant":
            logger.warning(
                "the run had ended, with learning rates of zero, and is made longer: they rise "
                "again in a warm-up of %s tokens, and fall to zero at %s tokens",
                f"{plan.warmup - position:,}", f"{plan.end:,}",
            )  # fmt: skip
        return plan

    def factor(self, kind: str, position: int, tokens_per_step: int) -> float:
        """The factor of the rates for a step that starts at `position`."""
        if position < self.warmup:
            risen = (position + tokens_per_step - self.start) / (self.warmup - self.start)
            return min(1.0, risen)
        if kind == "constant" or self.end is None or position < self.decay:
            return 1.0
        done = min(1.0, (position - self.decay) / max(1, self.end - self.decay))
        return 1.0 - done if kind == "linear" else (1.0 + math.cos(math.pi * done)) / 2


def steps_per_epoch(options: Options, tokens_per_step: int) -> int:
    """The complete steps of a pass over the training text, at least 1."""
    return max(1, (options.n_train_tokens or 0) // tokens_per_step)


def _settings(options: Options) -> tuple[int | None, ...]:
    return (options.n_epochs, options.n_steps, options.n_train_tokens, options.warmup_steps)
