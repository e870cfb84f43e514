"""`bilm compare` and `ELMo.word_vector`: a word in two sentences."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from bilm import InputError
from bilm.cli import main

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


def test_compare_queries(place, capsys):
    Path("vectors.txt").write_text(STATIC, "utf-8")
    queries = [*QUERIES, "a [dog]", "a [fish]"]
    assert main(["compare", *queries, "--model", "elmo", "--static", "vectors.txt"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:6] == [f"{k}  {query}" for k, query in enumerate(queries, 1)] + [""]
    assert printed[6].split() == ["pair", *"layer 0 layer 1 layer 2 static".split()]
    rows = [line.split() for line in printed[7:]]
    vectors = [place.model.word_vector(query, "all") for query in queries]
    pairs = itertools.combinations(range(5), 2)
    for (one, other), row in zip(pairs, rows, strict=True):
        assert row[:3] == [str(one + 1), "-", str(other + 1)]
        expected = [cosine(*layers) for layers in zip(vectors[one], vectors[other], strict=True)]
        assert [float(cell) for cell in row[3:6]] == pytest.approx(expected, abs=6e-4)
    assert rows[0][3] == "1.000" > rows[0][4]
    static = [row[6] for row in rows]
    assert static[:4] == ["1.000", "0.600", "0.000", "-"] and static[7:] == ["0.800", "-", "-"]
