"""The held-out text in training: when it is measured, what was best, when it is enough."""

from __future__ import annotations

import dataclasses
import logging
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilm.errors import InputError, NotFiniteError
from bilm.training.evaluation import Perplexity, Scorer, evaluate
from bilm.training.language_model import LanguageModel
from bilm.training.team import Team

logger = logging.getLogger(__name__)

# Times by which a perplexity may be higher from the states in which texts begin.
_LOST = 1.1
_UNITS = {"epoch": "epochs", "step": "steps", "min": "minutes"}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)?\s*(epoch|step|min)(?:s|utes?)?\s*")


@dataclass(frozen=True)
class Interval:
    """How often: every `number` epochs, steps or minutes.

    What happens by steps or epochs happens at the same places however often a run is
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
        match = _FORM.fullmatch(text)
        number = float(match[1] or 1) if match else 0.0
        if match is None or number <= 0 or (match[2] != "min" and number % 1):
            raise InputError(
                f"heldout_every: epoch, 2epochs, 500steps, 30min or the like is expected, "
                f"not {text!r}."
            )
        return cls(number, _UNITS[match[2]])

    def falls_on(self, step: int, steps_per_epoch: int) -> bool:
        """Whether it is time after `step` steps of a run; never for minutes."""
        if self.unit == "minutes":
            return False
        length = self.number * (steps_per_epoch if self.unit == "epochs" else 1)
        return step > 0 and step % int(length) == 0


@dataclass
class Standing:
    """What a checkpoint keeps of the held-out measurements.

    Attributes:
        best: lowest perplexity; None before the first measurement.
        best_step: global step of it.
        since_best: measurements since then.
        measured_at: global step of the last measurement.
        n_predictions: of the text, by which another text is noticed.
    """

    best: float | None = None
    best_step: int | None = None
    since_best: int = 0
    measured_at: int | None = None
    n_predictions: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The standing as JSON takes it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Standing:
        """A standing from what `to_dict` gave."""
        return cls(**values)


class Monitor:
    """Measures a held-out text with the model that is in training.

    Args:
        model: read as it stands, without dropout, with the full softmax.
        data: the held-out text, a data set of `bilm.data` or what `test` takes; of several
            workers each one's share of it.
        every: when to measure.
        patience: how many measurements may follow the best one; None is no bound.
        batch_size: rows at a time.
        team: the workers; None is one alone.
    """

    def __init__(
        self,
        model: LanguageModel,
        data: Any,
        every: Interval,
        patience: int | None = None,
        batch_size: int = 128,
        team: Team | None = None,
    ) -> None:
        if patience is not None and patience < 1:
            raise InputError(f"patience: a whole number from 1 is expected, not {patience!r}.")
        self._scorer = Scorer(model)
        self._data = data
        self._every = every
        self._patience = patience
        self._batch_size = batch_size
        self._team = team or Team()
        self._last = time.monotonic()

    def falls_on(self, step: int, steps_per_epoch: int) -> bool:
        """Whether to measure after `step` steps of the run."""
        return self._every.falls_on(step, steps_per_epoch)

    def minutes_are_over(self) -> bool:
        """Whether to measure for the time that has gone by."""
        minutes = (time.monotonic() - self._last) / 60
        return self._every.unit == "minutes" and minutes >= self._every.number

    def has_enough(self, standing: Standing) -> bool:
        """Whether patience is at its end."""
        return self._patience is not None and standing.since_best >= self._patience

    def measure(
        self, standing: Standing, global_step: int, training_states: Any = None
    ) -> tuple[Perplexity, Standing]:
        """Score the text; return its perplexity and the new standing.

        A warning is logged when the model does much better from `training_states`, (1, ...) of
        each direction, than from the states in which texts begin.

        Raises:
            NotFiniteError: the perplexity is not a number.
            InputError: the data holds nothing to score, or does not fit the model.
            WorkersError: another worker has gone, or had an error.
        """
        perplexity = self._score(training_states)
        self._last = time.monotonic()
        if math.isnan(perplexity):
            raise NotFiniteError(f"Step {global_step}: the held-out loss is not a number.")
        best, best_step, since = standing.best, standing.best_step, standing.since_best + 1
        if standing.n_predictions not in (None, perplexity.n_predictions):
            logger.warning("the held-out text is another one than before: its best starts anew")
            best = None
        if best is None or perplexity < best:
            best, best_step, since = float(perplexity), global_step, 0
        self._warn_if_lost(perplexity)
        return perplexity, Standing(best, best_step, since, global_step, perplexity.n_predictions)

    def _warn_if_lost(self, perplexity: Perplexity) -> None:
        names = ("forward", "backward")
        ratios = perplexity.start_ratio or ()
        lost = [(name, x) for name, x in zip(names, ratios, strict=False) if x > _LOST]
        if lost and self._team.worker.is_chief:
            listed = " and ".join(f"{name} perplexity is {x:.3g} times" for name, x in lost)
            logger.warning(
                "sentences begin from LSTM states of zero, where this model does badly: its "
                "held-out %s what it is from the states of training. Vectors suffer alike. A "
                "reset_rate (it is %g) lets training visit zeros; warm_up gives a trained model "
                "other states.",
                listed,
                self._scorer.options.reset_rate,
            )

    def _score(self, training_states: Any) -> Perplexity:
        """The perplexity of the whole text, of which each worker scores its share."""
        share = None
        with self._team.own_work():
            share = evaluate(
                self._scorer, self._data, self._batch_size, training_states=training_states
            )
        if share is not None and self._team.worker.is_alone:
            return share
        said = None if share is None else (share.losses.tolist(), share.n_predictions)
        losses, counts = zip(*self._team.exchange(said), strict=True)
        whole = Perplexity.of_losses(np.sum(losses, axis=0), sum(counts))
        whole.start_ratio = None if share is None else share.start_ratio
        return whole
