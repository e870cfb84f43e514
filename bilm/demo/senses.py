"""Words of a text whose uses fall into two groups: what the demo shows of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bilm.analysis import (
    Groups,
    Occurrences,
    StaticVectors,
    group_uses,
    nearby_words,
    sample_uses,
    typical_uses,
)
from bilm.analysis.occurrences import Sentence, ordinary_words, sample_sentences
from bilm.analysis.static import frequent_words, mean_vectors
from bilm.elmo import ELMo
from bilm.errors import InputError

LAYER = 1
_N_WORDS = 3
_CANDIDATES = 150
_USES = 150  # of each word
_LEAST_USES = 30
_LEAST_SHARE = 0.2  # of the smaller group
_STATIC_WORDS = 3000
_STATIC_SENTENCES = 6000


@dataclass(frozen=True, eq=False)
class TwoSenses:
    """A word and two groups of its uses.

    Attributes:
        word: in small letters.
        occurrences: its uses that were drawn from the text.
        groups: of these.
        count: its uses in the whole text.
    """

    word: str
    occurrences: Occurrences
    groups: Groups
    count: int

    @property
    def silhouette(self) -> float:
        """How far the groups are apart; see `bilm.analysis.group_uses`."""
        return self.groups.silhouettes[2]

    def lines(self, group: int, n: int = 3) -> list[str]:
        """Typical lines of a group."""
        uses = typical_uses(self.occurrences, self.groups, group, n)
        return [self.occurrences.in_context(use) for use in uses]

    def words_nearby(self, group: int, n: int = 6) -> list[str]:
        """Words that stand near the uses of a group more often than near the others."""
        return [word for _, word in nearby_words(self.occurrences, self.groups, group, n)]


def find_two_senses(
    elmo: ELMo,
    sentences: Sequence[Sentence],
    words: Iterable[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[TwoSenses]:
    """The words whose uses fall most clearly into two groups, the clearest first.

    Args:
        words: those to look at, all of which are taken; None takes three ordinary ones of the
            text.
        progress: called with occurrences encoded, and all of them.

    Raises:
        InputError: no word of the text occurs often enough, or one that is named does not occur.
    """
    candidates = list(words) if words is not None else ordinary_words(sentences, _CANDIDATES)
    if not candidates:
        raise InputError("the text has no words that could be shown in context.")
    sample = sample_uses(sentences, candidates, max_occurrences=_USES)
    occurrences = Occurrences.encoded(elmo, sample, progress=progress)
    found = []
    for word, count in sample.counts.items():
        own = occurrences.select(occurrences.of(word))
        if words is None and len(own) < _LEAST_USES:
            continue
        tried = group_uses(own, layer=LAYER, max_groups=2)
        groups = tried if len(tried) == 2 else group_uses(own, layer=LAYER, n_groups=2)
        groups = replace(groups, silhouettes=tried.silhouettes)
        if words is not None or min(groups.sizes) >= _LEAST_SHARE * len(own):
            found.append(TwoSenses(word, own, groups, count))
    if not found:
        raise InputError(f"no word of the text has two groups of {_LEAST_USES} uses or more.")
    found.sort(key=lambda senses: -senses.silhouette)
    return found if words is not None else found[:_N_WORDS]


def count_uses(sentences: Iterable[Sentence], words: Iterable[str]) -> dict[str, int]:
    """How often words occur, however they are capitalised."""
    counts = {word.lower(): 0 for word in words}
    for sentence in sentences:
        for token in map(str.lower, sentence):
            if token in counts:
                counts[token] += 1
    return counts


def static_vectors(elmo: ELMo, sentences: Sequence[Sentence]) -> StaticVectors:
    """One vector for each frequent word whatever its context: the mean of the top layer."""
    words = frequent_words(sentences, min_count=5, max_words=_STATIC_WORDS)
    return mean_vectors(elmo, words, sample_sentences(sentences, _STATIC_SENTENCES))


def all_uses(found: Sequence[TwoSenses]) -> Occurrences:
    """The uses of several words in one object, labelled by word and group."""
    sentences: list[Sentence] = []
    positions, labels = [], []
    for senses in found:
        uses = senses.occurrences
        positions.append(uses.positions + np.array([len(sentences), 0]))
        sentences += uses.sentences
        labels += [f"{senses.word} {group + 1}" for group in senses.groups.of]
    vectors = np.concatenate([senses.occurrences.vectors for senses in found])
    return Occurrences(sentences, np.concatenate(positions), vectors, labels)
