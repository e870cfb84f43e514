"""Draw the negative samples of the sampled softmax.

Words are drawn from the log-uniform (Zipfian) distribution over the vocabulary, which is ordered
by falling count, until enough distinct ones are there. The draws depend on the seed, the step and
the direction alone, so that a run that is resumed draws what it would have drawn.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np


class Draw(NamedTuple):
    """Distinct classes int32 (n_samples,) in rising order, and the number of draws it took."""

    ids: np.ndarray
    n_tries: int


def draw_log_uniform(n_classes: int, n_samples: int, seed: tuple[int, ...]) -> Draw:
    """Draw until `n_samples` distinct classes are there: P(k) = log((k+2)/(k+1)) / log(n+1).

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
