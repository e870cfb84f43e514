"""Cross-entropy over the whole vocabulary, in memory that does not grow with it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bilm.layers.products import product

# Bytes of logits that exist at a time.
_BLOCK_BYTES = 64 * 2**20
# Far below any logit, and finite, so that no difference of infinities occurs.
NEVER = -1e30


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
    block = n_classes_at_once(hidden)

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


def n_classes_at_once(hidden: tf.Tensor) -> tf.Tensor:
    """How many classes make 64 MiB of logits."""
    return tf.maximum(_BLOCK_BYTES // 4 // tf.maximum(tf.shape(hidden)[0], 1), 128)


def add_to_log_sum(total: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """log of exp(total) and the sum of exp(logits) together: (n,) and (n, classes) give (n,)."""
    part = tf.reduce_logsumexp(logits, axis=1)
    high = tf.maximum(total, part)
    return high + tf.math.log(tf.exp(total - high) + tf.exp(part - high))


def _log_sum(
    logits_of: Any, hidden: tf.Tensor, n_classes: tf.Tensor, block: tf.Tensor
) -> tf.Tensor:
    """log sum of exp(logit) over the classes, block by block; float32 (n,)."""

    def add_block(start: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return start + block, add_to_log_sum(total, logits_of(start)[0])

    nothing = tf.fill(tf.shape(hidden)[:1], NEVER)
    return tf.while_loop(
        lambda start, _: start < n_classes,
        add_block,
        (tf.constant(0), nothing),
        parallel_iterations=1,
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )[1]


def _softmax_gradient(
    logits_of: Any,
    given: tuple[tf.Tensor, ...],
    n_classes: tf.Tensor,
    block: tf.Tensor,
    precision: str,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of scale * log_sum: for hidden, and for W and b as the blocks' parts in a row."""
    hidden, log_sum, scale = given
    n_blocks = -(-n_classes // block)
    of_W = tf.TensorArray(
        tf.float32, n_blocks, infer_shape=False, element_shape=[None, hidden.shape[1]]
    )
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
