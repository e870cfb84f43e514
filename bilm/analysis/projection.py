"""Vectors of occurrences in two dimensions, layer by layer: PCA or t-SNE.

    projection = project(occurrences, "tsne", seed=1)
    projection.points[:, 2]  # of layer 2: (n, 2)

What is projected are the directions that neighbours are measured with (`Occurrences.directions`):
what is near in a picture was near by the cosine, as far as two dimensions can show it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilm.analysis.occurrences import Occurrences, require_occurrences
from bilm.core.errors import InputError, checked, shown
from bilm.extras import import_extra

METHODS = ("pca", "tsne")
LARGEST_PERPLEXITY = 30.0
"""The perplexity of t-SNE where none is given, with occurrences enough."""

_BLOCK = 512  # rows of cosines that are computed together


@dataclass(frozen=True, eq=False)
class Projection:
    """Occurrences in two dimensions.

    Attributes:
        method: "pca" or "tsne".
        layers: the numbers of the layers (m of them).
        points: float32 (n, m, 2), in the order of the occurrences and of `layers`.
        variance: float (m, 2), of PCA: the share of a layer's variance that each axis shows, 0 to
            1; zeros where all vectors are alike. None of t-SNE.
        n_distinct: for each layer, how many different vectors there are. In layer 0, which knows
            no context, all occurrences of a word have the same one.
        perplexity: the greatest that t-SNE used, None of PCA. A layer of few different vectors
            has a smaller one: a third of their number.
    """

    method: str
    layers: list[int]
    points: np.ndarray
    variance: np.ndarray | None
    n_distinct: list[int]
    perplexity: float | None


@checked
def project(
    occurrences: Occurrences,
    method: str = "pca",
    *,
    layers: Sequence[int | str] | None = None,
    perplexity: float | None = None,
    seed: int = 0,
    n_threads: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Projection:
    """Each layer's vectors in two dimensions.

    Args:
        occurrences: at least three.
        method: "pca", the two directions of the greatest variance, which keeps large distances; or
            "tsne" (van der Maaten and Hinton 2008), which keeps neighbours together; distances
            between its groups, and their sizes, mean little.
        layers: numbers of layers, or "top"; None for all.
        perplexity: of t-SNE: about how many neighbours each occurrence has; less than a
            third of the occurrences. None: 30, or as many as fewer occurrences allow.
        seed: of t-SNE. PCA has none, and its signs are fixed.
        n_threads: threads of t-SNE and of matrix products; the result does not depend on it. On a
            machine that others use too, several threads wait for each other and are slower.
        progress: called with the layers done, and all of them.

    Raises:
        InputError: there is no such method or layer, too few occurrences, or the perplexity does
            not fit their number; scikit-learn is not installed.
    """
    require_occurrences(occurrences)
    if method not in METHODS:
        raise InputError(f"method: 'pca' or 'tsne' is expected, not {method!r}.")
    if len(occurrences) < 3:
        raise InputError(f"A picture needs at least 3 occurrences; {_there_are(len(occurrences))}.")
    if method == "tsne":
        perplexity = _checked_perplexity(perplexity, len(occurrences))
    numbers = layer_numbers(occurrences, layers)
    threadpoolctl = import_extra("threadpoolctl", "bilm project")
    points = np.zeros((len(occurrences), len(numbers), 2), np.float32)
    variance = np.zeros((len(numbers), 2))
    n_distinct = []
    with threadpoolctl.threadpool_limits(n_threads):
        for k, number in enumerate(numbers):
            distinct, index = _distinct_directions(occurrences, number)
            n_distinct.append(len(distinct))
            points[:, k], variance[k] = _pca(distinct[index])
            # Less than four different vectors have no neighbourhoods to keep.
            if method == "tsne" and len(distinct) > 3 and perplexity is not None:
                bound = min(perplexity, (len(distinct) - 1) / 3)
                points[:, k] = _tsne(distinct, bound, seed, n_threads)[index]
            if progress is not None:
                progress(k + 1, len(numbers))
    shares = variance if method == "pca" else None
    return Projection(method, numbers, points, shares, n_distinct, perplexity)


def nearest(
    occurrences: Occurrences, layer: int | str = "top", n: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """The nearest occurrences to each one, by the cosine of `Occurrences.directions`.

    Those of its own sentence are left out, and of those that have the word before and after them
    in common one is taken, as in `Occurrences.neighbours`.

    Returns:
        their numbers, int64 (len(occurrences), n), nearest first, -1 where there are fewer; and
        their cosines, float32 of the same shape, NaN there.
    """
    directions = occurrences.directions(layer)
    size = len(occurrences)
    frames = [occurrences.frame(k) for k in range(size)]
    numbers = np.full((size, n), -1, np.int64)
    cosines = np.full((size, n), np.nan, np.float32)
    likely = min(size, 8 * n + 8)  # to look through before all others
    for start in range(0, size, _BLOCK):
        block = directions[start : start + _BLOCK] @ directions.T
        first = np.argpartition(-block, likely - 1, axis=1)[:, :likely]
        for row, candidates in enumerate(first):
            own = start + row
            values = block[row]
            candidates = candidates[np.argsort(-values[candidates], kind="stable")]
            found = _in_other_contexts(occurrences, frames, own, candidates, n)
            if len(found) < n and likely < size:
                ranked = np.argsort(-values, kind="stable")
                found = _in_other_contexts(occurrences, frames, own, ranked, n)
            numbers[own, : len(found)] = found
            cosines[own, : len(found)] = values[found]
    return numbers, cosines


def _in_other_contexts(
    occurrences: Occurrences, frames: list[Any], own: int, ranked: np.ndarray, n: int
) -> list[int]:
    """The first `n` of `ranked` in other sentences than that of `own`, each frame once."""
    found: list[int] = []
    seen = {frames[own]}
    sentence = occurrences.positions[own, 0]
    for other in map(int, ranked):
        if occurrences.positions[other, 0] != sentence and frames[other] not in seen:
            seen.add(frames[other])
            found.append(other)
            if len(found) == n:
                break
    return found


def _there_are(n: int) -> str:
    return "there is 1" if n == 1 else f"there are {n}"


def _checked_perplexity(perplexity: float | None, n: int) -> float:
    """The perplexity of t-SNE for `n` occurrences; it asks for three times as many neighbours."""
    greatest = (n - 1) / 3
    if perplexity is None:
        return min(LARGEST_PERPLEXITY, greatest)
    if not 0 < perplexity <= greatest:
        raise InputError(
            f"perplexity: {perplexity:g} does not fit {n} occurrences: above 0 and at most a third "
            f"of the others, {greatest:.4g}, is expected."
        )
    return float(perplexity)


def layer_numbers(occurrences: Occurrences, layers: Sequence[int | str] | None) -> list[int]:
    """The numbers of layers that are named by numbers or "top"; None names all.

    Raises:
        InputError: there is no such layer, or none is named.
    """
    if layers is None:
        return list(range(occurrences.n_layers))
    if isinstance(layers, str) or not isinstance(layers, Sequence):
        raise InputError(f"layers: numbers of layers or 'top' are expected, not {shown(layers)}.")
    numbers = [occurrences.layer_number(layer) for layer in layers]
    if None in numbers or not numbers:
        raise InputError(f"layers: numbers of layers or 'top' are expected, not {layers!r}.")
    return [number for number in numbers if number is not None]


def _distinct_directions(occurrences: Occurrences, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """The different directions of a layer (m, dim), and which one each occurrence has (n,)."""
    directions = occurrences.directions(layer)
    _, first, index = np.unique(
        np.round(directions, 5), axis=0, return_index=True, return_inverse=True
    )
    return directions[first], index.reshape(-1)


def _pca(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first two principal components, and the share of the variance that each one has."""
    decomposition = import_extra("sklearn.decomposition", "bilm project")
    if np.ptp(vectors, axis=0).max() == 0:
        return np.zeros((len(vectors), 2)), np.zeros(2)
    pca = decomposition.PCA(min(2, vectors.shape[1]), svd_solver="covariance_eigh")
    found = pca.fit_transform(vectors)
    points, variance = np.zeros((len(vectors), 2)), np.zeros(2)
    points[:, : found.shape[1]] = found
    variance[: found.shape[1]] = pca.explained_variance_ratio_
    return points, variance


def _tsne(vectors: np.ndarray, perplexity: float, seed: int, n_threads: int) -> np.ndarray:
    manifold = import_extra("sklearn.manifold", "bilm project")
    tsne = manifold.TSNE(2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=n_threads)
    return tsne.fit_transform(vectors)
