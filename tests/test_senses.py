"""Groups of uses, what is typical of them, and how they fit labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bilm import InputError
from bilm.analysis import (
    Occurrences,
    fit_to_labels,
    group_uses,
    nearby_words,
    substitute_words,
    typical_uses,
)
from bilm.use.predictor import Substitutes

SHORE, MONEY = "we sat on the green bank of the river", "she took her money to the bank today"


def clouds(sizes, seed=0, spread=0.2, dim=12):
    """Uses of bank in clouds whose centres are the axes; layer 0 is noise without clouds."""
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
    groups = group_uses(occurrences, layer=1)
    np.testing.assert_array_equal(groups.of, of)
    assert len(groups) == len(sizes) and groups.sizes == list(sizes)
    assert groups.of.dtype == np.int64 and groups.closeness.dtype == np.float32
    assert set(groups.silhouettes) == {2, 3, 4, 5, 6}
    assert max(groups.silhouettes, key=groups.silhouettes.get) == len(sizes)
    assert (groups.closeness > 0.8).all()


def test_what_has_no_groups_is_one():
    occurrences, _ = clouds((200, 200), dim=40)
    groups = group_uses(occurrences, layer=0)
    assert len(groups) == 1 and groups.sizes == [400] and not groups.of.any()
    assert 0 < max(groups.silhouettes.values()) < 0.25


def test_the_number_of_groups_can_be_given():
    occurrences, of = clouds((30, 25, 20))
    groups = group_uses(occurrences, layer=1, n_groups=3)
    np.testing.assert_array_equal(groups.of, of)
    assert not groups.silhouettes
    assert group_uses(occurrences, layer=1, n_groups=1).sizes == [75]
    assert len(group_uses(occurrences, layer=1, n_groups=7)) == 7
    assert len(group_uses(occurrences, layer=1, max_groups=2)) == 2
    assert len(group_uses(occurrences, layer=1, max_groups=1)) == 1


def test_the_result_depends_on_the_seed_alone():
    occurrences, _ = clouds((200, 200))
    first, again, other = (group_uses(occurrences, layer=0, n_groups=5, seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.of, again.of)
    assert (first.of != other.of).any()


def test_few_uses_are_one_group():
    occurrences, _ = clouds((30, 20))
    for n in (1, 2, 9):
        groups = group_uses(occurrences.select(np.arange(n)), layer=1)
        assert groups.sizes == [n] and not groups.silhouettes
    assert set(group_uses(occurrences.select(np.arange(17)), layer=1).silhouettes) == {2, 3}


def test_equal_uses_are_one_group():
    occurrences, _ = clouds((30, 20))
    same = replace(occurrences, vectors=np.ones_like(occurrences.vectors))
    assert group_uses(same).sizes == [50]
    two = same.vectors.copy()
    two[::2] = -1
    groups = group_uses(replace(same, vectors=two))
    assert groups.sizes == [25, 25] and set(groups.silhouettes) == {2}
    with pytest.raises(InputError) as error:
        group_uses(replace(same, vectors=two), n_groups=3)
    assert str(error.value) == ("n_groups: 3 groups need as many different uses; there are 2.")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_groups": 0}, "n_groups: a whole number from 1 is expected, not 0."),
        ({"max_groups": -1}, "max_groups: a whole number from 1 is expected, not -1."),
        ({"n_groups": 51}, "n_groups: 51 groups need as many different uses; there are 50."),
        ({"layer": 2}, "layer must be 'top', 'average' or a number from 0 to 1, got 2."),
    ],
)
def test_arguments_that_are_refused(settings, message):
    occurrences, _ = clouds((30, 20))
    with pytest.raises(InputError) as error:
        group_uses(occurrences, **settings)
    assert str(error.value) == message


def test_no_uses():
    occurrences, _ = clouds((30, 20))
    with pytest.raises(InputError, match=r"^there is no occurrence to group\.$"):
        group_uses(occurrences.select(np.array([], int)))


def test_silhouettes_of_many_uses_are_those_of_a_sample():
    occurrences, of = clouds((1500, 1000))
    groups = group_uses(occurrences, layer=1, max_groups=2)
    np.testing.assert_array_equal(groups.of, of)


# What is typical


def test_members_are_those_nearest_to_the_centre_first():
    occurrences, of = clouds((30, 20))
    groups = group_uses(occurrences, layer=1)
    for group in (0, 1):
        members = groups.members(group)
        assert sorted(members) == np.flatnonzero(of == group).tolist()
        assert (np.diff(groups.closeness[members]) <= 0).all()


def test_typical_uses_are_in_different_sentences_and_contexts():
    occurrences, _ = clouds((30, 20))
    groups = group_uses(occurrences, layer=1)
    # All uses of a cloud have the same words around them.
    assert [typical_uses(occurrences, groups, k) for k in (0, 1)] == [
        [int(groups.members(k)[0])] for k in (0, 1)
    ]
    changed = replace(
        occurrences,
        sentences=[("a", f"y{k}", "bank") for k in range(50)],
        positions=np.array([(k, 2) for k in range(50)]),
    )
    assert typical_uses(changed, groups, 0, 4) == groups.members(0)[:4].tolist()
    twice = replace(changed, sentences=[("a", "b", "bank") for k in range(50)])
    assert typical_uses(twice, groups, 0, 50) == groups.members(0)[:1].tolist()


def test_words_that_stand_near():
    occurrences, _ = clouds((30, 20))
    groups = group_uses(occurrences, layer=1)
    first = nearby_words(occurrences, groups, 0)
    second = nearby_words(occurrences, groups, 1, n=3)
    assert {word for _, word in first} == {"we", "sat", "on", "green", "of", "river"}
    assert len(second) == 3 and {word for _, word in second} < {"she", "took", "her", "money", "to"}
    for found in (first, second):
        scores = [score for score, _ in found]
        assert scores == sorted(scores, reverse=True) and scores[-1] > 1
    beside = nearby_words(occurrences, groups, 0, width=1)
    assert {word for _, word in beside} == {"green", "of"}


def test_the_score_of_a_word_that_stands_near():
    """Two groups with one word each: the formula by hand."""
    sentences = [("bank", "river")] * 6 + [("bank", "money")] * 6
    vectors = np.repeat([[[1.0, 0.1]], [[-1.0, 0.0]]], 6, axis=0).astype(np.float32)
    positions = np.array([(k, 0) for k in range(12)])
    occurrences = Occurrences(sentences, positions, vectors)
    groups = group_uses(occurrences, layer=0, n_groups=2)
    prior = 0.1  # 0.1 uses of each of two words, both as frequent
    odds = np.log((6 + prior) / prior)
    expected = 2 * odds / np.sqrt(1 / (6 + prior) + 1 / prior)
    found = [nearby_words(occurrences, groups, k)[0] for k in (0, 1)]
    assert {word for _, word in found} == {"river", "money"}
    np.testing.assert_allclose([score for score, _ in found], expected, rtol=1e-6)


def test_one_group_has_no_words_of_its_own():
    occurrences, _ = clouds((30, 20))
    assert nearby_words(occurrences, group_uses(occurrences, n_groups=1), 0) == []


class Words:
    """A language model that knows two kinds of sentences."""

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
    groups = group_uses(shifted, layer=1)
    model = Words()
    uses = [groups.members(k)[:3].tolist() for k in (0, 1)]
    first, second = substitute_words(model, shifted, uses)
    # shore -1 (elsewhere at most -6), edge -3 (-4), low -5 (-6), thing -1.5 (-1).
    assert [word for _, word in first] == ["shore", "edge", "low", "thing"]
    np.testing.assert_allclose([value for value, _ in first], [-1, -3, -5, -1.5])
    assert [word for _, word in second] == ["vault", "thing", "edge", "shop"]
    assert all(sentence.count("___") == 1 and "bank" not in sentence for sentence in model.asked)
    # Of both kinds at once: the mean, where a word that is missing counts like the last one.
    (both,) = substitute_words(model, shifted, [[uses[0][0], uses[1][0]]], n=3)
    assert [word for _, word in both] == ["thing", "edge", "shore"]
    np.testing.assert_allclose([value for value, _ in both], [-1.25, -3.5, -3.5])


# Labels


def test_fit_to_labels():
    occurrences, of = clouds((30, 20))
    groups = group_uses(occurrences, layer=1)
    labels = ["shore" if group == 0 else "money" for group in of]
    fit = fit_to_labels(groups, labels)
    assert (fit.ari, fit.v_measure, fit.homogeneity, fit.completeness) == pytest.approx((1,) * 4)
    assert list(fit.table.items()) == [("shore", [30, 0]), ("money", [0, 20])]
    one = fit_to_labels(group_uses(occurrences, n_groups=1), labels)
    assert (one.ari, one.homogeneity, one.completeness) == (0, 0, 1)
    assert one.table == {"shore": [30], "money": [20]}


def test_ari_is_that_of_hubert_and_arabie():
    """Of the table [[2, 1], [1, 2]]: pairs together 2, expected 6 * 6 / 15, at most 6."""
    sentences = [("bank",)] * 6
    vectors = np.array([1, 1, -1, 1, -1, -1], np.float32)[:, None, None] * np.ones((1, 1, 2))
    occurrences = Occurrences(
        sentences, np.array([(k, 0) for k in range(6)]), vectors.astype(np.float32)
    )
    fit = fit_to_labels(group_uses(occurrences, layer=0, n_groups=2), list("aaabbb"))
    assert fit.ari == pytest.approx((2 - 36 / 15) / (6 - 36 / 15))
    assert sorted(map(sorted, fit.table.values())) == [[1, 2], [1, 2]]


def test_labels_that_do_not_fit():
    occurrences, _ = clouds((30, 20))
    with pytest.raises(InputError) as error:
        fit_to_labels(group_uses(occurrences), ["a"] * 49)
    assert str(error.value) == "labels: 50 are expected, one for each use, not 49."
