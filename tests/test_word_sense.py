"""Senses by the nearest use: vectors whose neighbours are known."""

from __future__ import annotations

import numpy as np
import pytest

from bilm.analysis import (
    Occurrences,
    SenseSettings,
    first_sense,
    nearest_sense,
    sense_table,
    with_static,
)
from bilm.core.errors import InputError

EAST, NORTH, WEST = (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)


def uses(*rows):
    """Occurrences from (sentence with the word first, vector, label), all in one layer."""
    sentences = [tuple(sentence.split()) for sentence, _, _ in rows]
    vectors = np.array([vector for _, vector, _ in rows], np.float32)[:, np.newaxis]
    labels = [label for _, _, label in rows]
    positions = np.array([(k, 0) for k in range(len(rows))])
    return Occurrences(sentences, positions, vectors, None if None in labels else labels)


TRAIN = uses(
    ("bank of the Thames", (1.0, 0.1), "river"),
    ("bank of England", (0.1, 1.0), "money"),
    ("Bank holiday", (0.0, 1.0), "money"),
    ("play cards", (-1.0, 0.2), "game"),
)


class Vectors:
    """Static vectors of a few words."""

    dim = 2

    def __init__(self, **vectors):
        self.vectors = vectors

    def vector(self, word):
        found = self.vectors.get(word)
        return None if found is None else np.array(found, np.float32)


def test_the_nearest_use_of_the_same_word():
    test = uses(
        ("bank", EAST, "river"), ("BANK", (0.2, 0.9), "money"), ("play", NORTH, "game"),
        ("bank", NORTH, "river"),
    )  # fmt: skip
    for centre in ("all", None):
        found = nearest_sense(TRAIN, test, 0, SenseSettings(centre=centre))
        # A play is a game wherever its vector is.
        assert found.senses == ["river", "money", "game", "money"]
        assert found.right.tolist() == [True, True, True, False]
        assert found.accuracy == 0.75 and found.ambiguous_accuracy == pytest.approx(2 / 3)
        assert found.seen.all() and found.ambiguous.tolist() == [True, True, False, True]
    assert nearest_sense(TRAIN, test).senses == ["river", "money", "game", "money"]


def test_the_nearest_mean_is_not_the_nearest_use():
    train = uses(
        ("bank", (1.0, 0.05), "river"), ("bank", (-1.0, 0.5), "river"), ("bank", NORTH, "money"),
        ("bank", (1.0, 1.0), "money"),
    )  # fmt: skip
    test = uses(("bank", EAST, None), ("bank", (0.6, 0.8), None))
    assert nearest_sense(train, test, 0, SenseSettings(centre=None)).senses == ["river", "money"]
    by_mean = nearest_sense(train, test, 0, SenseSettings("mean", None)).senses
    # The mean of the river's uses points north, that of money's north-east.
    assert by_mean == ["money", "money"]


def test_what_is_taken_from_the_vectors_first():
    """The training uses of the bank are at a and b, their mean is at (13, 10)."""
    a, b = (10.0, 11.0), (16.0, 9.0)
    train = uses(("bank", a, "a"), ("bank", b, "b"), ("oak", (0, 0), "c"))
    test = uses(("bank", (11, 9), None))
    by_centre = {
        centre: nearest_sense(train, test, 0, SenseSettings(centre=centre)).senses[0]
        for centre in ("all", "word", None)
    }
    # Angles as seen from (8.7, 6.7), from (13, 10), and from the origin.
    assert by_centre == {"all": "b", "word": "a", None: "a"}


def test_of_equals_the_more_frequent_sense_is_taken():
    train = uses(("bank", EAST, "river"), ("bank", EAST, "money"), ("bank", EAST, "money"))
    test = uses(("bank", EAST, None), ("bank", WEST, None))
    for nearest in ("use", "mean"):
        assert nearest_sense(train, test, 0, SenseSettings(nearest, None)).senses == ["money"] * 2
    even = uses(("bank", EAST, "river"), ("bank", EAST, "money"))
    assert first_sense(even, test).senses == ["river", "river"]


def test_words_without_training_uses():
    test = uses(("banks", (0.2, 0.9), "money"), ("bank", EAST, "river"))
    # Layer 0 is near that of the bank, whose uses are in the north-east.
    assert nearest_sense(TRAIN, test, 0).senses == ["money", "river"]
    frequent = nearest_sense(TRAIN, test, 0, SenseSettings(unseen="frequent"))
    assert frequent.senses == ["money", "river"]
    nothing = nearest_sense(TRAIN, test, 0, SenseSettings(unseen=None))
    assert nothing.senses == [None, "river"] and nothing.accuracy == 0.5
    assert nothing.seen.tolist() == [False, True] == nothing.ambiguous.tolist()
    played = uses(("played", (-0.9, 0.1), "game"))
    assert first_sense(TRAIN, played).senses == ["game"]
    assert first_sense(TRAIN, played, unseen="frequent").senses == ["money"]
    assert first_sense(TRAIN, played, unseen=None).senses == [None]
    assert first_sense(TRAIN, played).ambiguous_accuracy is None


def test_words_may_be_lemmas():
    test = uses(("banks", EAST, "river"))
    words = (["bank", "bank", "bank", "play"], ["bank"])
    found = nearest_sense(TRAIN, test, 0, words=words)
    assert found.senses == ["river"] and found.seen.all()
    assert first_sense(TRAIN, test, words=words).senses == ["money"]


def test_a_static_vector_cannot_tell_uses_apart_and_its_context_can():
    static = Vectors(bank=(3, 3), Thames=EAST, river=(0.9, 0.1), England=NORTH, pound=(0.1, 0.9))
    test = uses(("bank river", WEST, "river"), ("bank pound", WEST, "money"), ("bank", EAST, "x"))
    rows = sense_table(TRAIN, test, SenseSettings(centre=None), static=static)
    assert [row.representation for row in rows] == [
        "first sense", "static", "static context", "layer 0",
    ]  # fmt: skip
    accuracies = {row.representation: row.accuracy for row in rows}
    assert accuracies["static"] == accuracies["first sense"] == pytest.approx(1 / 3)
    assert accuracies["static context"] == pytest.approx(2 / 3)
    contexts = with_static(test, static, None).vectors[:, 0]
    assert contexts == pytest.approx(np.array([(0.9, 0.1), (0.1, 0.9), (0, 0)]))
    near = with_static(uses(("bank of river pound", EAST, "x")), static, 2).vectors[0, 0]
    assert near == pytest.approx((0.9, 0.1))
    assert with_static(test, static).vectors[:, 0] == pytest.approx(np.full((3, 2), 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nearest_sense(uses(("a", EAST, None)), TRAIN),
         "word sense: training uses with labels are expected."),
        (lambda: nearest_sense(TRAIN, uses(("bank", EAST, None)), 0).accuracy,
         "word sense: test uses with labels are expected."),
        (lambda: nearest_sense(TRAIN, uses(("bank", (1, 0, 0), "x"))),
         "word sense: vectors of one model are expected, not (1, 2) and (1, 3) (layers, dim)."),
        (lambda: nearest_sense(TRAIN, TRAIN, 1), "layer must be 'top', 'average' or a number from "
         "0 to 0, got 1."),
        (lambda: nearest_sense(TRAIN, TRAIN, words=(["a"] * 4, ["a"])),
         "words: 4 are expected for test, not 1."),
        (lambda: first_sense(TRAIN, TRAIN, words=([], ["a"] * 4)),
         "words: 4 are expected for train, not 0."),
        (lambda: nearest_sense(TRAIN, TRAIN, 0, SenseSettings("median")),
         "nearest: one of 'use', 'mean' is expected, not 'median'."),
        (lambda: sense_table(TRAIN, TRAIN, SenseSettings(centre="zero")),
         "centre: one of 'all', 'word', None is expected, not 'zero'."),
        (lambda: first_sense(TRAIN, TRAIN, unseen="any"),
         "unseen: one of 'similar', 'frequent', None is expected, not 'any'."),
    ],
)  # fmt: skip
def test_wrong_arguments(call, message):
    with pytest.raises(InputError) as raised:
        call()
    assert str(raised.value) == message
