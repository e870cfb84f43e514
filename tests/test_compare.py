"""`bilm compare` and `ELMo.word_vector`: a word in two sentences."""

from __future__ import annotations

import itertools
import json
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
    arguments = ["compare", *queries, "--model", "elmo", "--static", "vectors.txt"]
    assert main([*arguments, "--format", "json"]) == 0
    pairs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert pairs[0]["words"] == ["bird", "bird"] and pairs[0]["positions"] == [4, 1]
    layers = [f"layer {layer}" for layer in range(place.model.n_layers)]
    vectors = [place.model.word_vector(query, "all") for query in queries]
    numbers = itertools.combinations(range(5), 2)
    for (one, other), pair in zip(numbers, pairs, strict=True):
        assert list(pair["cosines"]) == [*layers, "static"]
        for layer, name in enumerate(layers):
            expected = cosine(vectors[one][layer], vectors[other][layer])
            assert pair["cosines"][name] == pytest.approx(expected, abs=2e-5)
    assert pairs[0]["cosines"]["layer 0"] == 1.0 > pairs[0]["cosines"]["layer 1"]
    static = [pair["cosines"]["static"] for pair in pairs]
    assert static[:4] == [1.0, 0.6, 0.0, None] and static[7:] == [0.8, None, None]
    assert main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:6] == [f"{k}  {query}" for k, query in enumerate(queries, 1)] + [""]
    assert printed[6].split("   ")[0] == "pair" and "average" not in printed[6]
    row = printed[7].split()
    assert row[:3] == ["1", "-", "2"] and row[-1] == "1.000" and printed[-1].endswith("-")
    assert float(row[4]) == pytest.approx(pairs[0]["cosines"]["layer 1"], abs=1e-3)
