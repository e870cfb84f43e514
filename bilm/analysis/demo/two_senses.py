"""Words of a text with two clusters of uses that are far apart: what the demo shows of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bilm.analysis import (
    Clusters,
    Occurrences,
    StaticVectors,
    cluster_occurrences,
    sample_uses,
    typical_occurrences,
)
from bilm.analysis.occurrences import Sentence, ordinary_words, sample_sentences
from bilm.analysis.static_vectors import frequent_words, mean_vectors
from bilm.core.errors import InputError
from bilm.use.elmo import ELMo

LAYER = 1
_N_WORDS = 3
_CANDIDATES = 300
_USES = 150  # of each word
_LEAST_USES = 40
_LEAST_SHARE = 0.2  # of the smaller group
_STATIC_WORDS = 2000
_STATIC_COUNT = 20
_STATIC_SENTENCES = 6000


@dataclass(frozen=True, eq=False)
class TwoSenses:
    """A word and two clusters of its uses.

    Attributes:
        word: in small letters, as are the uses.
        occurrences: its uses that were drawn from the text.
        clusters: of these.
        count: its uses in the whole text.
        cosine: of the clusters' centres, without the mean vector of frequent words: the lower, the
            farther they are apart.
        near: for each group the words whose mean vectors are nearest to its centre.
    """

    word: str
    occurrences: Occurrences
    clusters: Clusters
    count: int
    cosine: float
    near: tuple[list[str], list[str]]

    def lines(self, group: int, n: int = 3) -> list[str]:
        """Typical lines of a group."""
        uses = typical_occurrences(self.occurrences, self.clusters, group, n)
        return [self.occurrences.in_context(use) for use in uses]


def find_two_senses(
    elmo: ELMo,
    sentences: Sequence[Sentence],
    static: StaticVectors,
    words: Iterable[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[TwoSenses]:
    """The words whose uses fall into two clusters that are farthest apart, the farthest first.

    Args:
        static: from `static_vectors`.
        words: those to look at, all of which are taken; None takes three ordinary ones of the
            text.
        progress: called with occurrences encoded, and all of them.

    Raises:
        InputError: no word of the text occurs often enough, or one that is named does not occur.
    """
    candidates = ordinary_words(sentences, _CANDIDATES) if words is None else words
    candidates = [word.lower() for word in candidates]
    if not candidates:
        raise InputError("the text has no words that could be shown in context.")
    # A capital at the beginning of a sentence would be what tells the uses apart.
    sample = sample_uses(sentences, candidates, max_occurrences=_USES, match_case=True)
    occurrences = Occurrences.encoded(elmo, sample, progress=progress)
    found = []
    for word, count in sample.counts.items():
        own = occurrences.select(occurrences.of(word))
        if words is None and len(own) < _LEAST_USES:
            continue
        clusters = cluster_occurrences(own, layer=LAYER, n_clusters=2)
        if words is not None or min(clusters.sizes) >= _LEAST_SHARE * len(own):
            found.append(_two_senses(word, own, clusters, count, static))
    if not found:
        raise InputError(
            f"no word of the text has two clusters of uses among {_LEAST_USES} or more."
        )
    found.sort(key=lambda senses: senses.cosine)
    return found if words is not None else found[:_N_WORDS]


def _two_senses(
    word: str, own: Occurrences, clusters: Clusters, count: int, static: StaticVectors
) -> TwoSenses:
    vectors = own.layer(LAYER)
    centres = np.stack([vectors[clusters.of == group].mean(axis=0) for group in (0, 1)])
    one, other = static.nearest_to(centres, 7)
    directions = centres - static.vectors.mean(axis=0)
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-12)
    near = tuple([w for _, w in nearest if w.lower() != word][:6] for nearest in (one, other))
    cosine = float(directions[0] @ directions[1])
    return TwoSenses(word, own, clusters, count, cosine, (near[0], near[1]))


def count_uses(sentences: Iterable[Sentence], words: Iterable[str]) -> dict[str, int]:
    """How often words occur in small letters."""
    counts = {word.lower(): 0 for word in words}
    for sentence in sentences:
        for token in sentence:
            if token in counts:
                counts[token] += 1
    return counts


def static_vectors(elmo: ELMo, sentences: Sequence[Sentence]) -> StaticVectors:
    """One vector for each frequent word whatever its context: the mean over its uses."""
    drawn = sample_sentences(sentences, _STATIC_SENTENCES)
    words = frequent_words(sentences, min_count=_STATIC_COUNT, max_words=_STATIC_WORDS)
    words = [word for word in words if word.isalpha()] or frequent_words(sentences, 1)
    return mean_vectors(elmo, words, drawn, LAYER)


def all_uses(found: Sequence[TwoSenses]) -> Occurrences:
    """The uses of several words in one object, labelled by word and group."""
    sentences: list[Sentence] = []
    positions, labels = [], []
    for senses in found:
        uses = senses.occurrences
        positions.append(uses.positions + np.array([len(sentences), 0]))
        sentences += uses.sentences
        labels += [f"{senses.word} {group + 1}" for group in senses.clusters.of]
    vectors = np.concatenate([senses.occurrences.vectors for senses in found])
    return Occurrences(sentences, np.concatenate(positions), vectors, labels)
