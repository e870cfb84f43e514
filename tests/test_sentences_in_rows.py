"""Sentences in rows: each direction reads its words in its order, and they come out whole."""

from __future__ import annotations

import numpy as np
import pytest

from bilm.embedding.sentences_in_rows import SentencesInRows


@pytest.mark.parametrize("n_rows", [1, 2, 4])
def test_what_each_direction_reads(n_rows):
    lengths = np.array([3, 1, 4, 2])
    places = SentencesInRows.lay(lengths, n_rows)
    words = np.arange(1, 11, dtype=np.int32)
    inputs, resets = places.inputs(words, 2), places.resets()
    assert inputs.shape == (2, *places.shape) and resets.shape == places.shape
    for number, own in enumerate(np.split(words, np.cumsum(lengths)[:-1])):
        start, row = places.packing.starts[number], places.packing.rows[number]
        here = slice(start, start + len(own))
        assert inputs[0, here, row].tolist() == own.tolist()
        assert inputs[1, here, row].tolist() == own[::-1].tolist()
        assert resets[here, row].tolist() == [True] + [False] * (len(own) - 1)
    assert resets.sum() == 4 and (inputs > 0).sum() == 20


def test_layers_of_a_sentence():
    places = SentencesInRows.lay(np.array([2, 3]), 1)  # the longer one lies first
    steps = np.arange(5, dtype=np.float32).reshape(5, 1, 1)
    tokens = np.float32([[7], [8]])
    received = places.layers(0, tokens, [[steps, 10 * steps], [-steps, -10 * steps]])
    expected = [[[7, 7], [8, 8]], [[3, -4], [4, -3]], [[30, -40], [40, -30]]]
    np.testing.assert_array_equal(received, np.float32(expected))
    assert received.flags.owndata or received.base.flags.owndata


def test_one_direction():
    places = SentencesInRows.lay(np.array([2]), 1)
    assert places.inputs(np.int32([5, 6]), 1).tolist() == [[[5], [6]]]
    assert places.layers(0, np.float32([[1], [2]]), [[np.float32([[[3]], [[4]]])]]).tolist() == [
        [[1], [2]], [[3], [4]],
    ]  # fmt: skip
