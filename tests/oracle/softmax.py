"""Cross-entropy over the vocabulary: full, and with samples from a log-uniform distribution.

Hidden vectors are (N, projection_dim), targets (N,) ids, W (V, projection_dim), b (V,); losses (N,)
are in nats. Gradients are of the mean loss.
"""

from __future__ import annotations

import numpy as np

Gradients = tuple[np.ndarray, np.ndarray, np.ndarray]  # of hidden, W, b


def _logsumexp(x: np.ndarray) -> np.ndarray:
    top = x.max(axis=-1)
    return top + np.log(np.exp(x - top[:, None]).sum(axis=-1))


def full_softmax(
    hidden: np.ndarray, targets: np.ndarray, W: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """-log p(target) at every position."""
    logits = hidden @ W.T + b
    return _logsumexp(logits) - logits[np.arange(len(targets)), targets]


def full_softmax_gradient(
    hidden: np.ndarray, targets: np.ndarray, W: np.ndarray, b: np.ndarray
) -> Gradients:
    logits = hidden @ W.T + b
    d = np.exp(logits - _logsumexp(logits)[:, None])
    d[np.arange(len(targets)), targets] -= 1
    d /= len(targets)
    return d @ W, d.T @ hidden, d.sum(axis=0)


def log_uniform_probability(ids: np.ndarray, n_tokens: int) -> np.ndarray:
    """P(k) = log((k + 2) / (k + 1)) / log(V + 1): close to word frequencies in descending order."""
    ids = np.asarray(ids, float)
    return np.log((ids + 2) / (ids + 1)) / np.log(n_tokens + 1)


def log_uniform_expected_count(ids: np.ndarray, n_tokens: int, n_tries: int) -> np.ndarray:
    """Expected count of a word among distinct samples, if these took `n_tries` draws."""
    return -np.expm1(n_tries * np.log1p(-log_uniform_probability(ids, n_tokens)))


def _sampled_logits(hidden, targets, W, b, samples, target_counts, sample_counts):
    """Logits (N, 1 + samples), the target first; samples equal to the target are excluded."""
    target = (hidden * W[targets]).sum(axis=-1) + b[targets] - np.log(target_counts)
    others = hidden @ W[samples].T + b[samples] - np.log(sample_counts)
    others = np.where(samples[None, :] == targets[:, None], -np.inf, others)
    return np.concatenate([target[:, None], others], axis=1)


def sampled_softmax(
    hidden: np.ndarray,
    targets: np.ndarray,
    W: np.ndarray,
    b: np.ndarray,
    samples: np.ndarray,
    target_counts: np.ndarray,
    sample_counts: np.ndarray,
) -> np.ndarray:
    """Losses over the target and the samples, each corrected by its log expected count.

    Args:
        samples: ids (S,), distinct, the same for every position.
        target_counts, sample_counts: expected counts (N,) and (S,).
    """
    logits = _sampled_logits(hidden, targets, W, b, samples, target_counts, sample_counts)
    return _logsumexp(logits) - logits[:, 0]


def sampled_softmax_gradient(
    hidden: np.ndarray,
    targets: np.ndarray,
    W: np.ndarray,
    b: np.ndarray,
    samples: np.ndarray,
    target_counts: np.ndarray,
    sample_counts: np.ndarray,
) -> Gradients:
    logits = _sampled_logits(hidden, targets, W, b, samples, target_counts, sample_counts)
    d = np.exp(logits - _logsumexp(logits)[:, None])
    d[:, 0] -= 1
    d /= len(targets)
    dW, db = np.zeros_like(W), np.zeros_like(b)
    np.add.at(dW, targets, d[:, :1] * hidden)
    np.add.at(dW, samples, d[:, 1:].T @ hidden)
    np.add.at(db, targets, d[:, 0])
    np.add.at(db, samples, d[:, 1:].sum(axis=0))
    return d[:, :1] * W[targets] + d[:, 1:] @ W[samples], dW, db
