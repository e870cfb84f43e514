"""A tree of the distinct prefixes of texts, so that each prefix is computed once.

A node is a prefix of one or more inputs; its parent is the prefix without the last input. Rows that
start from the same state and have read the same words have the same state. Level t has the prefixes
of t + 1 inputs, and is computed from the states of the level before it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class Level(NamedTuple):
    """The distinct prefixes of one length."""

    words: np.ndarray  # int32 (nodes,), the last input of each
    parents: np.ndarray  # int32 (nodes,), a node of the level before, or the number of a state
    rows: np.ndarray  # int64 (n,), the rows that are at least this long
    inputs: np.ndarray  # int64 (n,), each row's last input in the prefix, as an index in the text
    nodes: np.ndarray  # int64 (n,), the node of each row

    def n_nodes(self) -> int:
        return len(self.words)


class TextRows(NamedTuple):
    """Rows of text, as one direction reads them."""

    words: np.ndarray  # int32 (inputs,), rows of a table of vectors, row after row
    targets: np.ndarray  # int32 (inputs,), the id of the word after each input
    lengths: np.ndarray  # int64 (rows,), inputs of each row

    def groups(self, n_rows: int) -> list[np.ndarray]:
        """The numbers of rows in groups of at most `n_rows`; rows with a common prefix are
        neighbours."""
        n = len(self.lengths)
        if n <= n_rows:
            return [np.arange(n)]
        rows = np.split(self.words.astype(">i4"), np.cumsum(self.lengths)[:-1])
        keys = [row.tobytes() for row in rows]
        order = np.array(sorted(range(n), key=keys.__getitem__))
        return np.array_split(order, -(-n // n_rows))

    def levels(self, rows: np.ndarray, n_states: int) -> Iterator[Level]:
        """The levels of some rows, which start from one state, or each from a state of its own."""
        rows = rows[np.argsort(-self.lengths[rows], kind="stable")]
        lengths = self.lengths[rows]
        starts = np.cumsum(self.lengths)[rows] - lengths
        n_words = int(self.words.max(initial=0)) + 1
        nodes = rows if n_states > 1 else np.zeros(len(rows), np.int64)
        for t in range(lengths.max(initial=0)):
            n = np.count_nonzero(lengths > t)
            inputs = starts[:n] + t
            keys = nodes[:n] * n_words + self.words[inputs]
            distinct, nodes = np.unique(keys, return_inverse=True)
            parents, words = (x.astype(np.int32) for x in np.divmod(distinct, n_words))
            yield Level(words, parents, rows[:n], inputs, nodes)
