"""Cross-entropy over the target and a sample of the vocabulary.

Jean et al. (2015), "On using very large target vocabulary for neural machine translation",
section 3, in the form of tf.nn.sampled_softmax_loss: log-uniform samples, logits corrected by the
logarithm of their expected count, accidental hits left out.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.layers.products import product

# Rows of logits that are worked on at a time: few enough to stay in a processor's cache.
_ROWS_AT_ONCE = 320


class Negatives(NamedTuple):
    """The sampled classes of one direction and step.

    Attributes:
        ids: int32 (n_samples,), distinct, in rising order.
        log_expected: float32 (n_samples,), logarithm of each one's expected count in the sample.
        n_tries: float32 scalar, draws that it took to find so many distinct ones.
    """

    ids: tf.Tensor
    log_expected: tf.Tensor
    n_tries: tf.Tensor


def log_uniform_log_expected(ids: tf.Tensor, n_tries: tf.Tensor, n_classes: int) -> tf.Tensor:
    """Logarithm of how often a class is expected in a log-uniform sample of distinct classes.

    P(k) = log((k + 2) / (k + 1)) / log(n_classes + 1), and in n tries a class turns up with
    probability 1 - (1 - P)^n.

    Returns:
        float32, shape of `ids`.
    """
    k = tf.cast(ids, tf.float32)
    p = tf.math.log1p(1 / (k + 1)) / math.log(n_classes + 1)
    return tf.math.log(-tf.math.expm1(n_tries * tf.math.log1p(-p)))


def is_member(ids: tf.Tensor, ordered: tf.Tensor) -> tf.Tensor:
    """Whether each of `ids` occurs in `ordered`, which rises; bool, shape of `ids`."""
    place = tf.searchsorted(ordered, ids)
    return tf.gather(ordered, tf.minimum(place, tf.shape(ordered)[0] - 1)) == ids


def sampled_cross_entropy(
    hidden: tf.Tensor,
    true: tuple[tf.Tensor, tf.Tensor],
    sampled: tuple[tf.Tensor, tf.Tensor],
    hit: tf.Tensor,
    precision: str = "float32",
) -> tf.Tensor:
    """log sum of exp(logit) over the target and the samples, less the target's logit.

    An accidental hit is a target that is itself among the samples. It counts once; since its two
    logits are the same number, leaving the target out of the sum of a row with a hit does what
    masking the hit would do, and no mask over all logits is needed.

    Args:
        hidden: (n, dim).
        true: W (n, dim) and corrected b (n,) of the targets.
        sampled: W (s, dim) and corrected b (s,) of the samples.
        hit: bool (n,).

    Returns:
        float32 (n,), nats.
    """
    sampled_W, sampled_b = sampled
    true_logit = tf.reduce_sum(hidden * true[0], axis=1) + true[1]
    counted = tf.where(hit, tf.constant(-math.inf), true_logit)
    sizes = _sizes(hidden.shape[0])
    parts = zip(tf.split(hidden, sizes), tf.split(counted, sizes), strict=True)
    log_sums = [_log_sum(rows, others, sampled_W, sampled_b, precision) for rows, others in parts]
    return tf.concat(log_sums, axis=0) - true_logit


def _sizes(n_rows: int | None) -> list[int] | int:
    """The rows in parts, the last one with what is left over; 1 is all of them in one."""
    n_parts = (n_rows or 0) // _ROWS_AT_ONCE
    if n_rows is None or n_parts < 2:
        return 1
    size = n_rows // n_parts
    return [size] * (n_parts - 1) + [n_rows - size * (n_parts - 1)]


def _log_sum(
    hidden: tf.Tensor, other: tf.Tensor, W: tf.Tensor, b: tf.Tensor, precision: str
) -> tf.Tensor:
    """log(exp(other) + sum over samples of exp(hidden . W^T + b)), float32 (n,).

    The exponentials are kept for the gradient, in the precision of the products, and are scaled
    by row on the narrow side of each product.
    """
    dtype = tf.as_dtype(precision)

    @tf.custom_gradient
    def log_sum(
        hidden: tf.Tensor, other: tf.Tensor, W: tf.Tensor, b: tf.Tensor
    ) -> tuple[tf.Tensor, Any]:
        logits = product(hidden, W, precision, transpose_b=True) + b
        highest = tf.stop_gradient(tf.maximum(tf.reduce_max(logits, axis=1), other))
        e = tf.exp(logits - highest[:, tf.newaxis])
        total = tf.reduce_sum(e, axis=1) + tf.exp(other - highest)
        e = tf.cast(e, dtype)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            scale = upstream / total
            d_hidden = product(e, W, precision) * scale[:, tf.newaxis]
            # A column of the scale beside the hidden vectors gives the gradient of b as well.
            scaled = tf.concat([hidden * scale[:, tf.newaxis], scale[:, tf.newaxis]], axis=1)
            d_both = product(e, scaled, precision, transpose_a=True)
            return d_hidden, tf.exp(other - highest) * scale, d_both[:, :-1], d_both[:, -1]

        return highest + tf.math.log(total), gradient

    return log_sum(hidden, other, W, b)
