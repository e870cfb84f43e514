"""How the vectors of each layer lie: Ethayarajh (2019), "How contextual are contextualized word
representations?", section 3.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.analysis.occurrences import Sentence, is_word
from bilm.core.errors import InputError

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo

_MAX_WORDS = 1000


class LayerGeometry(NamedTuple):
    """What is measured of a layer. Cosines are of the vectors as they are, not centred.

    Attributes:
        anisotropy: mean cosine of words of different sentences, drawn at random: 0 where vectors
            point in all directions, 1 where all point the same way.
        self_similarity: mean cosine of two occurrences of one word, mean over words: 1 where a
            word's vector does not depend on its context.
        intra_sentence: mean cosine of a sentence's tokens with the mean vector of the sentence,
            mean over sentences.
        norm: mean length of a vector.
        largest_share: the share of the squared lengths that one of the dimensions has.
        not_finite: vectors with a number that is not finite.
    """

    anisotropy: float
    self_similarity: float
    intra_sentence: float
    norm: float
    largest_share: float
    not_finite: int

    @property
    def adjusted_self_similarity(self) -> float:
        """Beyond that of random words, as the paper compares layers."""
        return self.self_similarity - self.anisotropy

    @property
    def adjusted_intra_sentence(self) -> float:
        """Beyond that of random words, as the paper compares layers."""
        return self.intra_sentence - self.anisotropy


def measure_layers(
    elmo: ELMo,
    sentences: Sequence[Sentence],
    *,
    min_occurrences: int = 5,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[LayerGeometry]:
    """Measure each layer on sentences; memory does not grow with their number.

    Args:
        min_occurrences: the self-similarity is that of words that occur so often, a thousand of
            them at most.
        seed: of the drawing of words.
        progress: called with the number of sentences done.

    Raises:
        InputError: fewer than two sentences, or no word that occurs often enough.
    """
    counts = Counter(token for sentence in sentences for token in sentence if is_word(token))
    words = sorted(word for word, count in counts.items() if count >= max(2, min_occurrences))
    draw = random.Random(seed)
    if len(words) > _MAX_WORDS:
        words = draw.sample(words, _MAX_WORDS)
    if len(sentences) < 2 or not words:
        raise InputError(
            f"the text has {len(sentences)} sentences and {len(words)} words that occur "
            f"{max(2, min_occurrences)} times: two sentences and one such word are needed."
        )
    sums = _Sums(elmo.n_layers, elmo.dim, words)
    found = elmo.encode_iter(([*sentence] for sentence in sentences), "all")
    for number, (sentence, vectors) in enumerate(zip(sentences, found, strict=True)):
        sums.add(sentence, vectors, draw.randrange(len(sentence)))
        if progress is not None:
            progress(number + 1)
    return sums.result(min_occurrences)


class _Sums:
    """What is added up over sentences. Arrays are float64; L layers, D dimensions, W words."""

    def __init__(self, n_layers: int, dim: int, words: Sequence[str]) -> None:
        self._numbers = {word: number for number, word in enumerate(words)}
        self._random = np.zeros((n_layers, dim))
        self._words = np.zeros((len(words), n_layers, dim))
        self._n_words = np.zeros(len(words), np.int64)
        self._squares = np.zeros((n_layers, dim))
        self._norms = np.zeros(n_layers)
        self._intra = np.zeros(n_layers)
        self._not_finite = np.zeros(n_layers, np.int64)
        self._n_tokens = self._n_sentences = self._n_long = 0

    def add(self, sentence: Sentence, vectors: np.ndarray, drawn: int) -> None:
        """Add the vectors (L, tokens, D) of a sentence; `drawn` is one of its tokens at random."""
        finite = np.isfinite(vectors)
        self._not_finite += (~finite.all(axis=2)).sum(axis=1)
        vectors = np.where(finite, vectors, 0).astype(np.float64)
        norms = np.linalg.norm(vectors, axis=2, keepdims=True)
        units = vectors / np.maximum(norms, 1e-12)
        self._n_sentences += 1
        self._n_tokens += len(sentence)
        self._random += units[:, drawn]
        self._norms += norms.sum(axis=(1, 2))
        self._squares += np.square(vectors).sum(axis=1)
        if len(sentence) > 1:
            mean = vectors.mean(axis=1, keepdims=True)  # (L, 1, D)
            mean /= np.maximum(np.linalg.norm(mean, axis=2, keepdims=True), 1e-12)
            self._intra += (units * mean).sum(axis=2).mean(axis=1)
            self._n_long += 1
        for position, token in enumerate(sentence):
            number = self._numbers.get(token)
            if number is not None:
                self._words[number] += units[:, position]
                self._n_words[number] += 1

    def result(self, min_occurrences: int) -> list[LayerGeometry]:
        n = self._n_sentences
        seen = self._n_words >= max(2, min_occurrences)
        n_words = self._n_words[seen, None]
        words = _mean_cosine(self._words[seen], n_words).mean(axis=0)
        random_words = _mean_cosine(self._random, np.array(n))
        shares = self._squares.max(axis=1) / np.maximum(self._squares.sum(axis=1), 1e-12)
        return [
            LayerGeometry(
                float(random_words[layer]),
                float(words[layer]),
                float(self._intra[layer] / max(self._n_long, 1)),
                float(self._norms[layer] / self._n_tokens),
                float(shares[layer]),
                int(self._not_finite[layer]),
            )
            for layer in range(len(self._norms))
        ]


def _mean_cosine(sums: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The mean cosine of pairs of n unit vectors, from their sums (..., D): their squared length
    has each pair twice, and n ones.
    """
    return (np.square(sums).sum(axis=-1) - n) / (n * (n - 1))
