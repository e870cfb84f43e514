"""Drawing negative samples: distribution, number of tries, reproducibility."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from bilm.core.softmax import log_uniform_log_expected
from bilm.training.inputs import draw_log_uniform
from tests import oracle


@pytest.mark.parametrize("n_classes, n_samples", [(2, 1), (10, 10), (50, 40), (20000, 512)])
def test_as_many_distinct_classes_as_are_asked_for(n_classes, n_samples):
    for seed in range(20):
        draw = draw_log_uniform(n_classes, n_samples, (seed,))
        assert draw.ids.dtype == np.int32
        assert draw.ids.shape == (n_samples,)
        assert (np.diff(draw.ids) > 0).all()
        assert draw.ids[0] >= 0 and draw.ids[-1] < n_classes
        assert draw.n_tries >= n_samples


def test_the_same_seed_draws_the_same_and_another_does_not():
    draws = [draw_log_uniform(1000, 64, (7, step, d)) for step in range(4) for d in range(2)]
    again = [draw_log_uniform(1000, 64, (7, step, d)) for step in range(4) for d in range(2)]
    for one, other in zip(draws, again, strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        assert one.n_tries == other.n_tries
    assert len({draw.ids.tobytes() for draw in draws}) == len(draws)


def test_a_single_sample_follows_the_log_uniform_distribution():
    n, n_classes = 10000, 12
    drawn = [draw_log_uniform(n_classes, 1, (3, k)) for k in range(n)]
    assert {draw.n_tries for draw in drawn} == {1}
    counts = np.bincount([draw.ids[0] for draw in drawn], minlength=n_classes)
    p = oracle.log_uniform_probability(np.arange(n_classes), n_classes)
    np.testing.assert_allclose(p.sum(), 1)
    assert (np.abs(counts - n * p) < 4 * np.sqrt(n * p * (1 - p))).all()


def test_samples_and_tries_agree_with_tensorflows_sampler():
    """Compare how often each class is sampled, and the mean number of draws."""
    n, n_classes, n_samples = 600, 60, 20
    ours = [draw_log_uniform(n_classes, n_samples, (11, k)) for k in range(n)]
    generator = np.random.default_rng(5)
    theirs = [plain_draw(generator, n_classes, n_samples) for _ in range(n)]
    tries = [np.array([draw[1] for draw in draws]) for draws in (ours, theirs)]
    error = np.sqrt(tries[0].var() / n + tries[1].var() / n)
    assert abs(tries[0].mean() - tries[1].mean()) < 4 * error
    shares = [
        np.bincount(np.concatenate([draw[0] for draw in draws]), minlength=n_classes) / n
        for draws in (ours, theirs)
    ]
    error = np.sqrt((shares[0] * (1 - shares[0]) + shares[1] * (1 - shares[1])) / n)
    assert (np.abs(shares[0] - shares[1]) <= 4 * error + 1e-9).all()
    sampled = [
        tf.random.log_uniform_candidate_sampler([[0]], 1, n_samples, True, n_classes, seed=k)[0]
        for k in range(n)
    ]
    share = np.bincount(np.concatenate(sampled), minlength=n_classes) / n
    error = np.sqrt((shares[0] * (1 - shares[0]) + share * (1 - share)) / n)
    assert (np.abs(shares[0] - share) <= 4.5 * error + 1e-9).all()


def plain_draw(generator, n_classes, n_samples):
    """Draw one class at a time, until enough are distinct."""
    p = oracle.log_uniform_probability(np.arange(n_classes), n_classes)
    found, n_tries = set(), 0
    while len(found) < n_samples:
        found.add(int(generator.choice(n_classes, p=p)))
        n_tries += 1
    return np.array(sorted(found)), n_tries


def test_expected_counts_are_those_of_tensorflows_sampler():
    n_classes, n_samples = 300, 40
    for seed in range(5):
        targets = np.arange(0, n_classes, 7)[np.newaxis]
        ids, of_targets, of_samples = tf.random.log_uniform_candidate_sampler(
            targets, targets.shape[1], n_samples, True, n_classes, seed=seed
        )
        # The sampler does not return its number of tries; a rare class's expected count gives it.
        p = oracle.log_uniform_probability(targets[0, -1], n_classes)
        n_tries = round(np.log1p(-float(of_targets[0, -1])) / np.log1p(-p))
        assert n_tries >= n_samples
        for classes, expected in ((targets[0], of_targets[0]), (ids.numpy(), of_samples)):
            ours = log_uniform_log_expected(classes, tf.constant(float(n_tries)), n_classes)
            np.testing.assert_allclose(np.exp(ours), expected, rtol=2e-5)
            formula = oracle.log_uniform_expected_count(classes, n_classes, n_tries)
            np.testing.assert_allclose(np.exp(ours), formula, rtol=2e-5)


def test_expected_counts_far_down_a_large_vocabulary():
    """float32 stays accurate for small probabilities."""
    ids = np.array([0, 1, 1000, 400_000, 793_470], np.int32)
    ours = log_uniform_log_expected(ids, tf.constant(12000.0), 793_471)
    expected = oracle.log_uniform_expected_count(ids, 793_471, 12000)
    np.testing.assert_allclose(ours, np.log(expected), rtol=2e-5, atol=1e-6)
