"""How much the use of words differs between two corpora: lexical semantic change."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.analysis.clusters import Clusters, cluster_occurrences, cluster_titles, typical_words
from bilm.analysis.contexts import Context, line_markup
from bilm.analysis.occurrences import Layer, Occurrences, indices_by_name, require_one_kind, unit
from bilm.analysis.pictures import write_page
from bilm.core.errors import InputError, import_extra, iterable, require, require_at_least
from bilm.files.reading import PathLike, read_lines
from bilm.files.writing import atomic_write, text_file
from bilm.progress import ShowStage, counted, quiet

if TYPE_CHECKING:
    from bilm.use.predictor import Predictor

OLD, NEW = "old", "new"
_RESAMPLES = 1000
_SHUFFLES = 999
_MIN_GROUPS = 3  # documents with a word, in each corpus
_ROUNDING = 1e-9  # smaller differences are ties
_MOVED = 0.02  # smallest difference of proportions that counts as growing or shrinking
_HINT = """<p class='hint'>The most changed words by excess: the mean cosine distance of occurrences
in different corpora minus the mean distance within a corpus, with its 95 % interval. It is about 0
for a word that did not change; p is the probability of such a value if occurrences are exchanged
between the corpora.</p>"""


class Share(NamedTuple):
    """The proportion of a cluster in a corpus."""

    value: float
    low: float  # its 95 % interval (Wilson 1927) over occurrences
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f}-{self.high:.2f})"


class Change(NamedTuple):
    """How much the use of a word differs between two corpora.

    The measures are NaN for a word that is too rare in one of the corpora. `excess` is an unbiased
    estimate of half the squared maximum mean discrepancy under the cosine kernel: about 0 for a
    word that did not change, even if its uses vary.
    """

    word: str
    n_old: int  # occurrences
    n_new: int
    per_million_old: float = np.nan  # frequency in the text
    per_million_new: float = np.nan
    excess: float = np.nan  # `apd` minus the mean cosine distance within a corpus
    excess_low: float = np.nan  # its 95 % bootstrap interval over occurrences or documents
    excess_high: float = np.nan
    excess_p: float = np.nan  # of a permutation test: the corpora are exchanged at random
    jsd: float = np.nan  # Jensen-Shannon divergence in nats over clusters of all occurrences
    jsd_p: float = np.nan  # of the same test
    prt: float = np.nan  # 1 / cosine of the mean vectors; infinite if the cosine is not positive
    apd: float = np.nan  # mean cosine distance of all pairs of an old and a new occurrence
    shares_old: tuple[Share, ...] = ()  # of each cluster, the largest first
    shares_new: tuple[Share, ...] = ()

    @property
    def is_measured(self) -> bool:
        """Whether the word occurs often enough in both corpora."""
        return not np.isnan(self.excess)

    @property
    def geometric_mean(self) -> float:
        """sqrt(prt * apd), as recommended by Kutuzov, Velldal and Øvrelid (2022)."""
        return float(np.sqrt(self.prt * max(self.apd, 0.0)))


_COLUMNS: dict[str, Callable[[Change], float]] = {
    name: attrgetter(name.lower())
    for name in ("per_million_old", "per_million_new", "excess", "excess_low", "excess_high",
                 "excess_p", "JSD", "JSD_p", "PRT", "APD", "geometric_mean")
}  # fmt: skip


def read_targets(path: PathLike) -> list[str]:
    """The target words of a file, one per line; text after a tab is ignored."""
    words = (line.partition("\t")[0].strip() for line in read_lines(path))
    targets = list(dict.fromkeys(filter(None, words)))
    if not targets:
        raise InputError(f"{path}: must have one target word per line, got an empty file.")
    return targets


# Measures


def measure_change(
    old: Occurrences,
    new: Occurrences,
    targets: Iterable[str] | None = None,
    *,
    layer: Layer = "top",
    min_occurrences: int = 3,
    documents: tuple[Sequence[object], Sequence[object]] | None = None,
    per_million: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {}),
    seed: int = 0,
    progress: ShowStage = quiet,
) -> list[Change]:
    """The change of each target, ordered by `Change.excess_low`, the most changed first.

    Args:
        old, new: occurrences in the two corpora, as from `sample_uses`.
        targets: the words to compare; None takes all targets of the occurrences.
        layer: the layer to compare; see `Occurrences.layer`.
        min_occurrences: a word with fewer occurrences in one of the corpora is not measured.
        documents: the document, such as a file or an author, of each old and new occurrence: tests
            and intervals then exchange complete documents, and distances within a corpus are
            between documents. A word needs three documents in each corpus. None treats occurrences
            as independent.
        per_million: the frequencies of the targets in both texts, from `Sample.per_million`.
        seed: random seed of tests and intervals.
        progress: called with a `Stage` of words.

    Raises:
        InputError: the occurrences come from different models.
    """
    require_at_least(2, min_occurrences=min_occurrences)
    require(iterable("words"), targets=() if targets is None else targets)
    both = [(corpus, indices_by_name(corpus.names)) for corpus in (old, new)]
    require_one_kind(old, new)
    names = documents or (range(len(old)), range(len(new)))
    words = list(both[0][1] | both[1][1] if targets is None else targets)
    changes = []
    for word in counted(words, progress, "comparing", len(words), "words"):
        rows = [uses.get(word, np.array([], int)) for _, uses in both]
        parts = [corpus.select(of) for (corpus, _), of in zip(both, rows, strict=True)]
        group_names = [[of[row] for row in part] for of, part in zip(names, rows, strict=True)]
        frequencies = [found.get(word, np.nan) for found in per_million]
        change = Change(word, len(parts[0]), len(parts[1]), frequencies[0], frequencies[1])
        least = min(_MIN_GROUPS, min_occurrences)
        if (
            min(map(len, parts)) >= min_occurrences
            and min(map(len, map(set, group_names))) >= least
        ):
            change = _measured(change, parts, layer, group_names, seed)
        changes.append(change)
    return sorted(changes, key=lambda c: (not c.is_measured, -np.nan_to_num(c.excess_low), c.word))


def _measured(
    change: Change,
    parts: Sequence[Occurrences],
    layer: Layer,
    documents: Sequence[Sequence[object]],
    seed: int,
) -> Change:
    uses = cluster_uses(parts[0], parts[1], layer)
    vectors = [part.layer(layer) for part in parts]
    groups = Groups.from_vectors(vectors, documents, uses.clusters.of)
    rng = np.random.default_rng(seed)
    # The first row is the sample itself.
    is_old = np.tile(np.arange(len(groups.sizes)) < groups.n_old, (1 + _SHUFFLES, 1))
    is_old[1:] = rng.permuted(is_old[1:], axis=1)
    excess, divergence = groups.excess(is_old), groups.divergence(is_old)
    p_values = [float((x >= x[0] - _ROUNDING).mean()) for x in (excess, divergence)]
    low, high = groups.excess_interval(rng)
    prt, apd = distances(*vectors)
    return change._replace(
        excess=float(excess[0]), excess_low=low, excess_high=high, excess_p=p_values[0],
        jsd=float(divergence[0]), jsd_p=p_values[1], prt=prt, apd=apd,
        shares_old=uses.shares[0], shares_new=uses.shares[1],
    )  # fmt: skip


def distances(old: np.ndarray, new: np.ndarray) -> tuple[float, float]:
    """`prt` and `apd` of vectors (n, dim) and (m, dim)."""
    means = np.stack([vectors.mean(axis=0, dtype=np.float64) for vectors in (old, new)])
    cosine = float(np.prod(unit(means), axis=0).sum())
    # The mean cosine of all pairs is the product of the means of the unit vectors.
    both = [unit(vectors.astype(np.float64)).mean(axis=0) for vectors in (old, new)]
    return 1 / cosine if cosine > 0 else np.inf, 1 - float(both[0] @ both[1])


class Groups(NamedTuple):
    """Groups of occurrences that are not independent, or single occurrences; old ones first."""

    n_old: int  # groups in the old corpus
    sizes: np.ndarray  # float64 (groups,): occurrences
    sums: np.ndarray  # float64 (groups, dim): sums of the vectors, scaled to length 1
    counts: np.ndarray  # float64 (groups, clusters): occurrences

    @classmethod
    def from_vectors(
        cls,
        vectors: Sequence[np.ndarray],
        documents: Sequence[Sequence[object]],
        clusters: np.ndarray,
    ) -> Groups:
        """The documents of the old and the new occurrences."""
        keys = [(k, name) for k, names in enumerate(documents) for name in names]
        index = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        group = np.array([index[key] for key in keys])
        sums = np.zeros((len(index), vectors[0].shape[1]), np.float64)
        np.add.at(sums, group, unit(np.concatenate(vectors).astype(np.float64)))
        counts = np.zeros((len(index), clusters.max() + 1), np.float64)
        np.add.at(counts, (group, clusters), 1)
        return cls(len(set(documents[0])), counts.sum(axis=1), sums, counts)

    def excess(self, is_old: np.ndarray) -> np.ndarray:
        """`Change.excess` for rows of a mask (rows, groups) of the groups in the old corpus."""
        means, within = [], []
        for mask in (is_old.astype(np.float64), (~is_old).astype(np.float64)):
            sums, n = mask @ self.sums, mask @ self.sizes
            squares = mask @ np.square(self.sums).sum(axis=1)
            n_pairs = np.square(n) - mask @ np.square(self.sizes)
            within.append((np.square(sums).sum(axis=1) - squares) / n_pairs)
            means.append(sums / n[:, np.newaxis])
        return (within[0] + within[1]) / 2 - (means[0] * means[1]).sum(axis=1)

    def divergence(self, is_old: np.ndarray) -> np.ndarray:
        """`Change.jsd` for the same rows."""
        special = import_extra("scipy.special", "Measuring change")
        counts = np.stack([is_old @ self.counts, ~is_old @ self.counts])
        shares = counts / counts.sum(axis=2, keepdims=True)
        return special.rel_entr(shares, shares.mean(axis=0)).sum(axis=(0, 2)) / 2

    def excess_interval(self, rng: np.random.Generator) -> tuple[float, float]:
        """The 95 % bootstrap interval of `excess` over groups.

        The difference of the sample's means has noise of its own, to which the bootstrap adds: the
        variance of the cross term is reduced to its unbiased value.
        """
        difference, noise = np.zeros(self.sums.shape[1]), np.zeros((1, 1))
        for sign, part in ((1, slice(self.n_old)), (-1, slice(self.n_old, None))):
            sums, sizes = self.sums[part], self.sizes[part]
            n = len(sizes)
            weights = rng.multinomial(n, np.full(n, 1 / n), _RESAMPLES).astype(np.float64)
            mean = sums.sum(axis=0) / sizes.sum()
            means = (weights @ sums) / (weights @ sizes)[:, np.newaxis]
            difference = difference + sign * mean
            noise = noise + sign * np.sqrt(n / (n - 1)) * (means - mean)
        cross, squares = noise @ difference, np.square(noise).sum(axis=1)
        # The variance of the squares of Gaussian noise is twice the variance that is in excess.
        scale = np.sqrt(max(0.0, 1 - squares.var() / 2 / max(cross.var(), 1e-300)))
        estimate = (np.square(difference).sum() - squares.mean()) / 2
        draws = estimate + scale * cross + (squares - squares.mean()) / 2
        low, high = np.percentile(draws, [2.5, 97.5])
        return float(low), float(high)


def write_table(path: PathLike, changes: Sequence[Change]) -> None:
    """Write one row per word, with tabs: counts, measures, and the shares of the clusters."""
    head = ["word", "occurrences_old", "occurrences_new", *_COLUMNS, "clusters_old", "clusters_new"]
    with atomic_write(path) as temporary, text_file(temporary) as file:
        file.write("\t".join(head) + "\n")
        for change in changes:
            numbers = [f"{column(change):.8g}" for column in _COLUMNS.values()]
            shares = [", ".join(map(str, of)) for of in (change.shares_old, change.shares_new)]
            row = [change.word, str(change.n_old), str(change.n_new), *numbers, *shares]
            file.write("\t".join(row) + "\n")


class ClusteredUses(NamedTuple):
    """The occurrences of a word in both corpora, clustered together.

    There are at least two clusters, unless all vectors are equal.
    """

    occurrences: Occurrences  # with the labels "old" and "new"
    clusters: Clusters

    @property
    def shares(self) -> list[tuple[Share, ...]]:
        """The proportion of each cluster in the old and in the new corpus."""
        stats = import_extra("scipy.stats", "Measuring change")
        labels = np.array(self.occurrences.labels)
        shares = []
        for corpus in (OLD, NEW):
            counts = np.bincount(self.clusters.of[labels == corpus], minlength=len(self.clusters))
            n = int(counts.sum())
            tests = [stats.binomtest(int(count), n) for count in counts]
            intervals = [test.proportion_ci(method="wilson") for test in tests]
            shares.append(tuple(Share(t.k / n, i.low, i.high)
                                for t, i in zip(tests, intervals, strict=True)))  # fmt: skip
        return shares

    def typical(self, cluster: int, corpus: str, n: int = 5) -> list[int]:
        """The `n` occurrences in one corpus that are nearest to the centre of a cluster, in
        different contexts."""
        labels = self.occurrences.labels or []
        members = (k for k in self.clusters.members(cluster) if labels[k] == corpus)
        return self.occurrences.distinct(members, n)


def cluster_uses(old: Occurrences, new: Occurrences, layer: Layer) -> ClusteredUses:
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
    clusters = cluster_occurrences(joint, layer=0)
    if len(clusters) == 1 and joint.directions(0).any():
        # The proportions of two halves can differ even without clear clusters.
        clusters = cluster_occurrences(joint, layer=0, n_clusters=2)
    return ClusteredUses(joint, clusters)


# The page


def write_change_page(
    path: PathLike,
    old: Occurrences,
    new: Occurrences,
    changes: Sequence[Change],
    *,
    n_words: int = 20,
    n_lines: int = 5,
    corpora: Sequence[str] = (OLD, NEW),
    predictor: Predictor | None = None,
) -> None:
    """Write a page that needs no network.

    For each of the first `n_words` of `changes`, from `measure_change`, it shows the proportion of
    each cluster in both corpora, and the `n_lines` sentences nearest to the centre of each cluster:
    from the new corpus if the cluster grew, otherwise from the old one. Substitutes from
    `predictor`, or else nearby words, name the clusters; `corpora` are the names of the corpora.
    """
    measured = [change for change in changes if change.is_measured][:n_words]
    both = [(corpus, indices_by_name(corpus.names)) for corpus in (old, new)]
    sections = []
    for number, change in enumerate(measured, start=1):
        old_uses, new_uses = (corpus.select(rows[change.word]) for corpus, rows in both)
        uses = cluster_uses(old_uses, new_uses, "top")
        names = cluster_titles(typical_words(uses.occurrences, uses.clusters, predictor))
        heading = (
            f"<h2>{number}. {html.escape(change.word)} <small>excess {change.excess:.3f} "
            f"({change.excess_low:.3f} to {change.excess_high:.3f}), p {change.excess_p:.3f}; JSD "
            f"{change.jsd:.3f}, p {change.jsd_p:.3f}; {change.n_old:,} and {change.n_new:,} "
            "occurrences</small></h2>"
        )
        content = heading + _lines(uses, names, corpora, n_lines)
        sections.append(f"<section>{content}</section>")
    title = f"Words that changed: {corpora[0]} and {corpora[1]}"
    hint = _HINT if sections else "<p>No word occurs often enough in both corpora.</p>"
    write_page(path, title, hint + "".join(sections))


def _lines(uses: ClusteredUses, names: Sequence[str], corpora: Sequence[str], n_lines: int) -> str:
    """The typical sentences of each cluster; clusters that grew come first."""
    content = ""
    shares = [[share.value for share in corpus] for corpus in uses.shares]
    growth = [after - before for before, after in zip(*shares, strict=True)]
    for cluster in sorted(range(len(names)), key=lambda k: -growth[k]):
        before, after = shares[0][cluster], shares[1][cluster]
        grew = growth[cluster] > 0
        moved = ("grew: " if grew else "shrank: ") if abs(growth[cluster]) >= _MOVED else ""
        typical = uses.typical(cluster, NEW if grew else OLD, n_lines)
        lines = "".join(line_markup(Context.of(uses.occurrences, use)) for use in typical)
        share = f"{moved}{before:.0%} → {after:.0%}; sentences from {corpora[grew]}"
        content += (
            f"<h3>{html.escape(names[cluster])} <small>{html.escape(share)}</small></h3>"
            f'<ul class="lines">{lines}</ul>'
        )
    return content
