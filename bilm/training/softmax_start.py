"""Initial values of the softmax, from the words of the training text and their counts.

In a short run, the rows of rare words are updated a few times only. They therefore start as word
vectors of co-occurrence counts: a truncated singular value decomposition of positive pointwise
mutual information (Levy and Goldberg 2014, "Neural word embedding as implicit matrix
factorization"). A word too rare for a vector of its own starts like the words that are spelled
like it. The bias starts at log unigram frequencies (Meister et al. 2023, "A natural bias for
language generation models").
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.options import Options
from bilm.training.replicas import Replicas

logger = logging.getLogger(__name__)

# The counts are taken from about this many tokens.
_MOST_TOKENS = 4_000_000
# Most distant neighbours, in tokens; and vocabulary words that count as a neighbour.
_WINDOW, _MOST_CONTEXTS = 3, 10_000
_ITERATIONS = 3  # power iterations of the decomposition
# Occurrences of a word whose own vector has half of its full weight.
_HALF_OWN = 100
# Weight of the mean vector of words spelled alike, which is shorter than a word's vector.
_ALIKE = 2
# Longest ending that words can share, in characters. In the mean vector of the words with an
# ending, the mean for the ending one character shorter counts like this many frequent words.
_LONGEST_ENDING, _SHORTER_ENDING = 5, 10


class SoftmaxStart(NamedTuple):
    """Initial values: W float32 (n_tokens_vocab, projection_dim) and b float32 (n_tokens_vocab,);
    None keeps the values of a new model."""

    W: np.ndarray | None = None
    b: np.ndarray | None = None


def softmax_start(options: Options, data: Any, replicas: Replicas) -> SoftmaxStart:
    """The initial values by `softmax_weights` and `softmax_bias`, the same on all workers."""
    uses_rows, uses_bias = options.softmax_weights != "normal", options.softmax_bias != "zeros"
    if not (uses_rows or uses_bias):
        return SoftmaxStart()
    can_count = hasattr(data, "word_counts") and hasattr(data, "first_ids")
    counts = data.word_counts() if can_count else None
    if counts is None:
        logger.warning("the data cannot count its words: the softmax starts without their counts")
        return SoftmaxStart()
    rows = bias = None
    if uses_rows:
        # Only one worker computes them: the rounding of two processors may differ.
        dim = options.lstm.projection_dim
        rows = np.zeros((0, dim), np.float32)
        if replicas.worker.is_chief:
            rows = cooccurrence_rows(data.first_ids(_MOST_TOKENS), data.vocab.words, dim)
        rows = replicas.from_chief(rows)
    if uses_bias:
        counts = counts + 0.5  # a word may be missing from this text
        counts[data.vocab.bos] = counts[data.vocab.eos]  # the backward model predicts <S>
        bias = np.log(counts / counts.sum()).astype(np.float32)
    return SoftmaxStart(rows, bias)


def cooccurrence_rows(ids: np.ndarray, words: Sequence[str], dim: int) -> np.ndarray:
    """A row for every word, from co-occurrences and spelling.

    A word that occurs n times gets (n own + 200 alike) / (n + 100): `own` is its vector of length
    1, `alike` the mean vector of words that are spelled alike. The neighbours of a rare word are
    mostly chance, but they predict the word well in this text, so a model that is trained on it
    would rely on them.

    Args:
        ids: int32 (n,), a text, -1 between sentences.
        words: the vocabulary.
        dim: size of a row.

    Returns:
        float32 (words, dim).
    """
    rows = _cooccurrence_vectors(ids, len(words), dim)
    occurrences = np.bincount(ids[ids >= 0], minlength=len(words))
    own = occurrences / (occurrences + _HALF_OWN)
    groups = [(group, np.bincount(group, own)[group] - own) for group in _spelled_alike(words)]
    for column in rows.T:
        # The mean of the other words of each group, from the largest groups to the smallest.
        alike = np.zeros(len(words))
        for group, weight in groups:
            others = np.bincount(group, own * column)[group] - own * column
            alike = (others + _SHORTER_ENDING * alike) / (weight + _SHORTER_ENDING)
        column[:] = own * column + _ALIKE * (1 - own) * alike
    return rows


def _spelled_alike(words: Sequence[str]) -> Iterator[np.ndarray]:
    """Nested groups, as a group number for every word: words with the same capitals and digits;
    within these, words with the same last character, the same last two characters, and so on."""
    kinds = [
        (word[:1].isupper(), word[1:2].isupper(), any(map(str.isdigit, word))) for word in words
    ]
    for n in range(_LONGEST_ENDING + 1):
        numbers: dict[Any, int] = {}
        keys = ((kind, word[::-1][:n]) for kind, word in zip(kinds, words, strict=True))
        yield np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def _cooccurrence_vectors(ids: np.ndarray, n_words: int, dim: int) -> np.ndarray:
    """Word vectors of length 1 from the words at most three positions to either side.

    The entry of a word and a context, one of the first 10,000 words of the vocabulary on the left
    or on the right, is max(0, log p(word, context) / (p(word) p(context)^0.75)), with neighbours
    at distance d counted 1 / d times. The vectors are the rows of U sqrt(S) of its singular value
    decomposition U S V^T: float32 (n_words, dim), zeros for words that do not occur.
    """
    n_contexts = min(n_words, _MOST_CONTEXTS)
    keys, weights = [], []
    for distance in range(1, _WINDOW + 1):
        pairs = ids[:-distance].astype(np.int64), ids[distance:].astype(np.int64)
        within = np.ones(len(pairs[0]), bool)
        for k in range(distance + 1):  # no sentence ends between the two
            within &= ids[k : len(ids) - distance + k] >= 0
        for word, context, side in ((pairs[1], pairs[0], 0), (pairs[0], pairs[1], 1)):
            used = within & (context < n_contexts)
            pair = (word * 2 + side)[used] * n_contexts + context[used]
            pair, counts = np.unique(pair, return_counts=True)
            keys.append(pair)
            weights.append(counts / distance)
    key, index = np.unique(np.concatenate(keys), return_inverse=True)
    counts = np.bincount(index, np.concatenate(weights), len(key))
    words, contexts = np.divmod(key, 2 * n_contexts)
    word_totals = np.bincount(words, counts, n_words)
    context_totals = np.bincount(contexts, counts, 2 * n_contexts) ** 0.75
    context_totals /= context_totals.sum()
    information = np.log(counts / word_totals[words] / context_totals[contexts])
    kept = information > 0
    matrix = tf.SparseTensor(
        np.stack([words[kept], contexts[kept]], axis=1),
        information[kept].astype(np.float32),
        (n_words, 2 * n_contexts),
    )
    vectors = _scaled_left_vectors(matrix, dim)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)


def _scaled_left_vectors(matrix: tf.SparseTensor, dim: int) -> np.ndarray:
    """U sqrt(S) of the `dim` largest singular values, float32 (rows, dim), approximately: Halko et
    al. 2011, "Finding structure with randomness", algorithm 4.4."""
    n_rows, n_columns = matrix.shape
    n = min(dim + 16, n_rows, n_columns)
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((n_columns, n)).astype(np.float32)
    for _ in range(_ITERATIONS):
        images, _ = tf.linalg.qr(tf.sparse.sparse_dense_matmul(matrix, basis))  # (rows, n)
        products = tf.sparse.sparse_dense_matmul(matrix, images, adjoint_a=True)
        basis, _ = tf.linalg.qr(products)  # (columns, n)
    images = tf.sparse.sparse_dense_matmul(matrix, basis).numpy()
    # images = U S V^T, and images^T images = V S^2 V^T; eigenvalues ascend
    squares, right = np.linalg.eigh(images.T @ images)
    squares, right = squares[::-1][:dim], right[:, ::-1][:, :dim]
    rows = np.zeros((n_rows, dim), np.float32)
    # U sqrt(S) = images V / sqrt(S)
    rows[:, : len(squares)] = images @ (right / np.maximum(squares, 1e-12) ** 0.25)
    return rows
