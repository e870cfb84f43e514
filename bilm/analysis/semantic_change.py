"""How much the use of words differs between two corpora: lexical semantic change.

The labels of the occurrences in both corpora, as from `sample_targets`, are the target words.
"""

from __future__ import annotations

import functools
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from bilm.analysis.clusters import Clusters, cluster_occurrences, typical_occurrences
from bilm.analysis.occurrences import (
    Layer,
    Occurrences,
    Sample,
    Sentence,
    comparison_form,
    draw_uses,
    forms_of,
    indices_by_name,
    require_one_kind,
    sample_of,
    unit,
)
from bilm.core.errors import InputError, iterable, require, require_at_least
from bilm.extras import import_extra
from bilm.files.reading import PathLike, read_lines
from bilm.files.writing import atomic_write, text_file
from bilm.progress import ShowStage, counted, quiet

OLD, NEW = "old", "new"
_TAG = re.compile(r"(.+)_([^_]+)")  # attack_nn
_RESAMPLES = 1000
_INTERVAL = ("excess_low", "excess_high")


class Change(NamedTuple):
    """How much the use of a word differs between two corpora.

    The measures are NaN for a word that is too rare in one of the corpora. `excess` is an unbiased
    estimate of half the squared maximum mean discrepancy under the cosine kernel: about 0 for a
    word that did not change, even if its uses vary.
    """

    word: str
    n_old: int  # occurrences
    n_new: int
    prt: float = np.nan  # 1 / cosine of the mean vectors; infinite if the cosine is not positive
    apd: float = np.nan  # mean cosine distance of all pairs of an old and a new occurrence
    jsd: float = np.nan  # Jensen-Shannon divergence in nats over clusters of all occurrences
    excess: float = np.nan  # `apd` minus the mean cosine distance within a corpus
    excess_low: float = np.nan  # its 95 % bootstrap interval over occurrences
    excess_high: float = np.nan

    @property
    def is_measured(self) -> bool:
        """Whether the word occurs often enough in both corpora."""
        return not np.isnan(self.excess)

    @property
    def geometric_mean(self) -> float:
        """sqrt(prt * apd), as recommended by Kutuzov, Velldal and Øvrelid (2022)."""
        return float(np.sqrt(self.prt * max(self.apd, 0.0)))


MEASURES: dict[str, Callable[[Change], float]] = {
    name: attrgetter(name.lower()) for name in ("excess", "PRT", "APD", "geometric_mean", "JSD")
}
"""The measures, by the names of their columns."""


# Targets and their occurrences


def read_targets(path: PathLike) -> list[str]:
    """The target words of a file, one per line; text after a tab is ignored."""
    words = (line.partition("\t")[0].strip() for line in read_lines(path))
    targets = list(dict.fromkeys(filter(None, words)))
    if not targets:
        raise InputError(f"{path}: must have one target word per line, got an empty file.")
    return targets


def sample_targets(
    sentences: Iterable[str | Sentence],
    targets: Iterable[str],
    *,
    max_occurrences: int = 1000,
    seed: int = 0,
    match_case: bool = False,
    lemma_pos: bool = False,
) -> Sample:
    """Draw occurrences of target words from a corpus, which is read once; labels are the targets.

    Args:
        sentences: lists of tokens, or text that is split on white space.
        targets: words; `bank+banks` is one target with two forms.
        max_occurrences: size of the sample for each target.
        match_case: distinguish apple from Apple.
        lemma_pos: targets end in a part of speech in any case, as attack_nn or attack_NN. In a
            corpus with such tokens, the complete token must match, and the part after the last "_"
            is removed from every token of the sample; in other corpora, the word must match.

    Raises:
        InputError: `targets` is empty, or no target occurs.
    """
    require(iterable("words"), targets=targets)
    targets = list(dict.fromkeys(targets))
    if not targets:
        raise InputError("targets must name at least one word.")
    fold = functools.partial(comparison_form, match_case=match_case)

    def name_of(token: str) -> str:
        word, tag = _split_tag(token) if lemma_pos else (token, "")
        return f"{fold(word)}_{tag.lower()}" if tag else fold(word)

    tagged = [(target, [*map(name_of, forms_of(target))]) for target in targets]
    plain = [(target, [fold(_split_tag(form)[0]) for form in forms_of(target)])
             for target in targets]  # fmt: skip
    names = [*tagged, *plain] if lemma_pos else tagged
    reservoirs = draw_uses(sentences, names, name_of, max_occurrences, seed)
    with_tags, without_tags = reservoirs[: len(targets)], reservoirs[len(targets) :]
    is_tagged = any(reservoir.n_offered for reservoir in with_tags)
    reservoirs = with_tags if is_tagged or not lemma_pos else without_tags
    sample = sample_of(dict(zip(targets, reservoirs, strict=True)))
    if not len(sample):
        raise InputError("at least one target word must occur in the text.")
    words = sample.sentences
    if lemma_pos and is_tagged:
        words = [tuple(_split_tag(token)[0] for token in sentence) for sentence in words]
    return replace(sample, sentences=words, labels=sample.targets, targets=None)


def _split_tag(token: str) -> tuple[str, str]:
    """Split attack_nn into "attack" and "nn"; without a part of speech the second is empty."""
    match = _TAG.fullmatch(token)
    return (token, "") if match is None else (match[1], match[2])


def save_uses(path: PathLike, occurrences: Occurrences, targets: Iterable[str]) -> None:
    """Write the top layer's vectors of each target as semeval2020 does: .npz, {word: (n, dim)}."""
    by_word, vectors = uses_of(occurrences), occurrences.layer("top")
    # `numpy.savez` takes the words as keyword arguments, and so fails for the word "file".
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for word in targets:
            with archive.open(f"{word}.npy", "w", force_zip64=True) as member:
                rows = vectors[by_word.get(word, [])]
                np.lib.format.write_array(member, rows, allow_pickle=False)


# Measures


def measure_change(
    old: Occurrences,
    new: Occurrences,
    targets: Iterable[str] | None = None,
    *,
    layer: Layer = "top",
    min_occurrences: int = 3,
    seed: int = 0,
    progress: ShowStage = quiet,
) -> list[Change]:
    """The change of each target, ordered by `Change.excess`, the most changed first.

    Args:
        old, new: occurrences in the two corpora from `sample_targets`, labelled with the targets.
        targets: the words to compare; None takes all labels.
        layer: the layer to compare; see `Occurrences.layer`.
        min_occurrences: a word with fewer occurrences in one of the corpora is not measured.
        seed: random seed of the clusters.
        progress: called with a `Stage` of words.

    Raises:
        InputError: the occurrences have no labels, or come from different models.
    """
    require_at_least(2, min_occurrences=min_occurrences)
    require(iterable("words"), targets=() if targets is None else targets)
    both = [(corpus, uses_of(corpus)) for corpus in (old, new)]
    require_one_kind(old, new)
    words = list(both[0][1] | both[1][1] if targets is None else targets)
    changes = []
    for word in counted(words, progress, "comparing", len(words), "words"):
        old_uses, new_uses = (corpus.select(uses.get(word, [])) for corpus, uses in both)
        change = Change(word, len(old_uses), len(new_uses))
        if min(change.n_old, change.n_new) >= min_occurrences:
            old_vectors, new_vectors = old_uses.layer(layer), new_uses.layer(layer)
            prt, apd, excess = distances(old_vectors, new_vectors)
            jsd = cluster_uses(old_uses, new_uses, layer, seed).jsd
            interval = excess_interval(old_vectors, new_vectors, seed)
            change = Change(*change[:3], prt, apd, jsd, excess, *interval)
        changes.append(change)
    return sorted(changes, key=lambda c: (not c.is_measured, -np.nan_to_num(c.excess), c.word))


def distances(old: np.ndarray, new: np.ndarray) -> tuple[float, float, float]:
    """`prt`, `apd` and `excess` of vectors (n, dim) and (m, dim), at least two of each."""
    means = np.stack([vectors.mean(axis=0, dtype=np.float64) for vectors in (old, new)])
    cosine = float(np.prod(unit(means), axis=0).sum())
    # The mean cosine of all pairs is the product of the means of the unit vectors.
    units = [unit(vectors.astype(np.float64)) for vectors in (old, new)]
    sums = [rows.sum(axis=0) for rows in units]
    apd = 1 - float(sums[0] @ sums[1]) / (len(old) * len(new))
    within = [
        1 - float(total @ total - np.square(rows).sum()) / (len(rows) * (len(rows) - 1))
        for rows, total in zip(units, sums, strict=True)
    ]
    return 1 / cosine if cosine > 0 else np.inf, apd, apd - sum(within) / 2


def excess_interval(old: np.ndarray, new: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of `excess` over the occurrences: vectors (n, dim), (m, dim).

    Pairs of two draws of the same occurrence do not count. A resample of one occurrence alone has
    no other pairs, and takes the mean distance of the sample.
    """
    rng = np.random.default_rng(seed)
    sums, within = [], []
    for vectors in (old, new):
        units, n = unit(vectors.astype(np.float32)), len(vectors)
        counts = rng.multinomial(n, np.full(n, 1 / n), _RESAMPLES).astype(np.float32)
        counts = np.concatenate([np.ones((1, n), np.float32), counts])  # first the sample itself
        mean = counts @ units / n  # (1 + resamples, dim)
        squares = np.square(counts).sum(axis=1)
        pairs = n * n - squares
        cosines = (n * n * np.square(mean).sum(axis=1) - squares) / np.maximum(pairs, 1)
        sums.append(mean[1:])
        within.append(1 - np.where(pairs > 0, cosines, cosines[0])[1:])
    excess = 1 - (sums[0] * sums[1]).sum(axis=1) - (within[0] + within[1]) / 2
    low, high = np.percentile(excess, [2.5, 97.5])
    return float(low), float(high)


def uses_of(occurrences: Occurrences) -> dict[str, np.ndarray]:
    """The indices of each target's occurrences, by label."""
    if occurrences.labels is None:
        raise InputError("change: occurrences must have their target words as labels.")
    return indices_by_name(occurrences.labels)


def write_table(path: PathLike, changes: Sequence[Change]) -> None:
    """Write one row per word, with tabs: counts, `MEASURES`, and the interval of `excess`."""
    with atomic_write(path) as temporary, text_file(temporary) as file:
        head = ["word", "occurrences_old", "occurrences_new", *MEASURES, *_INTERVAL]
        file.write("\t".join(head) + "\n")
        for change in changes:
            values = [*(measure(change) for measure in MEASURES.values()), *change[-2:]]
            numbers = [f"{value:.8g}" for value in values]
            file.write("\t".join([change.word, *map(str, change[1:3]), *numbers]) + "\n")


class ClusteredUses(NamedTuple):
    """The occurrences of a word in both corpora, clustered together.

    There are at least two clusters, unless all vectors are equal.
    """

    occurrences: Occurrences  # with the labels "old" and "new"
    clusters: Clusters
    shares: np.ndarray  # float64 (2, clusters): their proportions in each corpus

    @property
    def jsd(self) -> float:
        """The Jensen-Shannon divergence of the two distributions, in nats."""
        special = import_extra("scipy.special", "Measuring change")
        return float(special.rel_entr(self.shares, self.shares.mean(axis=0)).sum() / 2)

    def typical(self, cluster: int, corpus: str, n: int = 5) -> list[int]:
        """The `n` occurrences in one corpus that are nearest to the centre of a cluster."""
        labels = self.occurrences.labels or []
        ranked = typical_occurrences(self.occurrences, self.clusters, cluster, len(labels))
        return [use for use in ranked if labels[use] == corpus][:n]


def cluster_uses(old: Occurrences, new: Occurrences, layer: Layer, seed: int) -> ClusteredUses:
    """Cluster the occurrences of one word in two corpora; see `cluster_occurrences`."""
    both = [(OLD, old), (NEW, new)]
    sentences = [corpus.sentence(k) for _, corpus in both for k in range(len(corpus))]
    positions = np.concatenate([corpus.positions[:, 1] for _, corpus in both])
    joint = Occurrences(
        sentences,
        np.stack([np.arange(len(sentences)), positions], axis=1),
        np.concatenate([corpus.layer(layer) for _, corpus in both])[:, np.newaxis],
        [name for name, corpus in both for _ in range(len(corpus))],
    )
    clusters = cluster_occurrences(joint, layer=0, seed=seed)
    if len(clusters) == 1 and joint.directions(0).any():
        # The proportions of two halves can differ even without clear clusters.
        clusters = cluster_occurrences(joint, layer=0, n_clusters=2, seed=seed)
    counts = [np.bincount(of, minlength=len(clusters)) for of in np.split(clusters.of, [len(old)])]
    return ClusteredUses(joint, clusters, np.stack([count / count.sum() for count in counts]))


# Comparison with human judgements


class Agreement(NamedTuple):
    """How well a measure agrees with a gold standard.

    `statistic` is "Spearman" for graded gold scores; for gold scores of 0 and 1 it is "accuracy",
    where words above the mean of the measure count as changed, and "AUC", the area under the ROC
    curve. `low` and `high` are its 95 % bootstrap interval over the `n` words.
    """

    measure: str
    statistic: str
    value: float
    low: float
    high: float
    n: int


def read_gold(path: PathLike) -> dict[str, float]:
    """Gold scores: `word TAB score`, one per line."""
    gold: dict[str, float] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        word, _, score = line.rstrip().partition("\t")
        try:
            value = float(score)
        except ValueError:
            value = np.nan
        if not np.isfinite(value):
            rule = f"a word, a tab and a finite number, got {line[:80]!r}"
            raise InputError(f"{path}, line {number}: must be {rule}.")
        if (word := word.strip()) in gold:
            raise InputError(f"{path}, line {number}: {word!r} must have one score, got a second.")
        gold[word] = value
    return gold


def gold_scores(words: Iterable[str], gold: Mapping[str, float]) -> dict[str, float]:
    """The gold scores of words, in which `bank+banks` may be listed as `bank`.

    Raises:
        InputError: fewer than three words have a score, or all scores are equal.
    """
    listed = {word: gold.get(word, gold.get(forms_of(word)[0])) for word in words}
    scores = {word: score for word, score in listed.items() if score is not None}
    if len(scores) < 3:
        raise InputError(
            f"gold: at least 3 of the measured words must have a gold score, got {len(scores)}."
        )
    if len(set(scores.values())) == 1:
        raise InputError("gold: the scores of the measured words must not all be equal.")
    return scores


def agreement(
    changes: Sequence[Change], gold: Mapping[str, float], *, seed: int = 0
) -> list[Agreement]:
    """How well each measure agrees with gold scores that rise with change; see `gold_scores`.

    `seed` is the random seed of the bootstrap.
    """
    stats = import_extra("scipy.stats", "Comparing with gold scores")
    by_word = gold_scores((change.word for change in changes if change.is_measured), gold)
    pairs = [(change, by_word[change.word]) for change in changes if change.word in by_word]
    scores = np.array([score for _, score in pairs])
    is_binary = set(scores.tolist()) == {0.0, 1.0}
    rng = np.random.default_rng(seed)
    samples = rng.integers(len(pairs), size=(_RESAMPLES, len(pairs)))
    lines = []
    for name, measure in MEASURES.items():
        values = np.array([measure(change) for change, _ in pairs])
        threshold = values[np.isfinite(values)].mean()
        values = np.nan_to_num(values, posinf=np.finfo(np.float64).max)
        statistics: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
            "Spearman": lambda x, gold: np.corrcoef(stats.rankdata(x), stats.rankdata(gold))[0, 1]
        }
        if is_binary:
            statistics = {
                "accuracy": lambda x, gold: np.mean((x > threshold) == gold),  # noqa: B023
                "AUC": lambda x, gold: (1 + np.sign(x[gold == 1, None] - x[gold == 0]).mean()) / 2,
            }
        # Equal values or scores have no correlation.
        usable = [rows for rows in samples if np.ptp(values[rows]) > 0 and np.ptp(scores[rows]) > 0]
        for title, statistic in statistics.items():
            value, low, high = np.nan, np.nan, np.nan
            if np.ptp(values) > 0:
                value = float(statistic(values, scores))
                resampled = [statistic(values[rows], scores[rows]) for rows in usable]
                low, high = map(float, np.percentile(resampled, [2.5, 97.5]))
            lines.append(Agreement(name, title, value, low, high, len(pairs)))
    return lines
