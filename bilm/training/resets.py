"""Which sentences of a batch begin, in training, from LSTM states of zero.

In use every text begins from zeros. A row of training batches does so only once, at its first
sentence: later ones begin from the states after the sentence before. A network that never sees
zeros again may be lost there (see docs/states.md), so now and then a sentence begins anew.
"""

from __future__ import annotations

import numpy as np

from bilm.layers import BatchSlice
from bilm.training.feed import Feed, Marks, sentence_starts

# Beside the numbers of the directions, by which the negative samples are drawn.
_PURPOSE = 2


def draw_resets(
    feed: Feed,
    marks: Marks | None,
    rate: float,
    seed: tuple[int, int],
    rows: BatchSlice | None = None,
) -> tuple[np.ndarray, ...]:
    """Draw the sentences that begin from states of zero.

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
    random = np.random.default_rng((*seed, _PURPOSE))
    drawn = random.random((n_steps, total)) < rate
    return tuple(starts & drawn[:, first : first + n_rows])
