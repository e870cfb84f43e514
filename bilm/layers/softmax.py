"""The prediction of the next word and its cross-entropy: full, and sampled for training.

The model is p(word | hidden) = softmax(hidden . W^T + b), and one W and b serve both directions.
Losses are in nats, one for each prediction. The sampled form is that of Jean et al. (2015), "On
using very large target vocabulary for neural machine translation", section 3.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bilm.layers.initial_values import normal
from bilm.layers.products import check_precision, product

# Bytes of logits that exist at a time in the full softmax.
_BLOCK_BYTES = 64 * 2**20


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


class Softmax(keras.layers.Layer):
    """W (n_tokens_vocab, projection_dim) and b (n_tokens_vocab,) of the prediction.

    Args:
        tied: the embedding table of a word-input model to use as W; None makes a W of its own.
    """

    def __init__(
        self,
        n_tokens: int,
        projection_dim: int,
        *,
        tied: Any = None,
        seed: int | None = None,
        precision: str = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.n_tokens = n_tokens
        self.precision = check_precision(precision)
        self.is_tied = tied is not None
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
        """-log p(target | hidden) over the whole vocabulary.

        Args:
            hidden: float32 (n, projection_dim).
            targets: int32 (n,).

        Returns:
            float32 (n,), nats.
        """
        return full_cross_entropy(
            hidden, tf.convert_to_tensor(self.W), tf.convert_to_tensor(self.b), targets, self.precision
        )

    def sampled_losses(
        self,
        hidden: tuple[tf.Tensor, ...],
        targets: tuple[tf.Tensor, ...],
        negatives: tuple[Negatives, ...],
    ) -> tuple[tf.Tensor, ...]:
        """Sampled cross-entropy of each direction, as tf.nn.sampled_softmax_loss defines it.

        The rows of W that any direction needs are gathered once, so that the gradient of W is
        one sparse tensor without repeated rows.

        Args:
            hidden: of each direction float32 (n, projection_dim).
            targets: of each direction int32 (n,).
            negatives: of each direction.

        Returns:
            of each direction float32 (n,), nats.
        """
        needed = [*targets, *(sample.ids for sample in negatives)]
        rows, places = tf.unique(tf.concat(needed, axis=0))
        W = tf.gather(tf.convert_to_tensor(self.W), rows)
        b = tf.gather(tf.convert_to_tensor(self.b), rows)
        sizes = [tf.shape(ids)[0] for ids in needed]
        parts = tf.split(places, sizes, num=len(needed))
        losses = []
        for d, sample in enumerate(negatives):
            true, drawn = parts[d], parts[len(targets) + d]
            true_b = tf.gather(b, true) - log_uniform_log_expected(
                targets[d], sample.n_tries, self.n_tokens
            )
            sampled_b = tf.gather(b, drawn) - sample.log_expected
            losses.append(
                sampled_cross_entropy(
                    hidden[d],
                    (tf.gather(W, true), true_b),
                    (tf.gather(W, drawn), sampled_b),
                    is_member(targets[d], sample.ids),
                    self.precision,
                )
            )
        return tuple(losses)


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
    true_W, true_b = true
    sampled_W, sampled_b = sampled
    true_logit = tf.reduce_sum(hidden * true_W, axis=1) + true_b
    logits = product(hidden, sampled_W, precision, transpose_b=True) + sampled_b
    counted = tf.where(hit, tf.constant(-math.inf), true_logit)
    return tf.reduce_logsumexp(tf.concat([logits, counted[:, tf.newaxis]], 1), axis=1) - true_logit


def full_cross_entropy(
    hidden: tf.Tensor, W: tf.Tensor, b: tf.Tensor, targets: tf.Tensor, precision: str = "float32"
) -> tf.Tensor:
    """log sum of exp(logit) over all classes, less the target's logit, in bounded memory.

    Classes are taken a block at a time, forward and backward, with a running maximum and sum, so
    that 64 MiB of logits exist at once however large the vocabulary is.

    Args:
        hidden: (n, dim). W: (classes, dim). b: (classes,). targets: integers (n,).

    Returns:
        float32 (n,), nats.
    """
    n_classes = tf.shape(W)[0]
    block = tf.maximum(_BLOCK_BYTES // 4 // tf.maximum(tf.shape(hidden)[0], 1), 128)

    def logits_of(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        part = W[start : start + block]
        return product(hidden, part, precision, transpose_b=True) + b[start : start + block], part

    @tf.custom_gradient
    def losses_of(hidden: tf.Tensor, W: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, Any]:
        log_sum = _log_sum(logits_of, hidden, n_classes, block)
        true_W = tf.gather(W, targets)
        true_logit = tf.reduce_sum(hidden * true_W, axis=1) + tf.gather(b, targets)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            scale = upstream[:, tf.newaxis]
            d_hidden, d_W, d_b = _softmax_gradient(
                logits_of, (hidden, log_sum, scale), n_classes, block, precision
            )
            d_hidden -= scale * true_W
            index = targets[:, tf.newaxis]
            d_W = tf.tensor_scatter_nd_sub(d_W, index, scale * hidden)
            return d_hidden, d_W, tf.tensor_scatter_nd_sub(d_b, index, upstream)

        return log_sum - true_logit, gradient

    return losses_of(hidden, W, b)


def _log_sum(logits_of: Any, hidden: tf.Tensor, n_classes: tf.Tensor, block: tf.Tensor) -> tf.Tensor:
    """log sum of exp(logit) over the classes, block by block; float32 (n,)."""

    def add_block(start: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logits, _ = logits_of(start)
        part = tf.reduce_logsumexp(logits, axis=1)
        high = tf.maximum(total, part)
        return start + block, high + tf.math.log(tf.exp(total - high) + tf.exp(part - high))

    # Far below any logit, and finite, so that no difference of infinities occurs.
    nothing = tf.fill(tf.shape(hidden)[:1], -1e30)
    return tf.while_loop(
        lambda start, _: start < n_classes,
        add_block,
        (tf.constant(0), nothing),
        parallel_iterations=1,
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )[1]


def _softmax_gradient(
    logits_of: Any, given: tuple[tf.Tensor, ...], n_classes: tf.Tensor, block: tf.Tensor, precision: str
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of scale * log_sum: for hidden, and for W and b as the blocks' parts in a row."""
    hidden, log_sum, scale = given
    n_blocks = -(-n_classes // block)
    of_W = tf.TensorArray(tf.float32, n_blocks, infer_shape=False, element_shape=[None, hidden.shape[1]])
    of_b = tf.TensorArray(tf.float32, n_blocks, infer_shape=False, element_shape=[None])

    def add_block(i: tf.Tensor, d_hidden: tf.Tensor, of_W: Any, of_b: Any) -> tuple[Any, ...]:
        logits, part = logits_of(i * block)
        p = tf.exp(logits - log_sum[:, tf.newaxis]) * scale
        d_hidden += product(p, part, precision)
        of_W = of_W.write(i, product(p, hidden, precision, transpose_a=True))
        return i + 1, d_hidden, of_W, of_b.write(i, tf.reduce_sum(p, axis=0))

    _, d_hidden, of_W, of_b = tf.while_loop(
        lambda i, *_: i < n_blocks,
        add_block,
        (tf.constant(0), tf.zeros_like(hidden), of_W, of_b),
        parallel_iterations=1,
    )
    return d_hidden, of_W.concat(), of_b.concat()
