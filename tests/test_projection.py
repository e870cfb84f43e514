"""Projection of occurrences to two dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from bilm import InputError
from bilm.analysis import Occurrences, project
from tests.hand_made import two_senses

pytest.importorskip("sklearn")


def distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def random_occurrences(n, dim=5, layers=2, seed=0):
    vectors = np.random.default_rng(seed).normal(size=(n, layers, dim)).astype(np.float32)
    sentences = [(f"a{k}", "word", f"b{k}") for k in range(n)]
    return Occurrences(sentences, np.array([(k, 1) for k in range(n)]), vectors)


def test_pca_is_the_singular_value_decomposition_of_the_directions():
    occurrences = random_occurrences(40)
    assert project(occurrences).layers == [1]
    found = project(occurrences, layers=[0, 1])
    assert found.method == "pca" and found.layers == [0, 1] and found.perplexity is None
    assert found.points.shape == (40, 2, 2) and found.points.dtype == np.float32
    for layer in (0, 1):
        directions = occurrences.directions(layer)
        centred = directions - directions.mean(axis=0)
        u, s, _ = np.linalg.svd(centred, full_matrices=False)
        expected = u[:, :2] * s[:2]
        signs = np.sign((found.points[:, layer] * expected).sum(axis=0))
        np.testing.assert_allclose(found.points[:, layer] * signs, expected, atol=1e-5)
        np.testing.assert_allclose(found.variance[layer], (s**2 / (s**2).sum())[:2], rtol=1e-4)


def test_a_layer_of_equal_vectors_is_one_point():
    found = project(two_senses(), layers=[0, 1, 2])
    assert found.n_distinct == [1, 16, 16]
    assert not found.points[:, 0].any() and not found.variance[0].any()
    # Two senses on two sides: nearly all of the variance is in one direction.
    assert found.variance[1, 0] > 0.95
    x = found.points[:, 1, 0]
    assert min(x[:8].min(), x[8:].min()) < 0 < max(x[:8].max(), x[8:].max())
    assert (np.sign(x[:8]) == np.sign(x[0])).all() and (np.sign(x[8:]) == -np.sign(x[0])).all()


def test_rounding_errors_are_no_directions():
    occurrences = two_senses()
    noise = 1e-7 * np.random.default_rng(0).normal(size=(16, 6))
    occurrences.vectors[:, 0] += noise.astype(np.float32)
    assert project(occurrences, layers=[0]).n_distinct == [1]


def test_tsne_keeps_groups_apart_and_follows_its_seed():
    occurrences = two_senses()
    found = project(occurrences, "tsne", layers=["top", 1], seed=1)
    assert found.layers == [2, 1] and found.variance is None and found.perplexity == 5
    again = project(occurrences, "tsne", layers=[2, 1], seed=1)
    np.testing.assert_array_equal(found.points, again.points)
    between = distances(found.points[:, 1])
    np.fill_diagonal(between, np.inf)
    assert (between.argmin(axis=1) // 8 == np.arange(16) // 8).all()


def test_tsne_puts_equal_vectors_in_one_place():
    occurrences = random_occurrences(30, layers=1)
    occurrences.vectors[10:20] = occurrences.vectors[:10]
    occurrences.vectors[20:] = occurrences.vectors[:10]
    found = project(occurrences, "tsne", perplexity=9)
    assert found.n_distinct == [10] and found.perplexity == 9
    np.testing.assert_array_equal(found.points[:10], found.points[10:20])
    assert len(np.unique(found.points[:, 0], axis=0)) == 10


@pytest.mark.parametrize(
    ("n", "settings", "message"),
    [
        (2, {}, "a picture needs at least 3 occurrences, got 2"),
        (16, {"method": "tsne", "perplexity": 5.5}, "perplexity must be above 0 and at most 5,"),
    ],
)
def test_what_cannot_be_projected(n, settings, message):
    with pytest.raises(InputError, match=message):
        project(two_senses().select(np.arange(n)), **settings)
