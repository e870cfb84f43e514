"""The held-out text in training: when to evaluate it, the best perplexity, when to stop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bilm.core.errors import NotFiniteError
from bilm.intervals import Interval
from bilm.training.evaluation import Perplexity
from bilm.training.replicas import ProcessGroup
from bilm.training.state import HeldoutState

logger = logging.getLogger(__name__)

# Warn if the perplexity from initial states exceeds that from training states by this factor.
_LOST = 1.1


@dataclass
class Monitor:
    """Evaluates a held-out text with the model in training.

    Attributes:
        score: returns the perplexity of the text, or of this worker's share, given the LSTM states
            of training, (1, ...) per direction, or None.
        every: when to evaluate.
        patience: end the run after this many evaluations without a new best; None: never.
        reset_rate: the run's reset rate, for a warning.
        group: the workers.
    """

    score: Callable[[Any], Perplexity]
    every: Interval
    patience: int | None = None
    reset_rate: float = 0.0
    group: ProcessGroup = field(default_factory=ProcessGroup)
    _last: float = field(default_factory=time.monotonic)

    def time_is_over(self) -> bool:
        """Whether the interval is a time, which has passed."""
        seconds = time.monotonic() - self._last
        return self.every.unit == "seconds" and seconds >= self.every.number

    def should_stop(self, state: HeldoutState) -> bool:
        """Whether patience is exhausted."""
        return self.patience is not None and state.since_best >= self.patience

    def measure(
        self, state: HeldoutState, global_step: int, training_states: Any = None
    ) -> tuple[Perplexity, HeldoutState]:
        """Score the text; return its perplexity and the new state.

        Logs a warning if the model does much better from `training_states`, (1, ...) per
        direction, than from the initial states.
        """
        perplexity = self._score(training_states)
        self._last = time.monotonic()
        if math.isnan(perplexity):
            raise NotFiniteError(f"Step {global_step}: the held-out loss is not a number.")
        best, best_step, since = state.best, state.best_step, state.since_best + 1
        if state.n_predictions not in (None, perplexity.n_predictions):
            logger.warning("the held-out text has changed: its best perplexity is measured again")
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
                "sentences start from LSTM states of zero, where this model does badly: its "
                "held-out %s the perplexity from the states of training. Vectors suffer as well. "
                "A reset_rate > 0 (now %g) lets training visit zeros; dump_weights with_states "
                "writes weights that start from the mean states of training.",
                listed,
                self.reset_rate,
            )

    def _score(self, training_states: Any) -> Perplexity:
        """The perplexity of the complete text, of which each worker scores its share."""
        share = None
        with self.group.deferred_errors():
            share = self.score(training_states)
        if share is not None and self.group.worker.is_alone:
            return share
        mine = None if share is None else (share.losses.tolist(), share.n_predictions)
        losses, counts = zip(*self.group.all_gather(mine), strict=True)
        total = Perplexity.of_losses(np.sum(losses, axis=0), sum(counts))
        if share is not None:
            total.unknown, total.start_ratio = share.unknown, share.start_ratio
        return total
