"""The held-out text in training: when it is measured, what was best, when training stops."""

from __future__ import annotations

import numpy as np
import pytest

from bilm.core.errors import InputError, NotFiniteError
from bilm.intervals import Interval
from bilm.training.evaluation import Perplexity
from bilm.training.heldout import Monitor
from bilm.training.state import HeldoutState, exp_of_loss


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


@pytest.mark.parametrize("text", ["", "5", "0 steps", "1.5 epochs", "hour", "-1 steps"])
def test_intervals_that_are_none(text):
    with pytest.raises(InputError, match="heldout_every must be epoch, 2epochs, 500steps, 30min"):
        Interval.parse(text)


def measured(values, patience=None, n_predictions=5):
    """The perplexities, the states after each of the measurements, and whether to stop."""
    numbers = np.broadcast_to(n_predictions, len(values)).tolist()
    results = [
        Perplexity.of_losses(np.log([value, value]) * n, n)
        for value, n in zip(values, numbers, strict=True)
    ]
    scores = iter(results)
    monitor = Monitor(lambda states: next(scores), Interval.parse("step"), patience)
    state, found = HeldoutState(), []
    for step in range(1, len(values) + 1):
        perplexity, state = monitor.measure(state, step)
        found.append((perplexity, state, monitor.should_stop(state)))
    return found


def test_the_best_measurement_and_patience():
    found = measured([9.0, 7.0, 8.0, 7.5], patience=2)
    assert [round(float(perplexity), 6) for perplexity, *_ in found] == [9, 7, 8, 7.5]
    assert [(s.best_step, s.since_best) for _, s, _ in found] == [(1, 0), (2, 0), (2, 1), (2, 2)]
    assert [stop for *_, stop in found] == [False, False, False, True]
    state = found[-1][1]
    assert state.best == pytest.approx(7) and state.measured_at == 4


def test_another_text_has_another_best(caplog):
    found = measured([5.0, 6.0], n_predictions=(5, 9))
    assert found[-1][1].best == pytest.approx(6) and "text has changed" in caplog.text


def test_perplexity_of_an_enormous_loss():
    assert exp_of_loss(1e6) == float("inf") and exp_of_loss(0.0) == 1.0


def test_a_loss_that_is_not_a_number():
    with pytest.raises(NotFiniteError, match="Step 1: the held-out loss is not a number"):
        measured([float("nan")])
