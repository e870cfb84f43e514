"""Senses by the nearest occurrences, tested on vectors whose neighbours are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from senses import sense_table

from bilm import ELMo
from bilm.analysis import Occurrences, sample_uses
from bilm.core.errors import InputError
from tests.small_models import write_small_model

EAST, NORTH, WEST = (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)


def uses(*rows):
    """One-layer occurrences from (sentence that starts with the word, vector, label) rows."""
    sentences = [tuple(sentence.split()) for sentence, _, _ in rows]
    vectors = np.array([vector for _, vector, _ in rows], np.float32)[:, np.newaxis]
    positions = np.array([(k, 0) for k in range(len(rows))])
    return Occurrences(sentences, positions, vectors, [label for _, _, label in rows])


def centred(*rows):
    """`uses`, and one of another word that moves their mean to zero."""
    return uses(*rows, ("other", tuple(-np.sum([v for _, v, _ in rows], axis=0)), "other"))


def by_name(*arguments, **settings):
    return {row.representation: row for row in sense_table(*arguments, **settings)}


def senses(train, test, method="use", **settings):
    return by_name(train, test, method, **settings)["layer 0"].senses


TRAIN = uses(
    ("bank of the Thames", (1.0, 0.1), "river"),
    ("bank of England", (0.1, 1.0), "money"),
    ("Bank holiday", (0.0, 1.0), "money"),
    ("play cards", (-1.0, 0.2), "game"),
)


def test_the_nearest_use_of_the_same_word():
    test = uses(
        ("bank", EAST, "river"), ("BANK", (0.2, 0.9), "money"), ("play", NORTH, "game"),
        ("bank", NORTH, "river"), ("oak", NORTH, "tree"),
    )  # fmt: skip
    first, row = sense_table(TRAIN, test)
    # "play" has only one sense in training, wherever its vector is; "oak" is not in training.
    assert row.senses == ["river", "money", "game", "money", None]
    assert row.right == [True, True, True, False, False]
    assert row.accuracy == 0.6 and row.several_accuracy == pytest.approx(2 / 3)
    # Of the four senses, river is right in one of two occurrences.
    assert row.macro_accuracy == pytest.approx((0.5 + 1 + 1 + 0) / 4)
    assert first.senses == ["money", "money", "game", "money", None] and first.kappa is None


def test_the_nearest_mean_is_not_the_nearest_use():
    train = centred(
        ("bank", (1.0, 0.05), "river"), ("bank", (-1.0, 0.5), "river"), ("bank", NORTH, "money"),
        ("bank", (1.0, 1.0), "money"),
    )  # fmt: skip
    test = uses(("bank", EAST, "?"), ("bank", (0.6, 0.8), "?"))
    assert senses(train, test) == ["river", "money"]
    # The mean of the river uses points north, the mean of the money uses north-east.
    assert senses(train, test, "mean") == ["money", "money"]


def test_the_mean_of_all_training_uses_is_subtracted():
    """As seen from the mean, (8.7, 6.7), "b" is nearer; as seen from the origin, "a"."""
    train = uses(("bank", (10, 11), "a"), ("bank", (16, 9), "b"), ("oak", (0, 0), "c"))
    assert senses(train, uses(("bank", (11, 9), "?"))) == ["b"]


@pytest.mark.parametrize("method", ["use", "mean", "prior"])
def test_of_equals_the_more_frequent_sense_is_taken(method):
    train = centred(("bank", EAST, "river"), ("bank", EAST, "money"), ("bank", EAST, "money"))
    test = uses(("bank", EAST, "?"), ("bank", WEST, "?"))
    assert senses(train, test, method) == ["money"] * 2


def test_words_may_be_lemmas():
    test = uses(("banks", EAST, "river"))
    assert senses(TRAIN, test) == [None]
    assert senses(TRAIN, test, words=(["bank", "bank", "bank", "play"], ["bank"])) == ["river"]


def two_words(n, informative, seed=0):
    """Uses of two words, a and b, each with a frequent and a rare sense (2 : 1), in random order.

    If `informative`, the vectors of each sense are close to its own direction.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        word, rank = "ab"[rng.integers(2)], int(rng.random() > 2 / 3)
        centre = np.array([(2.0, 0.0), (0.0, 2.0)])[rank] if informative else np.ones(2)
        rows.append((f"{word} context", centre + rng.normal(0, 0.7, 2), f"{word}{rank}"))
    return uses(*rows)


@pytest.mark.parametrize("is_sorted", [False, True])
def test_kappa_is_chosen_on_the_training_uses(is_sorted):
    """The order of the training occurrences does not matter."""
    train = two_words(300, True)
    if is_sorted:
        train = train.select(np.argsort(train.labels, kind="stable"))
        train.positions[:, 0] = np.arange(300)
        train = replace(train, sentences=[(f"{label[0]}", "x") for label in train.labels])
    rows = by_name(train, two_words(300, True, 1), "prior")
    assert rows["layer 0"].kappa > 0
    assert rows["layer 0"].accuracy > 0.9 > rows["first sense"].accuracy + 0.1
    # With uninformative vectors only the prior counts.
    rows = by_name(two_words(300, False), two_words(300, False, 1), "prior")
    assert rows["layer 0"].kappa < 1
    assert rows["layer 0"].accuracy == pytest.approx(rows["first sense"].accuracy, abs=0.02)


def test_the_choice_does_not_see_the_test_uses():
    train = two_words(200, True)
    tests = [two_words(50, bool(k), k) for k in range(4)]
    assert len({by_name(train, test, "prior")["layer 0"].kappa for test in tests}) == 1


def test_layers_are_compared_together():
    """Layer 1 tells the senses apart in one use, layer 2 in the other; together both are right."""

    def two_layers(*rows):
        made = uses(*((sentence, EAST, label) for sentence, _, _, label in rows))
        vectors = np.array([[(0, 0), first, second] for _, first, second, _ in rows], np.float32)
        return replace(made, vectors=vectors)

    train = two_layers(("w", EAST, EAST, "a"), ("w", NORTH, NORTH, "b"))
    test = two_layers(("w", EAST, (0.7, 0.71), "a"), ("w", (0.71, 0.7), NORTH, "b"))
    assert {name: row.accuracy for name, row in by_name(train, test).items()} == {
        "first sense": 0.5, "layer 0": 0.5, "layer 1": 0.5, "layer 2": 0.5, "layers": 1.0,
    }  # fmt: skip


def test_the_context_does_not_see_the_word(tmp_path):
    elmo = ELMo.from_pretrained(write_small_model(tmp_path, "as_published").files)
    sentences = ["they play old cards", "they saw old cards"]
    sample = sample_uses(sentences, ["play", "saw", "they", "cards"])
    found = Occurrences.encoded(elmo, sample, context=True)
    assert found.n_layers == elmo.n_layers + 1 and found.about["context"]
    context = {found.in_context(k): found.vectors[k, -1] for k in range(len(found))}
    play, saw = context["they [play] old cards"], context["they [saw] old cards"]
    np.testing.assert_allclose(play, saw, rtol=1e-4, atol=1e-5)
    top = elmo.encode(sentences[:1], "top")[0]
    half = elmo.dim // 2
    np.testing.assert_allclose(play, [*top[0, :half], *top[2, half:]], rtol=1e-4, atol=1e-5)
    first, last = context["[they] play old cards"], context["they play old [cards]"]
    assert not first[:half].any() and not last[half:].any()
    np.testing.assert_allclose(first[half:], top[1, half:], rtol=1e-4, atol=1e-5)
    labelled = replace(found, labels=["a", "b"] * 3)
    names = [row.representation for row in sense_table(labelled, labelled)]
    assert names == ["first sense", "layer 0", "layer 1", "layer 2", "layers", "context"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sense_table(replace(TRAIN, labels=None), TRAIN), "must have labels"),
        (lambda: sense_table(TRAIN, uses(("bank", (1, 0, 0), "x"))), "of one model"),
        (lambda: sense_table(*[uses(("w", EAST, "a"), ("w", NORTH, "b"))] * 2, "prior"),
         "must have two training occurrences"),
    ],
)  # fmt: skip
def test_wrong_arguments(call, message):
    with pytest.raises(InputError, match=message):
        call()
