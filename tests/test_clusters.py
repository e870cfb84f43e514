"""Clusters of occurrences, their typical words and names, and agreement with labels."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from bilm import InputError
from bilm.analysis import (
    Occurrences,
    cluster_names,
    cluster_occurrences,
    nearby_words,
    substitute_words,
    typical_occurrences,
    with_clusters,
)
from bilm.use.predictor import Substitutes

SHORE, MONEY = "we sat on the green bank of the river", "she took her money to the bank today"


def clouds(sizes, seed=0, spread=0.2, dim=12):
    """Occurrences of bank, in layer 1 in clouds centred on the axes; layer 0 is noise."""
    random = np.random.default_rng(seed)
    of = np.repeat(np.arange(len(sizes)), sizes)
    order = random.permutation(len(of))
    of = of[order]
    near = np.eye(dim)[of] + spread * random.normal(size=(len(of), dim)) / np.sqrt(dim)
    noise = random.normal(size=(len(of), dim))
    sentences = [f"{k} {(SHORE, MONEY)[group % 2]} x{k}".split() for k, group in enumerate(of)]
    positions = [(k, sentence.index("bank")) for k, sentence in enumerate(sentences)]
    vectors = np.stack([noise, near], axis=1).astype(np.float32)
    return Occurrences(sentences, np.array(positions), vectors), of


@pytest.mark.parametrize("sizes", [(30, 20), (40, 30, 20), (30, 25, 20, 15)])
def test_clouds_are_found_and_counted(sizes):
    occurrences, of = clouds(sizes)
    clusters = cluster_occurrences(occurrences, layer=1)
    np.testing.assert_array_equal(clusters.of, of)
    assert len(clusters) == len(sizes) and clusters.sizes == list(sizes)
    assert clusters.of.dtype == np.int64 and clusters.closeness.dtype == np.float32
    assert set(clusters.silhouettes) == {2, 3, 4, 5, 6}
    assert max(clusters.silhouettes, key=clusters.silhouettes.get) == len(sizes)
    assert (clusters.closeness > 0.8).all()


@pytest.mark.parametrize("scales", [[1] * 40, [1 / (k + 1) for k in range(40)], [9, 1, 1, 1]])
def test_a_gaussian_cloud_has_no_clusters_of_any_shape(scales):
    """Clusters of a long cloud have silhouettes far above 0.25."""
    rng = np.random.default_rng(3)
    for n in (60, 300):
        vectors = rng.normal(size=(n, len(scales))) * scales + 5
        assert cluster_occurrences(one_layer(vectors)).sizes == [n]


def test_the_number_of_groups_can_be_given():
    occurrences, of = clouds((30, 25, 20))
    clusters = cluster_occurrences(occurrences, layer=1, n_clusters=3)
    np.testing.assert_array_equal(clusters.of, of)
    assert not clusters.silhouettes
    assert cluster_occurrences(occurrences, layer=1, n_clusters=1).sizes == [75]
    assert len(cluster_occurrences(occurrences, layer=1, n_clusters=7)) == 7
    assert len(cluster_occurrences(occurrences, layer=1, max_clusters=2)) == 2
    assert len(cluster_occurrences(occurrences, layer=1, max_clusters=1)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 12])
def test_neither_the_seed_nor_the_order_matters(dim):
    """Two groups of 20 that are 8 standard deviations apart are two clusters in each of 50 trials,
    and noise has the same clusters in any order."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        vectors = rng.normal(size=(40, dim)) + 3
        vectors[::2, 0] += 8
        of = cluster_occurrences(one_layer(vectors), seed=seed).of
        assert len(set(of[::2])) == len(set(of[1::2])) == 1 and of[0] != of[1]
    noise, order = rng.normal(size=(200, dim)), rng.permutation(200)
    first = cluster_occurrences(one_layer(noise), n_clusters=5)
    again = cluster_occurrences(one_layer(noise[order]), n_clusters=5, seed=1)
    assert adjusted_rand_score(again.of, first.of[order]) == pytest.approx(1)


def one_layer(vectors):
    """Occurrences with these vectors (n, dim)."""
    positions = np.array([(k, 0) for k in range(len(vectors))])
    return Occurrences(
        [("bank",)] * len(vectors), positions, vectors[:, np.newaxis].astype(np.float32)
    )


def test_one_cluster_has_a_reason():
    rng, axes = np.random.default_rng(3), np.array([9, 1, 1, 1])
    reasons = {
        "clusters are not clearer than those of a Gaussian cloud": rng.normal(size=(60, 4)) * axes,
        "silhouettes are below 0.25": rng.normal(size=(60, 40)),
        "two clusters need 10 occurrences": rng.normal(size=(9, 4)),
        "all vectors are equal": np.ones((40, 4)),
        "there is one occurrence": np.ones((1, 4)),
    }
    for reason, vectors in reasons.items():
        clusters = cluster_occurrences(one_layer(vectors))
        assert (len(clusters), clusters.reason) == (1, reason)
    assert cluster_occurrences(clouds((30, 20))[0], layer=1).reason == ""


def test_few_uses_are_one_group():
    occurrences, _ = clouds((30, 20))
    for n in (1, 2, 9):
        clusters = cluster_occurrences(occurrences.select(np.arange(n)), layer=1)
        assert clusters.sizes == [n] and not clusters.silhouettes
    assert set(cluster_occurrences(occurrences.select(np.arange(17)), layer=1).silhouettes) == {
        2,
        3,
    }


def test_equal_uses_are_one_group():
    occurrences, _ = clouds((30, 20))
    same = replace(occurrences, vectors=np.ones_like(occurrences.vectors))
    assert cluster_occurrences(same).sizes == [50]
    two = same.vectors.copy()
    two[::2] = -1
    clusters = cluster_occurrences(replace(same, vectors=two))
    assert clusters.sizes == [25, 25] and set(clusters.silhouettes) == {2}
    with pytest.raises(InputError, match="n_clusters must be at most 2"):
        cluster_occurrences(replace(same, vectors=two), n_clusters=3)


# Typical occurrences and words


def test_members_are_those_nearest_to_the_centre_first():
    occurrences, of = clouds((30, 20))
    clusters = cluster_occurrences(occurrences, layer=1)
    for group in (0, 1):
        members = clusters.members(group)
        assert sorted(members) == np.flatnonzero(of == group).tolist()
        assert (np.diff(clusters.closeness[members]) <= 0).all()


def test_the_typical_occurrences_of_one_cluster_are_nearest_to_the_mean():
    """This mean has no direction: cosines with it would be rounding errors."""
    occurrences = one_layer(np.random.default_rng(2).normal(size=(40, 6)) * [3, 1, 1, 1, 1, 1])
    directions = occurrences.directions()
    distances = np.linalg.norm(directions - directions.mean(axis=0), axis=1)
    clusters = cluster_occurrences(occurrences, n_clusters=1)
    assert clusters.members(0).tolist() == np.argsort(distances).tolist()


def test_typical_occurrences_are_in_different_sentences_and_contexts():
    occurrences, _ = clouds((30, 20))
    clusters = cluster_occurrences(occurrences, layer=1)
    # All occurrences in a cloud have the same context.
    assert [typical_occurrences(occurrences, clusters, k) for k in (0, 1)] == [
        [int(clusters.members(k)[0])] for k in (0, 1)
    ]
    changed = replace(
        occurrences,
        sentences=[("a", f"y{k}", "bank") for k in range(50)],
        positions=np.array([(k, 2) for k in range(50)]),
    )
    assert typical_occurrences(changed, clusters, 0, 4) == clusters.members(0)[:4].tolist()
    twice = replace(changed, sentences=[("a", "b", "bank") for k in range(50)])
    assert typical_occurrences(twice, clusters, 0, 50) == clusters.members(0)[:1].tolist()


def test_words_that_stand_near():
    occurrences, _ = clouds((30, 20))
    clusters = cluster_occurrences(occurrences, layer=1)
    first = nearby_words(occurrences, clusters, 0)
    second = nearby_words(occurrences, clusters, 1, n=3)
    assert {word for _, word in first} == {"we", "sat", "on", "green", "of", "river"}
    assert len(second) == 3 and {word for _, word in second} < {"she", "took", "her", "money", "to"}
    for found in (first, second):
        scores = [score for score, _ in found]
        assert scores == sorted(scores, reverse=True) and scores[-1] > 1
    beside = nearby_words(occurrences, clusters, 0, width=1)
    assert {word for _, word in beside} == {"green", "of"}


def test_the_score_of_a_word_that_stands_near():
    """Two clusters with one nearby word each, computed by hand."""
    sentences = [("bank", "river")] * 6 + [("bank", "money")] * 6
    vectors = np.repeat([[[1.0, 0.1]], [[-1.0, 0.0]]], 6, axis=0).astype(np.float32)
    positions = np.array([(k, 0) for k in range(12)])
    occurrences = Occurrences(sentences, positions, vectors)
    clusters = cluster_occurrences(occurrences, layer=0, n_clusters=2)
    prior = 0.1  # the prior count of each of two equally frequent words
    odds = np.log((6 + prior) / prior)
    expected = 2 * odds / np.sqrt(1 / (6 + prior) + 1 / prior)
    found = [nearby_words(occurrences, clusters, k)[0] for k in (0, 1)]
    assert {word for _, word in found} == {"river", "money"}
    np.testing.assert_allclose([score for score, _ in found], expected, rtol=1e-6)


def test_one_group_has_no_words_of_its_own():
    occurrences, _ = clouds((30, 20))
    assert nearby_words(occurrences, cluster_occurrences(occurrences, n_clusters=1), 0) == []


class Words:
    """A language model for two kinds of sentences."""

    vocabulary = SimpleNamespace(size=10)

    def __init__(self):
        self.asked = []

    def substitutes(self, sentences, *, n):
        self.asked += sentences
        return [[self.of(sentence)] for sentence in sentences]

    def of(self, sentence):
        shore = {"shore": -1.0, "thing": -1.5, "bank": -2.0, ",": -2.5, "edge": -3.0, "low": -5.0}
        money = {"thing": -1.0, "vault": -2.0, "Bank": -2.5, "edge": -4.0, "shop": -6.0}
        table = shore if "river" in sentence else money
        values = np.array([*table.values()], np.float32)
        return Substitutes(sentence.index("___"), "___", [*table], values, None, None)


def test_substitutes_are_taken_together_and_against_the_other_groups():
    occurrences, _ = clouds((30, 20))
    sentences = [["___", *sentence] for sentence in occurrences.sentences]
    shifted = replace(
        occurrences, sentences=sentences, positions=occurrences.positions + np.array([0, 1])
    )
    clusters = cluster_occurrences(shifted, layer=1)
    model = Words()
    uses = [clusters.members(k)[:3].tolist() for k in (0, 1)]
    first, second = substitute_words(model, shifted, uses)
    # log p, in brackets elsewhere: shore -1 (<= -6), edge -3 (-4), low -5 (-6), thing -1.5 (-1).
    assert [word for _, word in first] == ["shore", "edge", "low", "thing"]
    np.testing.assert_allclose([value for value, _ in first], [-1, -3, -5, -1.5])
    assert [word for _, word in second] == ["vault", "thing", "edge", "shop"]
    assert all(sentence.count("___") == 1 and "bank" not in sentence for sentence in model.asked)
    # For both kinds at once, the mean; a missing word counts like the last one.
    (both,) = substitute_words(model, shifted, [[uses[0][0], uses[1][0]]], n=3)
    assert [word for _, word in both] == ["thing", "edge", "shore"]
    np.testing.assert_allclose([value for value, _ in both], [-1.25, -3.5, -3.5])


def test_frequent_words_are_never_typical():
    occurrences, _ = clouds((30, 20))
    clusters = cluster_occurrences(occurrences, layer=1)
    sentences = [["___", *sentence] for sentence in occurrences.sentences]
    shifted = replace(
        occurrences, sentences=sentences, positions=occurrences.positions + np.array([0, 1])
    )
    model = Words()
    words = ["Shore", "edge", *map(str, range(398))]
    model.vocabulary = SimpleNamespace(size=400, id_to_word=words.__getitem__)
    (first, _) = substitute_words(model, shifted, [clusters.members(k)[:1] for k in (0, 1)])
    assert [word for _, word in first] == ["low", "thing"]


# Names


def test_clusters_are_named_by_their_typical_words():
    occurrences, of = clouds((30, 20))
    named = with_clusters(occurrences)
    names = ("green of on river", "her money she to")
    assert named.clusters == [names[k] for k in of]
    sentences = [
        [token if token != "bank" or k % 2 else "shore" for token in sentence]
        for k, sentence in enumerate(occurrences.sentences)
    ]
    two = with_clusters(replace(occurrences, sentences=sentences))
    prefixes = [name.partition(": ")[0] for name in two.clusters]
    assert prefixes == ["bank" if k % 2 else "shore" for k in range(50)]


def test_names_are_distinct_and_never_empty():
    occurrences, of = clouds((30, 20))
    clusters = cluster_occurrences(occurrences, layer=1)
    same = [[(1.0, word) for word in "a b c d e".split()]] * 2
    names = cluster_names(clusters, same)
    assert names == [("a b c d", "a b c d (2)")[k] for k in of]
    assert set(cluster_names(clusters, [[], []], "bank")) == {"bank: cluster 1", "bank: cluster 2"}
    one = cluster_occurrences(occurrences, n_clusters=1)
    assert set(cluster_names(one, [[]])) == {"all"}
