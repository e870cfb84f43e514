"""Clusters of the occurrences of a word, and the typical words of each.

The occurrences in a cluster have similar vectors; a cluster need not be a word sense.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from bilm.analysis.occurrences import Layer, Occurrences, indices_by_name, is_word, unit
from bilm.core.errors import InputError, import_extra, require_at_least

if TYPE_CHECKING:
    from bilm.use.predictor import Predictor, Substitutes

_PURPOSE = "Clustering occurrences"
_LAYER = "top"  # the best layer for senses of nouns
_MIN_SILHOUETTE = 0.25
_NEARLY = 0.9  # fewer clusters are preferred at this proportion of the highest silhouette
_COMPONENTS = 10
_NO_DIRECTION = 1e-4  # length of a centre that is zero but for rounding
_MIN_SIZE = 5  # mean occurrences per cluster
_CLOUDS = 20  # number of Gaussian clouds that clusters are compared with
_CLOUD_SIZE = 200  # maximum number of points of a cloud
_DEVIATIONS = 5.0  # by which a separation must exceed the mean of the clouds
_MOST_WARD = 2000  # points of a tree
_TYPICAL = 20  # occurrences per cluster whose substitutes are computed
_SUBSTITUTES = 500  # per occurrence
_LIKELIEST = 50  # substitutes of a cluster, ranked by how typical they are
_FREQUENT = 100  # most frequent words of a large vocabulary, never typical
_PRIOR = 0.1  # occurrences of an average word, added in `nearby_words`
_NAME_WORDS = 4

# Typical words with their scores, the most typical first.
ScoredWords = list[tuple[float, str]]


@dataclass(frozen=True, eq=False)
class Clusters:
    """Occurrences in clusters; cluster 0 is the largest."""

    of: np.ndarray  # int64 (n,): the cluster of each occurrence
    # Float32 (n,): cosine with the centre of its cluster; minus the distance from it if the centre
    # is the mean of all occurrences, which has no direction.
    closeness: np.ndarray
    silhouettes: dict[int, float] = field(default_factory=dict)  # by number of clusters
    reason: str = ""  # why there is one cluster, unless one was requested

    @classmethod
    def from_points(
        cls,
        points: np.ndarray,
        of: np.ndarray,
        silhouettes: dict[int, float] | None = None,
        reason: str = "",
    ) -> Clusters:
        """The clusters `of` points (n, dim)."""
        centres = _centres(points, of)
        cosines = (unit(points) * unit(centres)[of]).sum(axis=1)
        distances = np.linalg.norm(points - centres[of], axis=1)
        has_direction = np.linalg.norm(centres, axis=1) > _NO_DIRECTION
        closeness = np.where(has_direction[of], cosines, -distances)
        return cls(of, closeness.astype(np.float32), silhouettes or {}, reason)

    def __len__(self) -> int:
        return int(self.of.max()) + 1

    @property
    def sizes(self) -> list[int]:
        """Number of occurrences in each cluster."""
        return np.bincount(self.of).tolist()

    def members(self, cluster: int) -> np.ndarray:
        """The occurrences in a cluster, nearest to its centre first: int64."""
        members = np.flatnonzero(self.of == cluster)
        return members[np.argsort(-self.closeness[members], kind="stable")]


def cluster_occurrences(
    occurrences: Occurrences,
    *,
    layer: Layer = _LAYER,
    n_clusters: int | None = None,
    max_clusters: int = 6,
    seed: int = 0,
) -> Clusters:
    """Cluster occurrences, usually of one word, by k-means on a layer.

    The vectors are centred, scaled to length 1 and reduced to their ten principal components, so
    that silhouettes are comparable between models of any size. k-means starts from Ward's
    clusters. `n_clusters` None tries the numbers from 2 to `max_clusters` that leave at least five
    occurrences per cluster on average. A number qualifies if its mean silhouette (Rousseeuw 1987;
    by the cosine) is at least 0.25 (Kaufman and Rousseeuw 1990, "Finding groups in data", chapter
    2) and its clusters are farther apart, in the space of their centres, than clusters of
    unstructured Gaussian clouds with the covariance of the vectors. The smallest qualifying number
    with at least 0.9 times the highest silhouette is chosen, or one cluster if none qualifies.

    `seed` is the random seed of the clouds.

    Raises:
        InputError: `occurrences` is empty, or has fewer different vectors than `n_clusters`.
    """
    require_at_least(0, 2**32 - 1, seed=seed)
    require_at_least(1, max_clusters=max_clusters, n_clusters=n_clusters)
    if not len(occurrences):
        raise InputError("occurrences must not be empty.")
    silhouette = import_extra("sklearn.metrics", _PURPOSE).silhouette_score
    # Several threads are slower for small data.
    with import_extra("threadpoolctl", _PURPOSE).threadpool_limits(1):
        points = cluster_points(occurrences, layer)
        # Equal vectors, as in layer 0, differ in their last digits.
        n_different = len(np.unique(points.round(3), axis=0))
        if n_clusters is not None:
            if n_clusters > n_different:
                raise InputError(
                    f"n_clusters must be at most {n_different}, the number of different "
                    f"occurrences, got {n_clusters}."
                )
            return Clusters.from_points(points, _k_means(points, [n_clusters])[n_clusters])
        most = min(max_clusters, n_different, len(points) // _MIN_SIZE)
        by_number = _k_means(points, range(2, most + 1))
        silhouettes = {
            k: float(silhouette(points, of, metric="cosine")) for k, of in by_number.items()
        }
        qualifying = {k: by_number[k] for k, x in silhouettes.items() if x >= _MIN_SILHOUETTE}
        clear = _beyond_clouds(occurrences.layer(layer), qualifying, seed)
    if clear:
        bound = _NEARLY * max(silhouettes[k] for k in clear)
        best = next(k for k in clear if silhouettes[k] >= bound)
        return Clusters.from_points(points, by_number[best], silhouettes)
    reason = "clusters are not clearer than those of a Gaussian cloud"
    if max_clusters == 1:
        reason = ""
    elif n_different == 1:
        reason = "all vectors are equal" if len(points) > 1 else "there is one occurrence"
    elif most < 2:
        reason = f"two clusters need {2 * _MIN_SIZE} occurrences"
    elif not qualifying:
        reason = f"silhouettes are below {_MIN_SILHOUETTE}"
    return Clusters.from_points(points, np.zeros(len(points), np.int64), silhouettes, reason)


def cluster_points(occurrences: Occurrences, layer: Layer) -> np.ndarray:
    """The points (n, k) that are clustered, see `cluster_occurrences`."""
    return principal_components(occurrences.directions(layer), _COMPONENTS)[0]


def _beyond_clouds(
    vectors: np.ndarray, by_number: Mapping[int, np.ndarray], seed: int
) -> list[int]:
    """The numbers of clusters of vectors (n, dim) that are clearer than in Gaussian clouds.

    Distances are compared before scaling to length 1, which splits any long cloud in two.
    """
    if not by_number:
        return []
    centred = (vectors - vectors.mean(axis=0)).astype(np.float64)
    _, deviations, axes = np.linalg.svd(centred, full_matrices=False)
    points = centred @ axes[:_COMPONENTS].T
    deviations /= np.sqrt(len(points))
    rng = np.random.default_rng(seed)
    expected = []  # separations (clouds, numbers of clusters)
    for _ in range(_CLOUDS):
        # The axes of a cloud are its principal components.
        cloud = rng.normal(size=(min(len(points), _CLOUD_SIZE), len(deviations))) * deviations
        directions, cloud = unit(cloud)[:, :_COMPONENTS], cloud[:, :_COMPONENTS]
        clusters = _k_means(directions, by_number)
        expected.append([_separation(cloud, of) for of in clusters.values()])
    spread = float(np.std(expected, axis=0, ddof=1).mean())
    bounds = np.mean(expected, axis=0) + _DEVIATIONS * spread
    pairs = zip(by_number.items(), bounds, strict=True)
    return [k for (k, of), bound in pairs if _separation(points, of) > bound]


def _separation(points: np.ndarray, clusters: np.ndarray) -> float:
    """The logarithm of the variance between clusters over the variance within them, in the space of
    the centres, without the noise around it."""
    centres = _centres(points, clusters) - points.mean(axis=0)
    axes = np.linalg.svd(centres, full_matrices=False)[2][: len(centres) - 1]
    within = np.square((points - points.mean(axis=0) - centres[clusters]) @ axes.T).sum()
    between = np.square(centres[clusters]).sum()
    return float(np.log(between / max(within, 1e-9 * between)))


# Typical occurrences and words


def typical_occurrences(
    occurrences: Occurrences, clusters: Clusters, cluster: int, n: int = 5
) -> list[int]:
    """The `n` occurrences nearest to the centre of a cluster, in different contexts."""
    return occurrences.distinct(clusters.members(cluster), n)


def typical_words(
    occurrences: Occurrences, clusters: Clusters, predictor: Predictor | None, n: int = 8
) -> list[ScoredWords]:
    """`n` typical words of each cluster: substitutes if there is a predictor, else nearby words."""
    numbers = range(len(clusters))
    if predictor is None:
        return [nearby_words(occurrences, clusters, k, n) for k in numbers]
    typical = [typical_occurrences(occurrences, clusters, k, _TYPICAL) for k in numbers]
    return substitute_words(predictor, occurrences, typical, n)


def substitute_words(
    predictor: Predictor, occurrences: Occurrences, typical: Sequence[Sequence[int]], n: int = 8
) -> list[ScoredWords]:
    """The words with which a language model would replace the occurrences of each cluster.

    The log-probability of a word in a cluster is the mean over its `typical` occurrences. The 50
    likeliest words of a cluster are ranked by how much less likely they are in the other clusters.
    Each occurrence contributes its 500 likeliest words; any other word counts like the last of
    these, an overestimate. The words of the occurrences, tokens that are not words, and the
    most frequent words of the vocabulary, such as "the", are skipped. Scores are mean
    log-probabilities in nats; each cluster's most typical word comes first.
    """
    requests = [_with_gap(occurrences, number) for group in typical for number in group]
    substitutes = iter(predictor.substitutes(requests, n=_SUBSTITUTES))
    means = [_mean_of([next(substitutes)[0] for _ in group]) for group in typical]
    vocabulary = predictor.vocabulary
    n_frequent = min(_FREQUENT, vocabulary.size // 200)
    skipped = {vocabulary.id_to_word(k).lower() for k in range(n_frequent)}
    skipped |= {word.lower() for word in occurrences.words}
    ranked = []
    for cluster, (mean, _) in enumerate(means):
        words = (word for word in mean if is_word(word) and word.lower() not in skipped)
        likeliest = sorted(words, key=lambda word: (-mean[word], word))[:_LIKELIEST]
        others = [*means[:cluster], *means[cluster + 1 :]]
        elsewhere = {word: sum(m.get(word, least) for m, least in others) / max(len(others), 1)
                     for word in likeliest}  # fmt: skip
        likeliest.sort(key=lambda word: elsewhere[word] - mean[word])
        ranked.append([(mean[word], word) for word in likeliest[:n]])
    return ranked


def _with_gap(occurrences: Occurrences, number: int) -> list[str]:
    from bilm.use.predictor import GAP

    # The text may have the gap itself as a token.
    tokens = [f"{token}_" if token == GAP else token for token in occurrences.sentence(number)]
    tokens[occurrences.positions[number, 1]] = GAP
    return tokens


def _mean_of(substitutes: Sequence[Substitutes]) -> tuple[dict[str, float], float]:
    """Mean log-probabilities of words, and the value for all other words."""
    n = max(len(substitutes), 1)
    least = sum(float(each.log_probabilities[-1]) for each in substitutes) / n
    above = Counter[str]()
    for each in substitutes:
        values = each.log_probabilities - each.log_probabilities[-1]
        above.update(dict(zip(each.words, values.tolist(), strict=True)))
    return {word: least + value / n for word, value in above.items()}, least


def nearby_words(
    occurrences: Occurrences, clusters: Clusters, cluster: int, n: int = 8, width: int = 10
) -> ScoredWords:
    """The words that occur more often within `width` tokens of a cluster's occurrences than of
    other clusters' occurrences.

    The score is the difference of log-odds with a prior from all occurrences, in standard
    deviations (Monroe, Colaresi and Quinn 2008, "Fightin' Words", section 3.4.1); the highest comes
    first. A single cluster has no such words.
    """
    inside, outside = Counter[str](), Counter[str]()
    for number, k in enumerate(clusters.of):
        side = inside if k == cluster else outside
        left, right = occurrences.sides(number, width)
        side.update({token.lower() for token in (*left, *right) if is_word(token)})
    everything = inside + outside
    total = sum(everything.values())
    weight = _PRIOR * len(everything)
    n_inside, n_outside = sum(inside.values()) + weight, sum(outside.values()) + weight
    scores = []
    for word in inside if len(clusters) > 1 else ():
        prior = weight * everything[word] / total
        a, b = inside[word] + prior, outside[word] + prior
        difference = np.log(a / (n_inside - a)) - np.log(b / (n_outside - b))
        scores.append((float(difference / np.sqrt(1 / a + 1 / b)), word))
    scores.sort(key=lambda pair: (-pair[0], pair[1]))
    targets = set(occurrences.words)
    return [(score, word) for score, word in scores if score > 0 and word not in targets][:n]


def cluster_titles(words: Sequence[ScoredWords], prefix: str = "") -> list[str]:
    """A distinct title for each cluster: `prefix` and the cluster's first four typical words."""
    titles: list[str] = []
    for number, typical in enumerate(words, start=1):
        title = " ".join(word for _, word in typical[:_NAME_WORDS])
        title = title or ("all" if len(words) == 1 else f"cluster {number}")
        title = f"{prefix}: {title}" if prefix else title
        titles.append(f"{title} ({number})" if title in titles else title)
    return titles


def cluster_names(clusters: Clusters, words: Sequence[ScoredWords], prefix: str = "") -> list[str]:
    """The name of each occurrence's cluster; see `cluster_titles`."""
    titles = cluster_titles(words, prefix)
    return [titles[number] for number in clusters.of]


def with_clusters(occurrences: Occurrences, *, layer: Layer = _LAYER) -> Occurrences:
    """Cluster the occurrences of each word, and name the clusters by nearby words."""
    names = np.full(len(occurrences), "", object)
    words = indices_by_name(occurrences.names)
    for word, rows in words.items():
        uses = occurrences.select(rows)
        clusters = cluster_occurrences(uses, layer=layer)
        typical = typical_words(uses, clusters, None)
        names[rows] = cluster_names(clusters, typical, word if len(words) > 1 else "")
    return replace(occurrences, clusters=names.tolist(), clusters_layer=layer)


def principal_components(vectors: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (m, dim) in at most `n` principal components (m, k), and the proportion of the variance
    along each (k,): zeros if all rows are equal."""
    decomposition = import_extra("sklearn.decomposition", _PURPOSE)
    n = min(n, *vectors.shape)
    if np.ptp(vectors, axis=0).max() == 0:
        return np.zeros((len(vectors), n)), np.zeros(n)
    pca = decomposition.PCA(n, svd_solver="covariance_eigh")
    return pca.fit_transform(vectors), pca.explained_variance_ratio_


def _centres(points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    return np.stack([points[clusters == k].mean(axis=0) for k in range(clusters.max() + 1)])


def _k_means(points: np.ndarray, numbers: Iterable[int]) -> dict[int, np.ndarray]:
    """The cluster of each row for each number of clusters, 0 the largest: int64 (n,).

    Random starts end in different optima; Ward's clusters do not depend on a seed or an order.
    """
    hierarchy = import_extra("scipy.cluster.hierarchy", _PURPOSE)
    cluster = import_extra("sklearn.cluster", _PURPOSE)
    numbers = list(numbers)
    some = points[np.lexsort(points.T)][:: 1 + len(points) // _MOST_WARD]
    starts = np.zeros((len(some), len(numbers)), np.int64)
    if max(numbers, default=1) > 1:
        starts = hierarchy.cut_tree(hierarchy.ward(some), numbers)
    by_number = {}
    for k, start in zip(numbers, starts.T, strict=True):
        k_means = cluster.KMeans(k, init=_centres(some, start), n_init=1, max_iter=50, tol=0)
        labels = k_means.fit_predict(points)
        sizes = np.bincount(labels)
        by_number[k] = np.argsort(np.argsort(-sizes, kind="stable"))[labels]
    return by_number
