"""The likeliest words of a softmax over a vocabulary of any size, in bounded memory."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from bilm.layers.full_softmax import NEVER, add_to_log_sum, n_classes_at_once


class Likeliest(NamedTuple):
    """Words of n places.

    Attributes:
        ids: int32 (n, k), the likeliest word first; of equal ones the lower id.
        log_probabilities: float32 (n, k), nats.
        of_targets: float32 (n,), log-probabilities of given words.
        ranks: int32 (n,), how many words are likelier than the given one.
    """

    ids: tf.Tensor
    log_probabilities: tf.Tensor
    of_targets: tf.Tensor
    ranks: tf.Tensor


def likeliest_words(
    hidden: tf.Tensor, W: tf.Tensor, bias: tf.Tensor, targets: tf.Tensor, k: int
) -> Likeliest:
    """The `k` likeliest classes of softmax(hidden . W^T + bias), and where given classes stand.

    Classes are taken a block at a time, with the best ones so far.

    Args:
        hidden: float32 (n, dim).
        W: float32 (classes, dim).
        bias: float32 (classes,); NEVER for classes that are left out.
        targets: int32 (n,), the given classes.
        k: at most the number of classes.
    """
    n_classes, n = tf.shape(W)[0], tf.shape(hidden)[0]
    block = n_classes_at_once(hidden)
    given = tf.reduce_sum(hidden * tf.gather(W, targets), axis=1) + tf.gather(bias, targets)

    def add_block(
        start: tf.Tensor, log_sum: tf.Tensor, best: tf.Tensor, ids: tf.Tensor, ranks: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        part = slice(start, start + block)
        logits = tf.matmul(hidden, W[part], transpose_b=True) + bias[part]
        log_sum = add_to_log_sum(log_sum, logits)
        here = start + tf.range(tf.shape(logits)[1])
        # The given class itself is not counted, whatever rounding makes of its logit.
        above = (logits > given[:, tf.newaxis]) & (here != targets[:, tf.newaxis])
        ranks += tf.reduce_sum(tf.cast(above, tf.int32), axis=1)
        ids = tf.concat([ids, tf.broadcast_to(here, (n, tf.size(here)))], axis=1)
        best, places = tf.math.top_k(tf.concat([best, logits], axis=1), k)
        return start + block, log_sum, best, tf.gather(ids, places, batch_dims=1), ranks

    nothing = tf.fill((n,), NEVER)
    # Whatever is excluded stands above the places that no class has filled yet.
    unfilled = tf.fill((n, k), 2 * NEVER)
    _, log_sum, best, ids, ranks = tf.while_loop(
        lambda start, *_: start < n_classes,
        add_block,
        (tf.constant(0), nothing, unfilled, tf.zeros((n, k), tf.int32), tf.zeros_like(targets)),
        parallel_iterations=1,
        shape_invariants=tuple(map(tf.TensorShape, ([], [None], [None, k], [None, k], [None]))),
    )
    return Likeliest(ids, best - log_sum[:, tf.newaxis], given - log_sum, ranks)
