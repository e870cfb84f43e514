"""`bilm compare` and `ELMo.word_vector`: a word in two sentences, and pairs with gold answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bilm import InputError
from bilm.analysis.static_vectors import StaticVectors
from bilm.analysis.word_pairs import (
    agreement_with_gold,
    best_threshold,
    cosines,
    is_binary,
    pairs_of_queries,
    read_answers,
    read_word_pairs,
)
from bilm.cli import main
from tests.command_line import input_error

pytestmark = pytest.mark.eager

QUERIES = ["the cat sees a [bird] .", "a [bird]", "the [cat] hears a dog"]
STATIC = "3 2\nbird 1 0\ncat 0.6 0.8\ndog 0 1\n"


def cosine(one, other):
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_the_vector_of_a_word(place):
    elmo = place.model
    whole = elmo.encode(["the cat sees a bird ."], "all")[0]
    query = "the cat [sees] a bird ."
    np.testing.assert_allclose(elmo.word_vector(query, "all"), whole[:, 2], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(elmo.word_vector(query), whole[:, 2].mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(elmo.word_vector(query, 1), whole[1, 2], rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="exactly one token must be in brackets"):
        elmo.word_vector("the cat sees")


def test_cosines_by_layer(place):
    elmo = place.model
    static = StaticVectors(["bird", "cat"], np.array([[1, 0], [0.6, 0.8]], np.float32))
    found = cosines(elmo, pairs_of_queries([*QUERIES, "a [dog]"]), static)
    names = [f"layer {layer}" for layer in range(elmo.n_layers)]
    assert list(found) == [*names, "average", "static"]
    first = elmo.word_vector(QUERIES[0], "all")
    for k, query in enumerate(QUERIES[1:]):
        other = elmo.word_vector(query, "all")
        for layer, name in enumerate(names):
            assert found[name][k] == pytest.approx(cosine(first[layer], other[layer]), abs=2e-5)
        assert found["average"][k] == pytest.approx(cosine(first.mean(0), other.mean(0)), abs=2e-5)
    assert found["layer 0"][0] == 1.0 > found["layer 1"][0]  # the same word in different contexts
    np.testing.assert_allclose(found["static"], [1.0, 0.6, np.nan, 0.6, np.nan, np.nan])


@pytest.mark.parametrize(
    ("values", "answers", "right"),
    [
        ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], 4),
        ([0.9, 0.1, 0.5, 0.3, 0.7], [1, 0, 1, 1, 0], 4),
        ([0.5, 0.5, 0.5], [1, 0, 1], 2),
        ([0.5, 0.5, 0.5], [1, 0, 0], 2),
        ([0.1, 0.2], [1, 0], 1),
        ([0.3], [1], 1),
    ],
)
def test_best_thresholds(values, answers, right):
    values, answers = np.array(values), np.array(answers, float)
    threshold = best_threshold(values, answers)
    assert ((values > threshold) == answers).sum() == right
    candidates = np.concatenate([[-1], values, values + 1e-3])
    assert max(((values > t) == answers).sum() for t in candidates) == right


def test_agreement_with_gold_by_hand():
    found = {"layer 0": np.ones(6), "layer 1": np.array([0.9, 0.8, 0.2, 0.1, 0.7, 0.6])}
    found["static"] = np.array([0.9, np.nan, 0.2, 0.1, 0.7, 0.3])
    gold = np.array([1.0, 1, 0, 0, 1, 0])
    zero, one, static = agreement_with_gold(found, gold, dict.fromkeys(found, 0.5))
    assert (zero.name, zero.n, zero.accuracy, zero.threshold) == ("layer 0", 6, 0.5, 0.5)
    assert np.isnan(zero.spearman)
    assert one.accuracy == pytest.approx(5 / 6)
    # Ranks 6 5 2 1 4 3 and 5 5 2 2 5 2; deviations from 3.5 are 2.5 1.5 ... and +-1.5.
    assert one.spearman == pytest.approx(13.5 / np.sqrt(17.5 * 13.5))
    assert (static.n, static.accuracy) == (5, 1.0)
    zero, one, _ = agreement_with_gold(found, gold)
    # Even pairs 0.9 T, 0.2 F, 0.7 T; odd pairs 0.8 T, 0.1 F, 0.6 F: thresholds 0.45 and 0.7, so
    # one pair is a tie, which counts half.
    assert one.accuracy == pytest.approx(4.5 / 6) and one.ties == 1
    assert one.threshold == pytest.approx(0.65)
    graded = np.array([3.0, 2.5, 1, 0, 2, 1.5])
    _, one, _ = agreement_with_gold(found, graded)
    assert (one.accuracy, one.threshold) == (None, None)
    assert one.spearman == pytest.approx(1.0)
    with pytest.raises(InputError, match="layer 0: at least 4 pairs must have"):
        agreement_with_gold({"layer 0": np.ones(2)}, np.ones(2))


def test_compare_queries(place, capsys):
    Path("vectors.txt").write_text(STATIC, "utf-8")
    arguments = ["compare", *QUERIES, "--model", "elmo", "--static", "vectors.txt"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:4] == [f"{k}  {query}" for k, query in enumerate(QUERIES, 1)] + [""]
    found = cosines(place.model, pairs_of_queries(QUERIES), StaticVectors.load("vectors.txt"))
    cells = [line.split("   ") for line in printed[4:]]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in cells]
    assert cells[0] == ["pair", *found]
    for k, (name, *shown) in enumerate(cells[1:]):
        assert name == ("1 - 2", "1 - 3", "2 - 3")[k]
        np.testing.assert_allclose(
            [float(x) for x in shown], [v[k] for v in found.values()], atol=2e-3
        )
    assert main([*arguments, "--format", "json"]) == 0
    first, *_ = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first["words"] == ["bird", "bird"] and first["positions"] == [4, 1]
    assert first["cosines"]["static"] == 1.0


PAIRS = [
    ("bird\tN\t4-1\tthe cat sees a bird .\ta bird", "T"),
    ("cat\tN\t1-1\tthe cat sees\ta cat", "F"),
    ("dog\tN\t1-0\tthe dog\tdog sees", "F"),
    ("see\tV\t1-2\tcat sees .\tthe dog saw", "T"),
    ("a\tD\t0-1\ta dog\tsees a bird", "F"),
]


def write_pairs(name="data.txt", gold="gold.txt"):
    Path(name).write_text("".join(f"{line}\n" for line, _ in PAIRS), "utf-8")
    Path(gold).write_text("".join(f"{answer}\n" for _, answer in PAIRS), "utf-8")


def test_pairs_in_the_form_of_wic(place):
    write_pairs()
    pairs = read_word_pairs("data.txt")
    words = [pairs.word(k) for k in range(10)]
    assert words == "bird bird cat cat dog dog sees saw a a".split()
    gold = read_answers("gold.txt", 5)
    assert gold.tolist() == [1, 0, 0, 1, 0] and is_binary(gold)
    Path("scores.txt").write_text("1.5\n2\n", "utf-8")
    assert read_answers("scores.txt", 2).tolist() == [1.5, 2]
    assert not is_binary(read_answers("scores.txt", 2))


def test_compare_with_gold(place, capsys):
    write_pairs()
    arguments = ["compare", "--pairs", "data.txt", "--model", "elmo"]
    assert main([*arguments, "--gold", "gold.txt"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0].split() == ["pairs", "accuracy", "threshold", "Spearman"]
    assert "40.0 % of the pairs have the answer T." in printed.err
    assert "For each half of the pairs, the threshold is the best one for" in printed.err
    found = cosines(place.model, read_word_pairs("data.txt"))
    gold = read_answers("gold.txt", 5)
    results = agreement_with_gold(found, gold)
    for line, result in zip(printed.out.splitlines()[1:], results, strict=True):
        cells = line.removeprefix(result.name).split()
        assert cells[:3] == ["5", f"{100 * result.accuracy:.1f}", "%"]
        assert float(cells[3]) == pytest.approx(result.threshold, abs=1e-3)
        assert float(cells[4]) == pytest.approx(result.spearman, abs=1e-3)
    training = ["--train_pairs", "data.txt", "--train_gold", "gold.txt"]
    assert main([*arguments, "--gold", "gold.txt", *training, "--format", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line, values in zip(lines, found.values(), strict=True):
        assert line["threshold"] == best_threshold(values, gold)
        assert line["accuracy"] == ((values > line["threshold"]) == gold).mean()
    Path("graded.txt").write_text("1\n2\n3\n4\n5\n", "utf-8")
    assert main([*arguments, "--gold", "graded.txt"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["pairs", "Spearman"]
    error = input_error([*arguments, "--gold", "graded.txt", *training], capsys)
    assert "graded.txt: answers must be T or F" in error
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[4].startswith("4  sees - saw")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bird\tN\t4\ta\tb", "line 1: must be a word, its part"),
        ("", "there must be at least one pair."),
    ],
)
def test_pairs_that_cannot_be_read(line, message, tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text(f"{line}\n", "utf-8")
    with pytest.raises(InputError, match=message):
        read_word_pairs(path)


def test_positions_must_be_those_of_the_word(tmp_path):
    """With 1-based positions, *cards* would be compared with *was*."""
    path = tmp_path / "pairs.txt"
    path.write_text("card\tN\t2-3\tHis cards was new\tI have a card .\n", "utf-8")
    with pytest.raises(InputError, match=r"line 1: positions must be 0-based.*'was'.*'card'"):
        read_word_pairs(path)
    path.write_text("be\tV\t1-1\tit was\tthey are\nbe\tV\t1-1\tI am\tto be\n" * 2, "utf-8")
    with pytest.raises(InputError, match="6 of 8 that do not"):
        read_word_pairs(path)


def test_ties_and_training_pairs_without_a_vector():
    values = np.array([0.1, np.nan, 0.3, 0.5, np.nan])
    assert best_threshold(values, np.array([0.0, 0, 1, 1, 1])) == pytest.approx(0.2)
    with pytest.raises(InputError, match="pairs with a cosine"):
        best_threshold(np.array([np.nan]), np.array([1.0]))
    found = {"static": np.array([0.5, 0.5, 0.9, 0.1]), "layer 0": np.ones(4)}
    gold = np.array([1.0, 0, 1, 0])
    static, zero = agreement_with_gold(found, gold, {"static": 0.5, "layer 0": 0.9})
    assert (static.accuracy, static.ties) == (0.75, 2)  # two answers, and two halves
    assert (zero.accuracy, zero.ties) == (0.5, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("T\nyes\n", "line 2: must be T, F or a number, got 'yes'"),
        ("T\n", "must have one answer for each of 2 pairs, got 1"),
    ],
)
def test_answers_that_cannot_be_read(text, message, tmp_path):
    path = tmp_path / "gold.txt"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=message):
        read_answers(path, 2)
