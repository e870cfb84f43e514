"""Initial values of the softmax, from counts of the training text.

In a short run, the rows of rare words are updated a few times only. They therefore start as word
vectors of co-occurrence counts: a truncated singular value decomposition of positive pointwise
mutual information (Levy and Goldberg 2014, "Neural word embedding as implicit matrix
factorization"). The bias starts at log unigram frequencies (Meister et al. 2023, "A natural bias
for language generation models").
"""

from __future__ import annotations

import logging
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
# Occurrences of a word whose vector has half the length of a frequent word's.
_HALF_LENGTH = 100


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
        n_words, dim = len(counts), options.lstm.projection_dim
        rows = np.zeros((0, dim), np.float32)
        if replicas.worker.is_chief:
            rows = cooccurrence_rows(data.first_ids(_MOST_TOKENS), n_words, dim)
        rows = replicas.from_chief(rows)
    if uses_bias:
        counts = counts + 0.5  # a word may be missing from this text
        counts[data.vocab.bos] = counts[data.vocab.eos]  # the backward model predicts <S>
        bias = np.log(counts / counts.sum()).astype(np.float32)
    return SoftmaxStart(rows, bias)


def cooccurrence_rows(ids: np.ndarray, n_words: int, dim: int) -> np.ndarray:
    """Word vectors from the words at most three positions to either side.

    The entry of a word and a context, one of the first 10,000 words of the vocabulary on the left
    or on the right, is max(0, log p(word, context) / (p(word) p(context)^0.75)), with neighbours
    at distance d counted 1 / d times. The vectors are the rows of U sqrt(S) of its singular value
    decomposition U S V^T. A word that occurs n times has a vector of length n / (n + 100): the
    neighbours of a rare word are mostly chance, but they predict the word well in this text, so a
    model that is trained on it would rely on them.

    Args:
        ids: int32 (n,), a text, -1 between sentences.
        n_words: size of the vocabulary.
        dim: size of a vector.

    Returns:
        float32 (n_words, dim); zeros for words that do not occur.
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
            found = (word * 2 + side)[used] * n_contexts + context[used]
            found, counts = np.unique(found, return_counts=True)
            keys.append(found)
            weights.append(counts / distance)
    found, index = np.unique(np.concatenate(keys), return_inverse=True)
    counts = np.bincount(index, np.concatenate(weights), len(found))
    words, contexts = np.divmod(found, 2 * n_contexts)
    of_word = np.bincount(words, counts, n_words)
    of_context = np.bincount(contexts, counts, 2 * n_contexts) ** 0.75
    of_context /= of_context.sum()
    information = np.log(counts / of_word[words] / of_context[contexts])
    kept = information > 0
    matrix = tf.SparseTensor(
        np.stack([words[kept], contexts[kept]], axis=1),
        information[kept].astype(np.float32),
        (n_words, 2 * n_contexts),
    )
    rows = _scaled_left_vectors(matrix, dim)
    occurrences = np.bincount(ids[ids >= 0], minlength=n_words)
    lengths = occurrences / (occurrences + _HALF_LENGTH)
    scale = lengths / np.maximum(np.linalg.norm(rows, axis=1), 1e-6)
    return rows * scale[:, np.newaxis].astype(np.float32)


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
