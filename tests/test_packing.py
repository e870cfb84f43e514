"""Sequences in rows: none is cut, none lies on another, the rows are nearly of one length."""

from __future__ import annotations

import numpy as np
import pytest

from bilm.data.packing import pack


@pytest.mark.parametrize("n_rows", [1, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_every_place_belongs_to_one_sequence_at_most(n_rows, seed):
    lengths = np.random.default_rng(seed).integers(1, 20, 50)
    packing = pack(lengths, n_rows)
    taken = np.zeros((n_rows, packing.n_steps), int)
    for length, row, start in zip(lengths, packing.rows, packing.starts, strict=True):
        assert start + length <= packing.n_steps
        taken[row, start : start + length] += 1
    assert taken.max() == 1 and taken.sum() == lengths.sum()
    assert packing.n_rows == n_rows
    assert packing.n_steps <= max(lengths.max(), lengths.sum() / n_rows + lengths.min())


def test_the_longest_come_first_and_fill_the_shortest_row():
    packing = pack(np.array([2, 5, 3, 4]), 2)
    assert packing.rows.tolist() == [0, 0, 1, 1]
    assert packing.starts.tolist() == [5, 0, 4, 0]
    assert packing.n_steps == 7


def test_fewer_sequences_than_rows():
    packing = pack(np.array([3, 1]), 4)
    assert packing.n_steps == 3
    assert packing.starts.tolist() == [0, 0] and len(set(packing.rows.tolist())) == 2
