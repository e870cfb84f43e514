"""The geometry of each layer's vectors: Ethayarajh (2019), "How contextual are contextualized word
representations?", section 3.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.analysis.occurrences import Sentence, is_word, unit
from bilm.core.errors import InputError
from bilm.data.sentences import read_stream
from bilm.progress import ShowStage, counted, quiet

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo

_MAX_WORDS = 1000


class LayerGeometry(NamedTuple):
    """Measures of a layer, with cosines of vectors that are not centred.

    Anisotropy is 0 for uniformly distributed directions, 1 if all vectors have the same direction.
    Self-similarity is 1 if a word's vector does not depend on its context.
    """

    anisotropy: float  # mean cosine of random words of different sentences
    self_similarity: float  # mean cosine of two occurrences of a word, mean over words
    intra_sentence: float  # mean cosine of a token and its sentence's mean, mean over sentences
    norm: float  # mean length of a vector
    largest_share: float  # largest proportion of the squared lengths in one dimension

    @property
    def adjusted_self_similarity(self) -> float:
        """Self-similarity minus anisotropy, the paper's measure for comparing layers."""
        return self.self_similarity - self.anisotropy

    @property
    def adjusted_intra_sentence(self) -> float:
        """Intra-sentence similarity minus anisotropy, the paper's measure for comparing layers."""
        return self.intra_sentence - self.anisotropy


def measure_layers(
    elmo: ELMo,
    sentences: Iterable[str | Sentence],
    *,
    min_occurrences: int = 5,
    seed: int = 0,
    progress: ShowStage = quiet,
) -> list[LayerGeometry]:
    """Measure each layer on at least two sentences: lists of tokens, or text that is split on white
    space. Empty sentences are skipped.

    Self-similarity is over at most 1,000 words with `min_occurrences`; `progress` is called with
    a `Stage` of sentences. Memory does not depend on the number of sentences.

    Raises:
        InputError: there are fewer than two sentences, or no word occurs often enough.
    """
    sentences = [tokens for _, tokens in read_stream(sentences, with_ids=False) if tokens]
    counts = Counter(token for sentence in sentences for token in sentence if is_word(token))
    words = sorted(word for word, count in counts.items() if count >= max(2, min_occurrences))
    draw = random.Random(seed)
    if len(words) > _MAX_WORDS:
        words = draw.sample(words, _MAX_WORDS)
    if len(sentences) < 2 or not words:
        raise InputError(
            f"the text must have two sentences and a word that occurs {max(2, min_occurrences)} "
            f"times, got {len(sentences)} sentences and {len(words)} such words."
        )
    numbers = {word: number for number, word in enumerate(words)}
    # Sums over sentences: (layers, dim) for each word and for random tokens; (layers,) otherwise.
    by_word = np.zeros((len(words), elmo.n_layers, elmo.dim))
    random_units, squares = np.zeros((2, elmo.n_layers, elmo.dim))
    norms, intra = np.zeros((2, elmo.n_layers))
    encoded = elmo.encode_iter(sentences, "all")
    pairs = zip(sentences, encoded, strict=True)
    total = len(sentences)
    for sentence, vectors in counted(pairs, progress, "measuring layers", total, "sentences"):
        vectors = vectors.astype(np.float64)  # (layers, tokens, dim)
        units = unit(vectors)
        random_units += units[:, draw.randrange(len(sentence))]
        squares += np.square(vectors).sum(axis=1)
        norms += np.linalg.norm(vectors, axis=2).sum(axis=1)
        if len(sentence) > 1:
            mean = unit(vectors.mean(axis=1, keepdims=True))
            intra += (units * mean).sum(axis=2).mean(axis=1)
        for position, token in enumerate(sentence):
            if token in numbers:
                by_word[numbers[token]] += units[:, position]
    word_counts = np.array([counts[word] for word in words])[:, np.newaxis]
    measures = np.stack([
        _mean_cosine(random_units, np.array(len(sentences))),
        _mean_cosine(by_word, word_counts).mean(axis=0),
        intra / max(sum(len(sentence) > 1 for sentence in sentences), 1),
        norms / sum(map(len, sentences)),
        squares.max(axis=1) / np.maximum(squares.sum(axis=1), 1e-12),
    ])  # fmt: skip
    return [LayerGeometry._make(layer) for layer in measures.T.tolist()]


def _mean_cosine(sums: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Mean cosine of pairs among n unit vectors, given their sums (..., dim)."""
    # The squared length of a sum contains each pair twice, and n times 1.
    return (np.square(sums).sum(axis=-1) - n) / (n * (n - 1))
