"""The prediction of the next word and its cross-entropy: full, and sampled for training.

p(word | hidden) = softmax(hidden . W^T + b), with one W and b for both directions. Losses are in
nats, one per prediction.

The sampled cross-entropy is over the target and a sample of the vocabulary: Jean et al. (2015),
"On using very large target vocabulary for neural machine translation", section 3, computed like
tf.nn.sampled_softmax_loss: log-uniform samples, logits corrected by the logarithm of their
expected count, accidental hits removed.
"""

import functools
import math
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.core.full_softmax import full_cross_entropy, log_probabilities
from bilm.core.keras_backend import keras, matmul, normal

# Rows of logits computed at a time, so that they stay in the CPU cache.
_ROWS_AT_ONCE = 320


class Negatives(NamedTuple):
    """The sampled classes of one direction and step."""

    ids: Any  # int32 (n_samples,), distinct, ascending
    n_tries: Any  # int32 (), number of draws for n_samples distinct classes


class Softmax(keras.layers.Layer):
    """W (n_tokens_vocab, projection_dim) and b (n_tokens_vocab,) of the prediction.

    Args:
        tied: the embedding table of a word-level model to use as W; None creates W.
        rows_at_once: rows of logits that the sampled losses compute at a time.
    """

    def __init__(
        self,
        n_tokens: int,
        projection_dim: int,
        *,
        tied: Any = None,
        seed: int | None = None,
        precision: str = "float32",
        rows_at_once: int = _ROWS_AT_ONCE,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, dtype="float32", **kwargs)
        self.n_tokens = n_tokens
        self.precision = precision
        self.is_tied = tied is not None
        self._rows_at_once = rows_at_once
        if self.is_tied:
            self.W = tied
        else:
            self.W = self.add_weight(
                name="W",
                shape=(n_tokens, projection_dim),
                initializer=normal(math.sqrt(1 / projection_dim), seed, "softmax_W"),
            )
        self.b = self.add_weight(name="b", shape=(n_tokens,), initializer="zeros")
        self.built = True

    def full_losses(self, hidden: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """-log p(target | hidden) over the whole vocabulary, float32 (n,) in nats, from `hidden`
        float32 (n, projection_dim) and `targets` int32 (n,)."""
        W, b = tf.convert_to_tensor(self.W), tf.convert_to_tensor(self.b)
        return full_cross_entropy(hidden, W, b, targets, self.precision)

    def log_probabilities(
        self, hidden: tf.Tensor, index: tf.Tensor, targets: tf.Tensor
    ) -> tf.Tensor:
        """log p(target | hidden[index]), float32 (n,) in nats, without a gradient; see
        `bilm.core.full_softmax.log_probabilities`."""
        W, b = tf.convert_to_tensor(self.W), tf.convert_to_tensor(self.b)
        return log_probabilities(hidden, W, b, index, targets, self.precision)

    def sampled_losses(
        self,
        hidden: tuple[tf.Tensor, ...],
        targets: tuple[tf.Tensor, ...],
        negatives: tuple[Negatives, ...],
    ) -> tuple[tf.Tensor, ...]:
        """Sampled cross-entropy, per direction float32 (n,) in nats, as tf.nn.sampled_softmax_loss
        defines it.

        The rows of W for both directions are gathered once, so that the gradient of W is one sparse
        tensor without repeated rows.
        """
        needed = [*targets, *(sample.ids for sample in negatives)]
        ids, index = tf.unique(tf.concat(needed, axis=0))
        # From `value`: converting the complete variables would copy them every step.
        W = tf.gather(self.W.value, ids)  # (distinct, projection_dim)
        b = tf.gather(self.b.value, ids)  # (distinct,)
        parts = tf.split(index, [tf.shape(classes)[0] for classes in needed], num=len(needed))
        losses = []
        for d, sample in enumerate(negatives):
            true, drawn = parts[d], parts[len(targets) + d]  # (n,), (n_samples,): rows of W and b
            n_tries = tf.cast(sample.n_tries, tf.float32)
            true_correction, drawn_correction = (
                log_uniform_log_expected(classes, n_tries, self.n_tokens)
                for classes in (targets[d], sample.ids)
            )
            # (n,), the targets' logits; and W and b of the samples
            b_true = tf.gather(b, true) - true_correction
            true_logit = tf.reduce_sum(hidden[d] * tf.gather(W, true), axis=1) + b_true
            sampled = tf.gather(W, drawn), tf.gather(b, drawn) - drawn_correction
            hit = is_member(targets[d], sample.ids)
            losses.append(self._sampled_cross_entropy(hidden[d], true_logit, sampled, hit))
        return tuple(losses)

    def _sampled_cross_entropy(
        self,
        hidden: tf.Tensor,
        true_logit: tf.Tensor,
        sampled: tuple[tf.Tensor, tf.Tensor],
        hit: tf.Tensor,
    ) -> tf.Tensor:
        """log sum of exp(logit) over the target and the samples, minus the target's logit: (n,).

        An accidental hit is a target that is also among the samples; it counts once. Both of its
        logits are equal, so the target is left out of the sum, which needs no mask over all logits.
        """
        counted = tf.where(hit, tf.constant(-math.inf), true_logit)
        n_rows = hidden.shape[0] or 0
        n_parts = max(1, n_rows // self._rows_at_once)
        # The last part takes the remainder.
        sizes = [n_rows // n_parts] * (n_parts - 1) + [-1] if n_parts > 1 else 1
        parts = zip(tf.split(hidden, sizes), tf.split(counted, sizes), strict=True)
        log_sums = [_log_sum(rows, other, *sampled, self.precision) for rows, other in parts]
        return tf.concat(log_sums, axis=0) - true_logit


def log_uniform_log_expected(ids: tf.Tensor, n_tries: tf.Tensor, n_classes: int) -> tf.Tensor:
    """Log of a class's expected count in a log-uniform sample of distinct classes: float32, shape
    of `ids`. The count is 1 - (1 - P)^n in n tries, P(k) = log((k + 2) / (k + 1)) /
    log(n_classes + 1)."""
    k = tf.cast(ids, tf.float32)
    p = tf.math.log1p(1 / (k + 1)) / math.log(n_classes + 1)
    return tf.math.log(-tf.math.expm1(n_tries * tf.math.log1p(-p)))


def is_member(ids: tf.Tensor, ordered: tf.Tensor) -> tf.Tensor:
    """Whether each of `ids` occurs in `ordered`, which is ascending: bool, shape of `ids`."""
    index = tf.searchsorted(ordered, ids)
    return tf.gather(ordered, tf.minimum(index, tf.shape(ordered)[0] - 1)) == ids


def _log_sum(
    hidden: tf.Tensor, other: tf.Tensor, W: tf.Tensor, b: tf.Tensor, precision: str
) -> tf.Tensor:
    """log(exp(other) + sum over samples of exp(hidden . W^T + b)): float32 (n,), as `other` is.

    The exponentials are kept for the gradient, in the precision of the matmuls, and are scaled
    by row on the narrow side of each matmul.
    """

    @tf.custom_gradient
    def log_sum(
        hidden: tf.Tensor, other: tf.Tensor, W: tf.Tensor, b: tf.Tensor
    ) -> tuple[tf.Tensor, Any]:
        products = tf.matmul(tf.cast(W, precision), tf.cast(hidden, precision), transpose_b=True)
        e, total, highest = _compiled_exponentials()(products, other, b)  # e: (s, n)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            scale = upstream / total
            d_hidden = matmul(e, W, precision, transpose_a=True) * scale[:, tf.newaxis]
            # A column of the scale next to the hidden vectors gives the gradient of b as well:
            # (s, n) (n, dim + 1) -> (s, dim + 1)
            scaled = tf.concat([hidden * scale[:, tf.newaxis], scale[:, tf.newaxis]], axis=1)
            d_both = matmul(e, scaled, precision)
            return d_hidden, tf.exp(other - highest) * scale, d_both[:, :-1], d_both[:, -1]

        return highest + tf.math.log(total), gradient

    return log_sum(hidden, other, W, b)


@functools.cache  # so that it is compiled once per process
def _compiled_exponentials() -> Any:
    return tf.function(_exponentials, jit_compile=True, autograph=False)


def _exponentials(
    products: tf.Tensor, other: tf.Tensor, b: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """exp(logit - highest) (s, n), their sum including `other` (n,), and the highest logit (n,),
    from the products (s, n) of the samples with the hidden vectors."""
    logits = tf.cast(products, tf.float32) + b[:, tf.newaxis]
    highest = tf.maximum(tf.reduce_max(logits, axis=0), other)
    e = tf.exp(logits - highest)
    total = tf.reduce_sum(e, axis=0) + tf.exp(other - highest)  # (n,)
    return tf.cast(e, products.dtype), total, highest
