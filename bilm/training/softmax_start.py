"""Initial values of the softmax, from the words of the training text and their counts.

In a short run, the rows of rare words are updated only a few times. Rows therefore start as word
vectors from co-occurrence counts: a truncated singular value decomposition of positive pointwise
mutual information (Levy and Goldberg 2014, "Neural word embedding as implicit matrix
factorization"). Rare words start near the mean of similarly spelled words. The bias starts at log
unigram frequencies (Meister et al. 2023, "A natural bias for language generation models").
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.options import Options
from bilm.training.replicas import Replicas

logger = logging.getLogger(__name__)

# Tokens to count, approximately.
_MOST_TOKENS = 4_000_000
# Largest distance of a neighbour in tokens; and number of vocabulary words that can be one.
_WINDOW, _MOST_CONTEXTS = 3, 10_000
_ITERATIONS = 3  # power iterations of the decomposition
# Occurrences at which a word's co-occurrence vector has weight 1/2.
_HALF_WEIGHT = 100
# Weight of the mean vector of similarly spelled words, which is shorter than a word's vector.
_MEAN_WEIGHT = 2
# Longest shared ending, in characters. The mean for an ending includes the mean for the ending one
# character shorter, with the weight of this many frequent words.
_LONGEST_ENDING, _SHORTER_ENDING = 5, 10


def softmax_start(
    options: Options, data: Any, replicas: Replicas
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The initial values by `softmax_weights` and `softmax_bias`, the same on all workers: W
    float32 (n_tokens_vocab, projection_dim) and b float32 (n_tokens_vocab,); None keeps the values
    of a new model."""
    uses_rows, uses_bias = options.softmax_weights != "normal", options.softmax_bias != "zeros"
    if not (uses_rows or uses_bias):
        return None, None
    can_count = hasattr(data, "word_counts") and hasattr(data, "first_ids")
    counts = data.word_counts() if can_count else None
    if counts is None:
        logger.warning(
            "the data cannot count its words: softmax_weights and softmax_bias are ignored"
        )
        return None, None
    rows = bias = None
    if uses_rows:
        # Only the chief computes them, because rounding may differ between CPUs.
        dim = options.lstm.projection_dim
        rows = np.zeros((0, dim), np.float32)
        if replicas.worker.is_chief:
            rows = cooccurrence_rows(data.first_ids(_MOST_TOKENS), data.vocab.words, dim)
        rows = replicas.from_chief(rows)
    if uses_bias:
        counts = counts + 0.5  # for words missing from this text
        counts[data.vocab.bos] = counts[data.vocab.eos]  # the backward model predicts <S>
        bias = np.log(counts / counts.sum()).astype(np.float32)
    return rows, bias


def cooccurrence_rows(ids: np.ndarray, words: Sequence[str], dim: int) -> np.ndarray:
    """A row for every word, from co-occurrences and spelling.

    A word that occurs n times gets (n vector + 200 mean) / (n + 100): `vector` is its co-occurrence
    vector of length 1, `mean` the mean vector of similarly spelled words. The neighbours of a rare
    word are mostly chance, but predict it well in this text, so training would rely on them.

    Args:
        ids: int32 (n,), word ids of a text, -1 between sentences.
        words: the vocabulary.
        dim: size of a row.

    Returns:
        float32 (words, dim).
    """
    rows = _cooccurrence_vectors(ids, len(words), dim)
    occurrences = np.bincount(ids[ids >= 0], minlength=len(words))
    weights = occurrences / (occurrences + _HALF_WEIGHT)
    groups = [
        (group, np.bincount(group, weights)[group] - weights) for group in _spelling_groups(words)
    ]
    for column in rows.T:
        # Means over the other words of each group, from the largest groups to the smallest.
        mean = np.zeros(len(words))
        for group, others_weight in groups:
            others = np.bincount(group, weights * column)[group] - weights * column
            mean = (others + _SHORTER_ENDING * mean) / (others_weight + _SHORTER_ENDING)
        column[:] = weights * column + _MEAN_WEIGHT * (1 - weights) * mean
    return rows


def _spelling_groups(words: Sequence[str]) -> Iterator[np.ndarray]:
    """Nested groups as group numbers of the words, coarsest first: words with the same use of
    capitals and digits, then also the same last character, the same last two, and so on."""
    kinds = [
        (word[:1].isupper(), word[1:2].isupper(), any(map(str.isdigit, word))) for word in words
    ]
    for n in range(_LONGEST_ENDING + 1):
        numbers: dict[Any, int] = {}
        keys = ((kind, word[::-1][:n]) for kind, word in zip(kinds, words, strict=True))
        yield np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def _cooccurrence_vectors(ids: np.ndarray, n_words: int, dim: int) -> np.ndarray:
    """Word vectors of length 1 from the words at most three positions to either side.

    A context is one of the first 10,000 words of the vocabulary, on the left or on the right. The
    entry of a word and a context is max(0, log p(word, context) / (p(word) p(context)^0.75)), with
    neighbours at distance d counted 1 / d times. The vectors are the rows of U sqrt(S) of the
    singular value decomposition U S V^T: float32 (n_words, dim), zeros for words that do not occur.
    """
    n_contexts = min(n_words, _MOST_CONTEXTS)
    keys, weights = [], []
    for distance in range(1, _WINDOW + 1):
        pairs = ids[:-distance].astype(np.int64), ids[distance:].astype(np.int64)
        within = np.ones(len(pairs[0]), bool)
        for k in range(distance + 1):  # within one sentence
            within &= ids[k : len(ids) - distance + k] >= 0
        for word, context, side in ((pairs[1], pairs[0], 0), (pairs[0], pairs[1], 1)):
            mask = within & (context < n_contexts)
            pair = (word * 2 + side)[mask] * n_contexts + context[mask]
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
    positive = information > 0
    matrix = tf.SparseTensor(
        np.stack([words[positive], contexts[positive]], axis=1),
        information[positive].astype(np.float32),
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
