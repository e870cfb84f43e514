"""Vectors of occurrences in two dimensions, layer by layer: PCA or t-SNE.

The projected vectors are `Occurrences.directions`, as for neighbours: occurrences that are close in
a picture usually have a high cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bilm.analysis.clusters import principal_components
from bilm.analysis.occurrences import Occurrences
from bilm.core.errors import InputError, one_of, require
from bilm.extras import import_extra
from bilm.progress import ShowStage, counted, quiet

_PERPLEXITY = 30.0
_PURPOSE = "bilm project"


@dataclass(frozen=True, eq=False)
class Projection:
    """Occurrences in two dimensions."""

    method: str  # "pca" or "tsne"
    layers: list[int]  # numbers of the m layers
    points: np.ndarray  # float32 (n, m, 2)
    # Float (m, 2): proportion of a layer's variance along each axis of PCA, zeros if all vectors
    # are equal; None for t-SNE.
    variance: np.ndarray | None
    n_distinct: list[int]  # different vectors in each layer; in layer 0, one for each spelling
    # Perplexity of t-SNE, lower in layers with few different vectors; None for PCA.
    perplexity: float | None


def project(
    occurrences: Occurrences,
    method: str = "pca",
    *,
    layers: Sequence[int | str] | None = None,
    perplexity: float | None = None,
    seed: int = 0,
    progress: ShowStage = quiet,
) -> Projection:
    """Project the vectors of each layer to two dimensions.

    Args:
        method: "pca", the two directions of highest variance, preserves large distances; "tsne"
            (van der Maaten and Hinton 2008) preserves neighbourhoods, while distances between its
            clusters, and their sizes, mean little.
        layers: numbers of layers, or "top"; None for all contextual layers (1 and up).
        perplexity: t-SNE's effective number of neighbours, less than a third of the occurrences.
            None: 30, or less for few occurrences.
        seed: random seed of t-SNE.
        progress: called with a `Stage` of layers.

    Raises:
        InputError: there are fewer than 3 occurrences, or too few for the perplexity.
    """
    numbers = layer_numbers(occurrences, layers)
    require(one_of(("pca", "tsne")), method=method)
    n, most, is_pca = len(occurrences), (len(occurrences) - 1) / 3, method == "pca"
    if n < 3:
        raise InputError(f"a picture needs at least 3 occurrences, got {n}.")
    perplexity = min(_PERPLEXITY, most) if perplexity is None else perplexity
    if not 0 < perplexity <= most:
        raise InputError(
            f"perplexity must be above 0 and at most {most:.4g}, a third of the other occurrences, "
            f"got {perplexity:g}."
        )
    manifold = import_extra("sklearn.manifold", _PURPOSE)
    points = np.zeros((n, len(numbers), 2), np.float32)
    variance, n_distinct = np.zeros((len(numbers), 2)), []
    # Several threads are slower for small data.
    with import_extra("threadpoolctl", _PURPOSE).threadpool_limits(1):
        counting = counted(numbers, progress, "projecting", len(numbers), "layers")
        for k, number in enumerate(counting):
            directions = occurrences.directions(number)
            rounded = directions.round(5)
            _, first, index = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
            distinct, index = directions[first], index.reshape(-1)
            n_distinct.append(len(distinct))
            components, proportions = principal_components(distinct[index], 2)
            points[:, k, : components.shape[1]] = components
            variance[k, : len(proportions)] = proportions
            # t-SNE needs at least four different vectors.
            if not is_pca and len(distinct) > 3:
                bound = min(perplexity, (len(distinct) - 1) / 3)
                tsne = manifold.TSNE(2, perplexity=bound, init="pca", random_state=seed, n_jobs=1)
                points[:, k] = tsne.fit_transform(distinct)[index]
    if is_pca:
        return Projection(method, numbers, points, variance, n_distinct, None)
    return Projection(method, numbers, points, None, n_distinct, perplexity)


def layer_numbers(occurrences: Occurrences, layers: Sequence[int | str] | None) -> list[int]:
    """The numbers of layers given as numbers or "top"; None for all contextual layers."""
    if layers is None:
        return list(range(min(1, occurrences.n_layers - 1), occurrences.n_layers))
    return [occurrences.layer_number(layer) for layer in layers]
