"""Hand-made occurrences with a known geometry."""

from __future__ import annotations

import numpy as np

from bilm.analysis import Occurrences

TREES = ("birch", "maple", "cedar", "aspen", "alder", "hazel", "rowan", "larch", "beech", "linden")


def two_senses(n_each: int = 8, labels: bool = True) -> Occurrences:
    """Occurrences of `bank` in two senses, with three layers of 6 numbers.

    In layer 0 all vectors are equal. In layer 1 the senses are 10 apart in the first number, and
    the occurrences of a sense spread from 0 to 1 in the second; in layer 2, 1 apart and 0 to 10.
    """
    sentences, vectors = [], []
    for sense in (0, 1):
        for k in range(n_each):
            before = ("muddy", "savings")[sense]
            tree = f"{TREES[k % 10]}{k // 10 or ''}"
            sentences.append((tree, before, "bank", tree, "."))
            place = k / (n_each - 1)
            large, small = (10.0, 1.0)
            vectors.append(
                [
                    [1, 2, 3, 4, 5, 6],
                    [large * sense, small * place, 0, 0, 0, 0],
                    [small * sense, large * place, 0, 0, 0, 0],
                ]
            )
    return Occurrences(
        sentences,
        np.array([(k, 2) for k in range(2 * n_each)], np.int64),
        np.array(vectors, np.float32),
        ["river"] * n_each + ["money"] * n_each if labels else None,
    )
