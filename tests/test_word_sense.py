"""Senses by the nearest use, tested on vectors whose neighbours are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bilm import ELMo
from bilm.analysis import (
    Occurrences,
    SenseSettings,
    StaticVectors,
    first_sense,
    nearest_sense,
    sample_uses,
    sense_table,
    with_static,
)
from bilm.core.errors import InputError
from tests.small_models import write_small_model

EAST, NORTH, WEST = (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)


def uses(*rows):
    """One-layer occurrences from (sentence that starts with the word, vector, label) rows."""
    sentences = [tuple(sentence.split()) for sentence, _, _ in rows]
    vectors = np.array([vector for _, vector, _ in rows], np.float32)[:, np.newaxis]
    labels = [label for _, _, label in rows]
    positions = np.array([(k, 0) for k in range(len(rows))])
    return Occurrences(sentences, positions, vectors, None if None in labels else labels)


def centred(*rows):
    """`uses`, and one of another word that moves their mean to zero."""
    return uses(*rows, ("other", tuple(-np.sum([v for _, v, _ in rows], axis=0)), "other"))


TRAIN = uses(
    ("bank of the Thames", (1.0, 0.1), "river"),
    ("bank of England", (0.1, 1.0), "money"),
    ("Bank holiday", (0.0, 1.0), "money"),
    ("play cards", (-1.0, 0.2), "game"),
)


def of_words(**vectors):
    """Static vectors of a few words."""
    return StaticVectors(list(vectors), np.array(list(vectors.values()), np.float32))


def test_the_nearest_use_of_the_same_word():
    test = uses(
        ("bank", EAST, "river"), ("BANK", (0.2, 0.9), "money"), ("play", NORTH, "game"),
        ("bank", NORTH, "river"),
    )  # fmt: skip
    found = nearest_sense(TRAIN, test, 0)
    # "play" has only one sense in training, wherever its vector is.
    assert found.senses == ["river", "money", "game", "money"]
    assert found.right.tolist() == [True, True, True, False]
    assert found.accuracy == 0.75 and found.ambiguous_accuracy == pytest.approx(2 / 3)
    assert found.seen.all() and found.ambiguous.tolist() == [True, True, False, True]
    assert nearest_sense(TRAIN, test).senses == ["river", "money", "game", "money"]


def test_the_nearest_mean_is_not_the_nearest_use():
    train = centred(
        ("bank", (1.0, 0.05), "river"), ("bank", (-1.0, 0.5), "river"), ("bank", NORTH, "money"),
        ("bank", (1.0, 1.0), "money"),
    )  # fmt: skip
    test = uses(("bank", EAST, None), ("bank", (0.6, 0.8), None))
    assert nearest_sense(train, test, 0).senses == ["river", "money"]
    by_mean = nearest_sense(train, test, 0, SenseSettings("mean")).senses
    # The mean of the river uses points north, the mean of the money uses north-east.
    assert by_mean == ["money", "money"]


def test_the_mean_of_all_training_uses_is_subtracted():
    """As seen from the mean, (8.7, 6.7), "b" is nearer; as seen from the origin, "a"."""
    train = uses(("bank", (10, 11), "a"), ("bank", (16, 9), "b"), ("oak", (0, 0), "c"))
    assert nearest_sense(train, uses(("bank", (11, 9), None)), 0).senses == ["b"]


def test_of_equals_the_more_frequent_sense_is_taken():
    train = centred(("bank", EAST, "river"), ("bank", EAST, "money"), ("bank", EAST, "money"))
    test = uses(("bank", EAST, None), ("bank", WEST, None))
    for method in ("use", "mean", "prior"):
        found = nearest_sense(train, test, 0, SenseSettings(method))
        assert found.senses == ["money"] * 2
    even = uses(("bank", EAST, "river"), ("bank", EAST, "money"))
    assert first_sense(even, test).senses == ["river", "river"]


def test_words_without_training_uses():
    test = uses(("banks", (0.2, 0.9), "money"), ("bank", EAST, "river"))
    # By layer 0, "banks" is most similar to "bank".
    assert nearest_sense(TRAIN, test, 0).senses == ["money", "river"]
    nothing = nearest_sense(TRAIN, test, 0, SenseSettings(unseen=None))
    assert nothing.senses == [None, "river"] and nothing.accuracy == 0.5
    assert nothing.seen.tolist() == [False, True] == nothing.ambiguous.tolist()
    played = uses(("played", (-0.9, 0.1), "game"))
    assert first_sense(TRAIN, played).senses == ["game"]
    assert first_sense(TRAIN, played, unseen=None).senses == [None]
    assert first_sense(TRAIN, played).ambiguous_accuracy is None


def test_words_may_be_lemmas():
    test = uses(("banks", EAST, "river"))
    words = (["bank", "bank", "bank", "play"], ["bank"])
    found = nearest_sense(TRAIN, test, 0, words=words)
    assert found.senses == ["river"] and found.seen.all()
    assert first_sense(TRAIN, test, words=words).senses == ["money"]


def test_a_static_vector_cannot_tell_uses_apart_and_its_context_can():
    static = of_words(bank=(3, 3), Thames=EAST, river=(0.9, 0.1), England=NORTH, pound=(0.1, 0.9))
    test = uses(("bank river", WEST, "river"), ("bank pound", WEST, "money"), ("bank", EAST, "x"))
    rows = sense_table(TRAIN, test, static=static)
    assert [row.representation for row in rows] == [
        "first sense", "static", "static context", "layer 0", "layers, static context",
    ]  # fmt: skip
    accuracies = {row.representation: row.accuracy for row in rows}
    assert accuracies["static"] == accuracies["first sense"] == pytest.approx(1 / 3)
    assert accuracies["static context"] == pytest.approx(2 / 3)
    contexts = with_static(test, static, None).vectors[:, 0]
    assert contexts == pytest.approx(np.array([(0.9, 0.1), (0.1, 0.9), (0, 0)]))
    near = with_static(uses(("bank of river pound", EAST, "x")), static, 2).vectors[0, 0]
    assert near == pytest.approx((0.9, 0.1))
    assert with_static(test, static).vectors[:, 0] == pytest.approx(np.full((3, 2), 3))


def senses(n, informative, seed=0):
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


def test_kappa_is_chosen_on_the_training_uses():
    test = senses(300, True, 1)
    found = nearest_sense(senses(300, True), test, 0, SenseSettings("prior"))
    first = first_sense(senses(300, True), test)
    assert found.kappa >= 1 and found.accuracy > 0.9 > first.accuracy + 0.1
    # With uninformative vectors only the prior counts.
    noise = nearest_sense(senses(300, False), senses(300, False, 1), 0, SenseSettings("prior"))
    assert noise.kappa < 1
    assert noise.accuracy == pytest.approx(
        first_sense(senses(300, False), senses(300, False, 1)).accuracy, abs=0.02
    )


def test_the_choice_does_not_see_the_test_uses():
    train = senses(200, True)
    chosen = {
        nearest_sense(train, senses(50, bool(k), k), 0, SenseSettings("prior")).kappa
        for k in range(4)
    }
    assert len(chosen) == 1


def test_the_prior_and_the_cosine_add_up():
    """log(3 + 1) + kappa cos(v, east) against log(1 + 1) + kappa cos(v, north)."""
    train = centred(*[("w", EAST, "east")] * 3, ("w", NORTH, "north"))
    test = uses(("w", (0.6, 0.8), None))
    for kappa, sense in ((0, "east"), (3.4, "east"), (3.6, "north")):
        settings = SenseSettings("prior", kappa=kappa)
        found = nearest_sense(train, test, 0, settings)
        assert found.senses == [sense] and found.kappa == kappa


def test_layers_are_compared_together():
    """Layer 1 tells the senses apart in one use, layer 2 in the other; together both are right."""

    def two_layers(*rows):
        made = uses(*((sentence, EAST, label) for sentence, _, _, label in rows))
        vectors = np.array([[(0, 0), first, second] for _, first, second, _ in rows], np.float32)
        return replace(made, vectors=vectors)

    train = two_layers(("w", EAST, EAST, "a"), ("w", NORTH, NORTH, "b"))
    test = two_layers(("w", EAST, (0.7, 0.71), "a"), ("w", (0.71, 0.7), NORTH, "b"))
    rows = sense_table(train, test)
    assert {row.representation: row.accuracy for row in rows} == {
        "first sense": 0.5, "layer 0": 0.5, "layer 1": 0.5, "layer 2": 0.5, "layers": 1.0,
    }  # fmt: skip


def test_accuracy_by_sense_and_by_kind():
    test = uses(*[("bank", NORTH, "money")] * 3, ("bank", NORTH, "river"), ("play", EAST, "game"))
    found = nearest_sense(TRAIN, test, 0)
    assert found.accuracy == 0.8 and found.macro_accuracy == pytest.approx(2 / 3)
    row = found.row("layer 0", ["NOUN"] * 4 + ["VERB"])
    assert row.by_kind == {"NOUN": 0.75, "VERB": 1.0} and row.kappa is None
    rows = sense_table(TRAIN, test, kinds=["NOUN"] * 4 + ["VERB"])
    assert rows[-1] == row


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
        (lambda: nearest_sense(uses(("a", EAST, None)), TRAIN), "training occurrences"),
        (lambda: nearest_sense(TRAIN, uses(("bank", (1, 0, 0), "x"))), "from one model"),
        (lambda: nearest_sense(TRAIN, TRAIN, words=(["a"] * 4, ["a"])), "words must have"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(InputError, match=message):
        call()
