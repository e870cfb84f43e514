"""Random numbers of a training step: negative samples, and sentences that start from zero states.

They follow from the run's seed, the step, and the direction or the row, so a resumed run draws the
same numbers as an uninterrupted one, and workers that share a batch agree.
"""

from __future__ import annotations

import math

import numpy as np

from bilm.core.language_model import Feed
from bilm.core.lstm import BatchSlice
from bilm.core.softmax import Negatives
from bilm.data import network_ids
from bilm.data.encoding import BOS_CHAR, EOS_CHAR

# Seeds of a step's draws end in a number: 0 and 1 are the directions.
_OF_RESETS = 2


def draw_log_uniform(n_classes: int, n_samples: int, seed: tuple[int, ...]) -> Negatives:
    """Negative samples of the sampled softmax: `n_samples` <= `n_classes` distinct classes.

    P(k) = log((k + 2) / (k + 1)) / log(n_classes + 1), the log-uniform (Zipfian) distribution over
    a vocabulary in descending order of frequency.
    """
    random = np.random.default_rng(seed)
    drawn = np.empty(0, np.int32)
    while True:
        u = random.random(4 * n_samples)
        k = np.exp(u * math.log(n_classes + 1)).astype(np.int32) - 1
        drawn = np.concatenate([drawn, np.minimum(k, n_classes - 1)])
        ids, first = np.unique(drawn, return_index=True)
        if len(ids) >= n_samples:
            last = np.partition(first, n_samples - 1)[n_samples - 1]
            return Negatives(ids[first <= last], int(last) + 1)


def sentence_starts(feed: Feed, marks: tuple[int, int] | None) -> np.ndarray:
    """Where sentences start: bool (D, time, batch).

    `marks` are the word ids of `<S>` and, backwards, of `</S>`; None if inputs are characters,
    where both have a byte of their own.
    """
    first = feed.inputs if marks else feed.inputs[:, 1]
    begins = np.isin(first, network_ids(np.array(marks or (BOS_CHAR, EOS_CHAR))))
    return begins[feed.words]  # (distinct,) -> (D, time, batch)


def draw_resets(
    feed: Feed,
    marks: tuple[int, int] | None,
    rate: float,
    seed: tuple[int, int],
    rows: BatchSlice | None = None,
) -> tuple[np.ndarray, ...]:
    """Draw the sentences that start from zero LSTM states in training, as every text does in use.

    A network that never sees zeros after the start of training may diverge there: docs/states.md.
    Both directions read the same sentences at the same steps of a row, and share the draw.

    `rate` is the probability per sentence; `seed`, the run's seed and the step, and the row in the
    global batch determine the draw (`rows` is the position there; None: the complete batch).
    Returns per direction bool (time, batch), True at the first input of such a sentence.
    """
    starts = sentence_starts(feed, marks)
    n_steps, n_rows = starts.shape[1:]
    first, total = (0, n_rows) if rows is None else rows
    random = np.random.default_rng((*seed, _OF_RESETS))
    drawn = random.random((n_steps, total)) < rate
    return tuple(starts & drawn[:, first : first + n_rows])
