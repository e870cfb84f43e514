"""Groups of the uses of a word, and what is typical of each.

    groups = group_uses(occurrences.select(occurrences.of("bank")), layer=1)

A group is of uses whose vectors lie together; whether it is a sense is for a reader, or for labels,
to say.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.analysis.occurrences import Layer, Occurrences, is_word, require_occurrences
from bilm.core.errors import MOST_SEED, InputError, checked, require_at_least
from bilm.extras import import_extra

if TYPE_CHECKING:
    from bilm.use.predictor import Predictor, Substitutes

_PURPOSE = "Grouping uses of words"
# What serves best of the layers and numbers that were measured; see the manual.
LAYER: Layer = 1
MAX_GROUPS = 6
LEAST_SILHOUETTE = 0.25
_NEARLY = 0.9  # of the highest silhouette, which more groups are not worth
_COMPONENTS = 10
_USES_PER_GROUP = 5
_STARTS = 5  # of k-means, of which the best counts
_AT_ONCE = 2000  # uses whose silhouettes are taken; their distances to each other are in memory
_SUBSTITUTES = 500  # of one use; a word that is not among them counts like the last of them
_LIKELIEST = 50  # substitutes of a group, of which the typical ones are taken
_PRIOR = 0.1  # of `nearby_words`, in uses of an average word

Words = list[tuple[float, str]]


@dataclass(frozen=True, eq=False)
class Groups:
    """Occurrences in groups; group 0 is the largest.

    Attributes:
        of: int64 (n,), the group of each occurrence.
        closeness: float32 (n,), the cosine of each with the centre of its group.
        silhouettes: the mean silhouette for each number of groups that was tried.
    """

    of: np.ndarray
    closeness: np.ndarray
    silhouettes: dict[int, float]

    def __len__(self) -> int:
        return int(self.of.max()) + 1

    @property
    def sizes(self) -> list[int]:
        """Uses in each group."""
        return np.bincount(self.of).tolist()

    def members(self, group: int) -> np.ndarray:
        """The occurrences of a group, nearest to its centre first: int64."""
        own = np.flatnonzero(self.of == group)
        return own[np.argsort(-self.closeness[own], kind="stable")]


class Fit(NamedTuple):
    """How well groups agree with labels.

    Attributes:
        ari: the adjusted Rand index: 1 if both are the same, 0 on average by chance, and 0 for one
            group of all (Hubert and Arabie 1985, "Comparing partitions").
        v_measure: the harmonic mean of homogeneity and completeness (Rosenberg and Hirschberg
            2007); it grows with the number of groups, also by chance.
        homogeneity: 1 if each group has uses of one label.
        completeness: 1 if each label has its uses in one group.
        table: for each label the number of its uses in each group, most frequent label first.
    """

    ari: float
    v_measure: float
    homogeneity: float
    completeness: float
    table: dict[str, list[int]]


def require_scikit_learn() -> None:
    """Raise an InputError if scikit-learn is not installed, before hours of work."""
    import_extra("sklearn.cluster", _PURPOSE)


@checked
def group_uses(
    occurrences: Occurrences,
    *,
    layer: Layer = LAYER,
    n_groups: int | None = None,
    max_groups: int = MAX_GROUPS,
    seed: int = 0,
) -> Groups:
    """Group occurrences, usually those of one word, by k-means on a layer.

    The vectors are taken without their mean, at length 1, and turned to their ten principal
    components, so that silhouettes mean the same for models of any size. The number of groups, if
    it is not given, is the smallest from 2 to `max_groups`, with five uses in each on average,
    whose mean silhouette (Rousseeuw 1987; by the cosine) has nine tenths of the highest one. It is
    1 if none reaches 0.25, below which Kaufman and Rousseeuw (1990, "Finding groups in data",
    chapter 2) see no substantial structure; directions drawn at random have 0.15.

    Args:
        occurrences: at least one.
        layer: as for `Occurrences.layer`.
        n_groups: how many groups.
        max_groups: how many to try.
        seed: of k-means.

    Raises:
        InputError: there are no occurrences, or fewer different ones than `n_groups`; a number is
            below 1; there is no such layer; scikit-learn is not installed.
    """
    require_occurrences(occurrences)
    require_at_least(0, MOST_SEED, seed=seed)
    if not len(occurrences):
        raise InputError("there is no occurrence to group.")
    for name, number in (("n_groups", n_groups), ("max_groups", max_groups)):
        if number is not None and number < 1:
            raise InputError(f"{name}: a whole number from 1 is expected, not {number!r}.")
    points = _principal_components(occurrences.directions(layer))
    # Equal vectors, as layer 0 has them for equal words, differ in their last digits.
    n_different = len(np.unique(points.round(3), axis=0))
    if n_groups is not None:
        if n_groups > n_different:
            raise InputError(
                f"n_groups: {n_groups} groups need as many different uses; there are {n_different}."
            )
        return _groups(points, _k_means(points, n_groups, seed), {})
    most = min(max_groups, n_different, len(points) // _USES_PER_GROUP)
    tried = {k: _k_means(points, k, seed) for k in range(2, most + 1)}
    silhouettes = {k: _silhouette(points, of, seed) for k, of in tried.items()}
    enough = max(LEAST_SILHOUETTE, _NEARLY * max(silhouettes.values(), default=0.0))
    for k, silhouette in silhouettes.items():
        if silhouette >= enough:
            return _groups(points, tried[k], silhouettes)
    return _groups(points, np.zeros(len(points), np.int64), silhouettes)


@checked
def typical_uses(occurrences: Occurrences, groups: Groups, group: int, n: int = 5) -> list[int]:
    """The uses nearest to the centre of a group, the nearest first.

    Of contexts that have the word before and after them in common, one is taken, and of a
    sentence one use.
    """
    chosen: list[int] = []
    frames, sentences = set(), set()
    for use in map(int, groups.members(group)):
        frame, sentence = occurrences.frame(use), tuple(occurrences.sentence(use))
        if frame not in frames and sentence not in sentences:
            chosen.append(use)
        frames.add(frame)
        sentences.add(sentence)
        if len(chosen) == n:
            break
    return chosen


def substitute_words(
    predictor: Predictor, occurrences: Occurrences, uses: Sequence[Sequence[int]], n: int = 8
) -> list[Words]:
    """The words that a language model would put in place of some uses, for several groups.

    The log-probability of a word for a group is the mean over its uses, which is that of the
    product of their distributions. Of the 50 words that are likeliest, those are typical of a
    group that are less likely in the others.

    Args:
        predictor: the language model.
        occurrences: of the word.
        uses: for each group the uses that stand for it, such as `typical_uses`.
        n: how many words.

    Returns:
        for each group pairs of a mean log-probability in nats and a word, the most typical first.
        The words of the uses themselves are left out, and tokens that are no words. For each use
        500 words are known; one that is not among them counts like the last of them, which is
        more than it has.
    """
    requests = [_with_gap(occurrences, use) for group in uses for use in group]
    found = iter(predictor.substitutes(requests, n=_SUBSTITUTES))
    means = [_mean_of_words([next(found)[0] for _ in group]) for group in uses]
    own = {word.lower() for word in occurrences.words}
    return [_most_typical(means, group, own)[:n] for group in range(len(uses))]


def _with_gap(occurrences: Occurrences, use: int) -> list[str]:
    from bilm.use.predictor import GAP

    # A token that stands for a gap in the text itself is none here.
    tokens = [f"{token}_" if token == GAP else token for token in occurrences.sentence(use)]
    tokens[occurrences.positions[use, 1]] = GAP
    return tokens


class _MeanOfWords(NamedTuple):
    """Mean log-probabilities of words; `least` is that of all the others."""

    of: dict[str, float]
    least: float


def _mean_of_words(found: Sequence[Substitutes]) -> _MeanOfWords:
    if not found:
        return _MeanOfWords({}, 0.0)
    least = float(np.mean([substitutes.log_probabilities[-1] for substitutes in found]))
    above: defaultdict[str, float] = defaultdict(float)
    for substitutes in found:
        values = substitutes.log_probabilities - substitutes.log_probabilities[-1]
        for word, value in zip(substitutes.words, values.tolist(), strict=True):
            above[word] += value / len(found)
    return _MeanOfWords({word: least + value for word, value in above.items()}, least)


def _most_typical(means: Sequence[_MeanOfWords], group: int, own: Collection[str]) -> Words:
    mean, others = means[group], [*means[:group], *means[group + 1 :]]
    likeliest = sorted(
        (word for word in mean.of if is_word(word) and word.lower() not in own),
        key=lambda word: (-mean.of[word], word),
    )[:_LIKELIEST]

    def difference(word: str) -> float:
        elsewhere = [other.of.get(word, other.least) for other in others]
        return mean.of[word] - float(np.mean(elsewhere)) if others else mean.of[word]

    return [(mean.of[word], word) for word in sorted(likeliest, key=lambda w: -difference(w))]


def nearby_words(
    occurrences: Occurrences, groups: Groups, group: int, n: int = 8, width: int = 10
) -> Words:
    """The words that occur near the uses of a group more often than near those of the others.

    Returns:
        pairs of a score and a word in small letters, highest first: the difference of the
        logarithms of both odds, with a prior from all uses, in standard deviations (Monroe,
        Colaresi and Quinn 2008, "Fightin' Words", section 3.4.1). None if there is one group.
    """
    inside, outside = Counter[str](), Counter[str]()
    for use, number in enumerate(groups.of):
        sentence, position = occurrences.sentence(use), int(occurrences.positions[use, 1])
        around = [*sentence[max(0, position - width) : position],
                  *sentence[position + 1 : position + 1 + width]]  # fmt: skip
        (inside if number == group else outside).update({t.lower() for t in around if is_word(t)})
    everything = inside + outside
    total = sum(everything.values())
    weight = _PRIOR * len(everything)
    n_inside, n_outside = sum(inside.values()) + weight, sum(outside.values()) + weight
    scores = []
    for word in inside if len(groups) > 1 else ():
        prior = weight * everything[word] / total
        a, b = inside[word] + prior, outside[word] + prior
        difference = np.log(a / (n_inside - a)) - np.log(b / (n_outside - b))
        scores.append((float(difference / np.sqrt(1 / a + 1 / b)), word))
    scores.sort(key=lambda pair: (-pair[0], pair[1]))
    own = set(occurrences.words)
    return [(score, word) for score, word in scores if score > 0 and word not in own][:n]


def fit_to_labels(groups: Groups, labels: Sequence[str]) -> Fit:
    """How well groups agree with a label for each occurrence.

    Raises:
        InputError: there are not as many labels as occurrences; scikit-learn is not installed.
    """
    if len(labels) != len(groups.of):
        raise InputError(
            f"labels: {len(groups.of)} are expected, one for each use, not {len(labels)}."
        )
    metrics = import_extra("sklearn.metrics", _PURPOSE)
    homogeneity, completeness, v_measure = metrics.homogeneity_completeness_v_measure(
        list(labels), groups.of
    )
    table = {
        label: np.bincount(
            groups.of[[other == label for other in labels]], minlength=len(groups)
        ).tolist()
        for label, _ in sorted(Counter(labels).items(), key=lambda item: (-item[1], item[0]))
    }
    ari = metrics.adjusted_rand_score(list(labels), groups.of)
    return Fit(float(ari), float(v_measure), float(homogeneity), float(completeness), table)


def _principal_components(directions: np.ndarray) -> np.ndarray:
    """The rows in their first principal components: float32 (n, at most 10)."""
    centred = directions - directions.mean(axis=0)
    # The axes from the (dim, dim) covariance, which is small whatever the number of rows.
    _, axes = np.linalg.eigh(centred.T @ centred)
    return np.ascontiguousarray(centred @ axes[:, ::-1][:, :_COMPONENTS])


def _k_means(points: np.ndarray, k: int, seed: int) -> np.ndarray:
    """A group from 0 for each row: int64 (n,)."""
    cluster = import_extra("sklearn.cluster", _PURPOSE)
    threads = import_extra("threadpoolctl", _PURPOSE)
    # So few numbers are grouped sooner in one thread than in several that wait for each other.
    with threads.threadpool_limits(1):
        found = cluster.KMeans(k, n_init=_STARTS, random_state=seed).fit_predict(points)
    return found.astype(np.int64)


def _groups(points: np.ndarray, of: np.ndarray, silhouettes: dict[int, float]) -> Groups:
    """Number groups by falling size; find how close each row is to the centre of its own."""
    sizes = np.bincount(of)
    order = np.argsort(-sizes, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    of = rank[of]
    lengths = np.maximum(np.linalg.norm(points, axis=1), 1e-12)
    closeness = np.zeros(len(of), np.float32)
    for group in range(len(order)):
        own = of == group
        centre = points[own].mean(axis=0)
        scale = lengths[own] * max(float(np.linalg.norm(centre)), 1e-12)
        closeness[own] = points[own] @ centre / scale
    return Groups(of, closeness, silhouettes)


def _silhouette(points: np.ndarray, of: np.ndarray, seed: int) -> float:
    metrics = import_extra("sklearn.metrics", _PURPOSE)
    chosen = np.arange(len(of))
    if len(of) > _AT_ONCE:
        random = np.random.default_rng(seed)
        chosen = random.choice(len(of), _AT_ONCE, replace=False)
    if len(np.unique(of[chosen])) < 2:
        return -1.0
    return float(metrics.silhouette_score(points[chosen], of[chosen], metric="cosine"))
