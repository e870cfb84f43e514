"""Held-out evaluation in training: intervals, the best result, and early stopping."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from bilm.core.errors import InputError, NotFiniteError
from bilm.inference.scorer import Perplexity, exp_of_loss
from bilm.progress import Interval
from bilm.training.state import RunState


@pytest.mark.parametrize(
    ("text", "interval", "steps"),
    [
        ("epoch", Interval(1, "epochs"), [4, 8, 12]),
        ("2 epochs", Interval(2, "epochs"), [8]),
        ("5steps", Interval(5, "steps"), [5, 10]),
        ("step", Interval(1, "steps"), list(range(1, 13))),
        ("0.5min", Interval(30, "seconds"), []),
        ("2 h", Interval(7200, "seconds"), []),
    ],
)
def test_intervals(text, interval, steps):
    assert Interval.parse(text) == interval
    assert [step for step in range(13) if interval.falls_on(step, 4)] == steps


@pytest.mark.parametrize("text", ["5", "1.5 epochs"])
def test_intervals_that_are_none(text):
    with pytest.raises(InputError, match="heldout_every must be epoch, 2epochs"):
        Interval.parse(text)


def measured(values, n_predictions=5):
    """Copies of the state after each measurement."""
    numbers = np.broadcast_to(n_predictions, len(values)).tolist()
    state, states = RunState((1, 1)), []
    for state.step, (value, n) in enumerate(zip(values, numbers, strict=True), 1):
        state.add_evaluation(Perplexity.of_losses(np.log([value, value]) * n, n))
        states.append(copy.copy(state))
    return states


def test_the_best_measurement():
    found = measured([9.0, 7.0, 8.0, 7.5])
    assert [(s.best_step, s.since_best) for s in found] == [(1, 0), (2, 0), (2, 1), (2, 2)]
    assert found[-1].best == pytest.approx(7) and found[-1].measured_at == 4


def test_another_text_has_another_best(caplog):
    found = measured([5.0, 6.0], n_predictions=(5, 9))
    assert found[-1].best == pytest.approx(6) and "text has changed" in caplog.text


def test_perplexity_of_an_enormous_loss():
    assert exp_of_loss(1e6) == float("inf") and exp_of_loss(0.0) == 1.0


def test_a_loss_that_is_not_a_number():
    with pytest.raises(NotFiniteError, match="Step 1: the held-out loss is not a number"):
        measured([float("nan")])
