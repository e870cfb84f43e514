"""The simplest language model: how often each word occurs. What a biLM must beat."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from bilm.demo.sentences import Sentence

_UNKNOWN = "<UNK>"
_END = "</S>"


class UnigramModel:
    """Relative frequencies with one added to every count, over a biLM's targets.

    The targets are those of a biLM with the same vocabulary: the words of a sentence, <UNK> for
    words outside the vocabulary, and one end of sentence. That the backward direction's end is
    called <S> changes nothing: one model serves both directions.

    Args:
        sentences: training text.
        vocabulary: words of the vocabulary, special tokens among them.
    """

    def __init__(self, sentences: Iterable[Sentence], vocabulary: Sequence[str]) -> None:
        self._words = frozenset(vocabulary)
        self._counts = Counter(target for s in sentences for target in self._targets(s))
        # <S> is in the vocabulary and never a target.
        self._total = sum(self._counts.values()) + len(self._words) - 1

    def _targets(self, sentence: Sentence) -> list[str]:
        return [word if word in self._words else _UNKNOWN for word in sentence] + [_END]

    def log_probability(self, target: str) -> float:
        """Natural logarithm of the probability of a target."""
        return math.log((self._counts[target] + 1) / self._total)

    def perplexity(self, sentences: Iterable[Sentence]) -> float:
        """exp of the mean negative log-probability of all targets of the sentences."""
        n_targets, total = 0, 0.0
        for sentence in sentences:
            targets = self._targets(sentence)
            n_targets += len(targets)
            total -= sum(map(self.log_probability, targets))
        return math.exp(total / n_targets)
