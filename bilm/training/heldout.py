"""The held-out text in training: when it is measured, what was best, when training should stop."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bilm.core.errors import InputError, NotFiniteError, require_at_least, shown
from bilm.training.evaluation import Perplexity
from bilm.training.replicas import ProcessGroup
from bilm.training.state import HeldoutState

logger = logging.getLogger(__name__)

# Times by which a perplexity may be higher from the states in which texts begin.
_LOST = 1.1
_UNITS = {"epoch": "epochs", "step": "steps", "min": "minutes"}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)?\s*(epoch|step|min)(?:s|utes?)?\s*")


@dataclass(frozen=True)
class Interval:
    """How often: every `number` epochs, steps or minutes.

    What happens by steps or epochs happens after the same steps however often a run is
    interrupted; what happens by minutes does not.
    """

    number: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> Interval:
        """Read "epoch", "2 epochs", "500 steps", "30min" and the like.

        Raises:
            InputError: it is no such text, or the number is no whole number of steps or epochs.
        """
        match = _FORM.fullmatch(text) if isinstance(text, str) else None
        number = float(match[1] or 1) if match else 0.0
        if match is None or number <= 0 or (match[2] != "min" and number % 1):
            raise InputError(
                f"heldout_every: epoch, 2epochs, 500steps, 30min or the like is expected, "
                f"not {shown(text)}."
            )
        return cls(number, _UNITS[match[2]])

    def falls_on(self, step: int, steps_per_epoch: int) -> bool:
        """Whether it is time after `step` steps of a run; never for minutes."""
        if self.unit == "minutes":
            return False
        length = self.number * (steps_per_epoch if self.unit == "epochs" else 1)
        return step > 0 and step % int(length) == 0


@dataclass
class Monitor:
    """Measures a held-out text with the model that is in training.

    Attributes:
        score: gives the perplexity of the text (of several workers, of this one's share), when it
            is called with the LSTM states of training, (1, ...) of each direction, or None.
        every: when to measure.
        patience: how many measurements may follow the best one; None is no bound.
        reset_rate: of the training, for a warning.
        group: the workers.
    """

    score: Callable[[Any], Perplexity]
    every: Interval
    patience: int | None = None
    reset_rate: float = 0.0
    group: ProcessGroup = field(default_factory=ProcessGroup)
    _last: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        require_at_least(1, patience=self.patience)

    def minutes_are_over(self) -> bool:
        """Whether to measure for the time that has gone by."""
        minutes = (time.monotonic() - self._last) / 60
        return self.every.unit == "minutes" and minutes >= self.every.number

    def should_stop(self, state: HeldoutState) -> bool:
        """Whether patience is at its end."""
        return self.patience is not None and state.since_best >= self.patience

    def measure(
        self, state: HeldoutState, global_step: int, training_states: Any = None
    ) -> tuple[Perplexity, HeldoutState]:
        """Score the text; return its perplexity and the new state.

        A warning is logged when the model does much better from `training_states`, (1, ...) of
        each direction, than from the states in which texts begin.

        Raises:
            NotFiniteError: the perplexity is not a number.
        """
        perplexity = self._score(training_states)
        self._last = time.monotonic()
        if math.isnan(perplexity):
            raise NotFiniteError(f"Step {global_step}: the held-out loss is not a number.")
        best, best_step, since = state.best, state.best_step, state.since_best + 1
        if state.n_predictions not in (None, perplexity.n_predictions):
            logger.warning("the held-out text is another one than before: its best starts anew")
            best = None
        if best is None or perplexity < best:
            best, best_step, since = float(perplexity), global_step, 0
        self._warn_if_lost(perplexity)
        now = HeldoutState(best, best_step, since, global_step, perplexity.n_predictions)
        return perplexity, now

    def _warn_if_lost(self, perplexity: Perplexity) -> None:
        lost = {name: x for name, x in perplexity.start_ratios().items() if x > _LOST}
        if lost and self.group.worker.is_chief:
            listed = " and ".join(f"{name} perplexity is {x:.3g} times" for name, x in lost.items())
            logger.warning(
                "sentences begin from LSTM states of zero, where this model does badly: its "
                "held-out %s what it is from the states of training. Vectors suffer as well. A "
                "reset_rate (it is %g) lets training visit zeros; dump_weights with_states writes "
                "weights that begin from other states.",
                listed,
                self.reset_rate,
            )

    def _score(self, training_states: Any) -> Perplexity:
        """The perplexity of the whole text, of which each worker scores its share."""
        share = None
        with self.group.deferred_errors():
            share = self.score(training_states)
        if share is not None and self.group.worker.is_alone:
            return share
        said = None if share is None else (share.losses.tolist(), share.n_predictions)
        losses, counts = zip(*self.group.all_gather(said), strict=True)
        whole = Perplexity.of_losses(np.sum(losses, axis=0), sum(counts))
        whole.unknown = None if share is None else share.unknown  # of this worker's share
        whole.start_ratio = None if share is None else share.start_ratio
        return whole
