"""The likeliest words at many positions, in memory that does not grow with the vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from bilm.core.full_softmax import NEVER, LogitBlocks, add_to_log_sum, block_size


class Likeliest(NamedTuple):
    """The likeliest words at n positions."""

    ids: tf.Tensor  # int32 (n, k), the likeliest word first; ties by ascending id
    log_probabilities: tf.Tensor  # float32 (n, k), nats
    of_targets: tf.Tensor  # float32 (n,), log-probabilities of the targets
    ranks: tf.Tensor  # int32 (n,), number of words likelier than the target


def likeliest_words(
    hidden: tf.Tensor,
    W: tf.Tensor,
    bias: tf.Tensor,
    targets: tf.Tensor,
    k: int,
    *,
    block: int | None = None,
) -> Likeliest:
    """The `k` likeliest classes of softmax(hidden . W^T + bias), and the ranks of the targets.

    Args:
        hidden, W, bias, targets: as for `full_cross_entropy`; the bias is NEVER for excluded
            classes.
        k: at most the number of classes.
        block: classes per block; None: 64 MiB of logits.
    """
    size = block_size(hidden) if block is None else tf.constant(block)
    blocks, n = LogitBlocks(hidden, W, bias, size, "float32"), tf.shape(hidden)[0]
    # (n,), the logits of the targets
    given = tf.reduce_sum(hidden * tf.gather(W, targets), axis=1) + tf.gather(bias, targets)

    def add_block(
        start: tf.Tensor, log_sum: tf.Tensor, best: tf.Tensor, ids: tf.Tensor, ranks: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        logits = blocks.logits(start)  # (n, block)
        log_sum = add_to_log_sum(log_sum, logits)
        classes = start + tf.range(tf.shape(logits)[1])
        # The target itself is not counted, however its logit is rounded.
        above = (logits > given[:, tf.newaxis]) & (classes != targets[:, tf.newaxis])
        ranks += tf.reduce_sum(tf.cast(above, tf.int32), axis=1)
        # (n, k + block): the best classes so far and the block's
        ids = tf.concat([ids, tf.broadcast_to(classes, (n, tf.size(classes)))], axis=1)
        best, index = tf.math.top_k(tf.concat([best, logits], axis=1), k)
        ids = tf.gather(ids, index, batch_dims=1)  # (n, k)
        return start + size, log_sum, best, ids, ranks

    nothing = tf.fill((n,), NEVER)
    # Excluded classes still rank above empty slots.
    unfilled = tf.fill((n, k), 2 * NEVER)
    _, log_sum, best, ids, ranks = tf.while_loop(
        lambda start, *_: start < blocks.n_classes,
        add_block,
        (tf.constant(0), nothing, unfilled, tf.zeros((n, k), tf.int32), tf.zeros_like(targets)),
        parallel_iterations=1,
        shape_invariants=tuple(map(tf.TensorShape, ([], [None], [None, k], [None, k], [None]))),
    )
    return Likeliest(ids, best - log_sum[:, tf.newaxis], given - log_sum, ranks)
