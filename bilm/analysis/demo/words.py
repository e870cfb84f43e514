"""Choose words of a text whose occurrences form two clear clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bilm.analysis.clusters import cluster_occurrences
from bilm.analysis.occurrences import Occurrences, Sentence, ordinary_words, sample_uses
from bilm.use.elmo import ELMo

_CANDIDATES = 300
_OCCURRENCES = 150  # of each word
_LEAST = 40
_LEAST_PROPORTION = 0.2  # of the smaller cluster


def clearest_words(
    elmo: ELMo,
    sentences: Sequence[Sentence],
    n: int = 3,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """The lower-case words with the highest silhouettes for two clusters, the clearest first.

    Args:
        elmo: the model.
        sentences: the text.
        n: most words.
        progress: called with the number of occurrences encoded, and the total.
    """
    candidates = ordinary_words(sentences, _CANDIDATES)
    if not candidates:
        return []
    # With capitals, the position in the sentence would separate the clusters.
    sample = sample_uses(sentences, candidates, max_occurrences=_OCCURRENCES, match_case=True)
    occurrences = Occurrences.encoded(elmo, sample, progress=progress)
    found = []
    for word in sample.counts:
        own = occurrences.select(occurrences.of(word, match_case=True))
        clusters = cluster_occurrences(own, max_clusters=2)
        smaller = min(clusters.sizes) if len(clusters) == 2 else 0
        if len(own) >= _LEAST and smaller >= _LEAST_PROPORTION * len(own):
            found.append((-clusters.silhouettes[2], word))
    return [word for _, word in sorted(found)[:n]]
