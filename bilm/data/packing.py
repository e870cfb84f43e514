"""Sequences laid end to end in rows of nearly the same length: little of a batch is empty."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np


class Packing(NamedTuple):
    """Where sequences lie.

    Attributes:
        n_rows, n_steps: rows, and places of a row; the last places of some rows are empty.
        rows: int64 (n,), the row of each sequence.
        starts: int64 (n,), its first place in that row.
    """

    n_rows: int
    n_steps: int
    rows: np.ndarray
    starts: np.ndarray


def pack(lengths: np.ndarray, n_rows: int) -> Packing:
    """Lay sequences into rows: the longest first, each into the row that is shortest so far.

    Source: Graham (1969), "Bounds on multiprocessing timing anomalies": the longest row is at most
    a third longer than need be, and with many short sequences hardly longer at all.

    Args:
        lengths: integers (n,), places of each sequence.
        n_rows: rows to fill.
    """
    rows, starts = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
    filled = [(0, row) for row in range(n_rows)]  # a heap: places so far, row
    for number in np.argsort(-lengths, kind="stable").tolist():
        start, row = filled[0]
        rows[number], starts[number] = row, start
        heapq.heapreplace(filled, (start + int(lengths[number]), row))
    return Packing(n_rows, max(filled)[0], rows, starts)
