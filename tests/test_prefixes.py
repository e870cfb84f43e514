"""Trees of the beginnings of texts: each beginning once, at every input that ends it."""

from __future__ import annotations

import numpy as np
import pytest

from bilm.inference.scorer import TextRows

ROWS = ([1, 2, 3], [1, 2], [], [4], [1, 2, 3], [1, 5, 3, 3])


def text_of(rows):
    lengths = np.array([len(row) for row in rows])
    words = np.array([word for row in rows for word in row], np.int32)
    return TextRows(words, words, lengths)


@pytest.mark.parametrize("n_states", [1, len(ROWS)])
@pytest.mark.parametrize("rows", [range(6), [5, 0, 2, 4], [2]])
def test_each_beginning_once(rows, n_states):
    text = text_of(ROWS)
    starts = np.cumsum(text.lengths) - text.lengths
    # The beginnings of the level before, each with the number of its state.
    before = [(state,) for state in range(n_states)]
    expected = {(k, t) for k in rows for t in range(len(ROWS[k]))}
    for t, level in enumerate(text.levels(np.array(rows), n_states)):
        steps = zip(level.words.tolist(), level.parents.tolist(), strict=True)
        before = [(*before[parent], word) for word, parent in steps]
        assert len(set(before)) == len(before) == level.n_nodes()
        assert set(level.nodes.tolist()) == set(range(len(before)))
        np.testing.assert_array_equal(level.inputs, starts[level.rows] + t)
        for row, node in zip(level.rows.tolist(), level.nodes.tolist(), strict=True):
            assert before[node] == (row if n_states > 1 else 0, *ROWS[row][: t + 1])
            expected.remove((row, t))
    assert not expected


def test_groups_of_similar_rows():
    text = text_of(ROWS)
    assert [group.tolist() for group in text.groups(6)] == [[0, 1, 2, 3, 4, 5]]
    assert [group.tolist() for group in text.groups(2)] == [[2, 1], [0, 4], [5, 3]]
