"""The random numbers of a training step: negative samples, and the sentences that begin from zeros.

They follow from the seed of the run, the step, and the direction or the row alone, so that a run
that is resumed draws what it would have drawn, and workers that share a batch draw alike.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bilm.layers import BatchSlice
from bilm.training.feed import Feed, Marks, sentence_starts

# What is drawn for a step is told apart by a number: 0 and 1 are the directions.
_OF_RESETS = 2


class Draw(NamedTuple):
    """Distinct classes int32 (n_samples,) in rising order, and the number of draws it took."""

    ids: np.ndarray
    n_tries: int


def draw_log_uniform(n_classes: int, n_samples: int, seed: tuple[int, ...]) -> Draw:
    """Negative samples of the sampled softmax: draw until enough distinct classes are there.

    P(k) = log((k + 2) / (k + 1)) / log(n_classes + 1), the log-uniform (Zipfian) distribution over
    a vocabulary that is ordered by falling count.

    Args:
        n_classes: classes 0..n_classes - 1.
        n_samples: fewer than `n_classes`.
        seed: numbers from 0, which determine the draw.

    Raises:
        ValueError: more samples are asked for than there are classes.
    """
    if n_samples > n_classes:
        raise ValueError(f"{n_samples} distinct classes cannot be drawn from {n_classes}.")
    random = np.random.default_rng(seed)
    drawn = np.empty(0, np.int32)
    while True:
        u = random.random(4 * n_samples)
        k = np.exp(u * math.log(n_classes + 1)).astype(np.int32) - 1
        drawn = np.concatenate([drawn, np.minimum(k, n_classes - 1)])
        ids, first = np.unique(drawn, return_index=True)
        if len(ids) >= n_samples:
            last = np.partition(first, n_samples - 1)[n_samples - 1]
            return Draw(ids[first <= last], int(last) + 1)


def draw_resets(
    feed: Feed,
    marks: Marks | None,
    rate: float,
    seed: tuple[int, int],
    rows: BatchSlice | None = None,
) -> tuple[np.ndarray, ...]:
    """Draw the sentences that begin, in training, from LSTM states of zero.

    In use every text begins from zeros. A row of training batches does so only once, at its first
    sentence: later ones begin from the states after the sentence before. A network that never
    sees zeros again may be lost there (see docs/states.md), so now and then a sentence begins
    anew.

    Both directions read the same sentences at the same steps of a row, and share the draw.

    Args:
        feed: the batch.
        marks: see `sentence_starts`.
        rate: probability of each sentence.
        seed: of the run, and the step: with the row they determine the draw.
        rows: which rows of a larger batch `feed` holds; None is the whole batch.

    Returns:
        of each direction bool (time, batch), True at the first input of such a sentence.
    """
    starts = sentence_starts(feed, marks)
    n_steps, n_rows = starts.shape[1:]
    first, total = (0, n_rows) if rows is None else rows
    random = np.random.default_rng((*seed, _OF_RESETS))
    drawn = random.random((n_steps, total)) < rate
    return tuple(starts & drawn[:, first : first + n_rows])
