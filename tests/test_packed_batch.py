"""Packed sentences: the order of each direction, and unpacking the layers of a sentence."""

from __future__ import annotations

import numpy as np
import pytest

from bilm.inference.corpus_encoder import PackedSentences


@pytest.mark.parametrize("n_rows", [1, 2, 4])
def test_what_each_direction_reads(n_rows):
    lengths = np.array([3, 1, 4, 2])
    packed = PackedSentences.pack(lengths, n_rows)
    words = np.arange(1, 11, dtype=np.int32)
    inputs, resets = packed.ids(words, 2), packed.resets()
    assert inputs.shape == (2, *packed.shape) and resets.shape == packed.shape
    for number, own in enumerate(np.split(words, np.cumsum(lengths)[:-1])):
        start, row = packed.starts[number], packed.rows[number]
        here = slice(start, start + len(own))
        assert inputs[0, here, row].tolist() == own.tolist()
        assert inputs[1, here, row].tolist() == own[::-1].tolist()
        assert resets[here, row].tolist() == [True] + [False] * (len(own) - 1)
    assert resets.sum() == 4 and (inputs > 0).sum() == 20


def test_layers_of_a_sentence():
    packed = PackedSentences.pack(np.array([2, 3]), 1)  # the longer one comes first
    steps = np.arange(5, dtype=np.float32).reshape(5, 1, 1)
    tokens = np.float32([[7], [8]])
    outputs = [[steps, 10 * steps], [-steps, -10 * steps]]
    expected = [[[7, 7], [8, 8]], [[3, -4], [4, -3]], [[30, -40], [40, -30]]]
    # One part; two parts, of four steps and one, which split the sentence; three parts.
    for n_steps in (5, 4, 2):
        parts = [
            [[layer[first : first + n_steps] for layer in layers] for layers in outputs]
            for first in range(0, 5, n_steps)
        ]
        received = packed.layers(0, tokens, parts)
        np.testing.assert_array_equal(received, np.float32(expected))
        assert received.flags.owndata or received.base.flags.owndata


def test_one_direction():
    packed = PackedSentences.pack(np.array([2]), 1)
    assert packed.ids(np.int32([5, 6]), 1).tolist() == [[[5], [6]]]
    assert packed.layers(0, np.float32([[1], [2]]), [[[np.float32([[[3]], [[4]]])]]]).tolist() == [
        [[1], [2]], [[3], [4]],
    ]  # fmt: skip


@pytest.mark.parametrize("n_rows", [1, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_every_position_belongs_to_one_sentence_at_most(n_rows, seed):
    lengths = np.random.default_rng(seed).integers(1, 20, 50)
    packed = PackedSentences.pack(lengths, n_rows)
    n_steps = packed.shape[0]
    taken = np.zeros((n_rows, n_steps), int)
    for length, row, start in zip(lengths, packed.rows, packed.starts, strict=True):
        assert start + length <= n_steps
        taken[row, start : start + length] += 1
    assert taken.max() == 1 and taken.sum() == lengths.sum()
    assert packed.shape[1] == n_rows
    assert n_steps <= max(lengths.max(), lengths.sum() / n_rows + lengths.min())


def test_the_longest_come_first_and_fill_the_shortest_row():
    packed = PackedSentences.pack(np.array([2, 5, 3, 4]), 2)
    assert packed.rows.tolist() == [0, 0, 1, 1]
    assert packed.starts.tolist() == [5, 0, 4, 0]
    assert packed.shape == (7, 2)


def test_fewer_sentences_than_rows():
    packed = PackedSentences.pack(np.array([3, 1]), 4)
    assert packed.shape == (3, 4)
    assert packed.starts.tolist() == [0, 0] and len(set(packed.rows.tolist())) == 2
