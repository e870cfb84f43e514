"""The prediction of the next word and its cross-entropy: full, and sampled for training.

The model is p(word | hidden) = softmax(hidden . W^T + b), and one W and b serve both directions.
Losses are in nats, one for each prediction.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from bilm.layers.full_softmax import full_cross_entropy
from bilm.layers.initial_values import normal
from bilm.layers.products import check_precision
from bilm.layers.sampled_softmax import (
    Negatives,
    is_member,
    log_uniform_log_expected,
    sampled_cross_entropy,
)


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
        super().__init__(autocast=False, dtype="float32", **kwargs)
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
            hidden,
            tf.convert_to_tensor(self.W),
            tf.convert_to_tensor(self.b),
            targets,
            self.precision,
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
        # From the variables themselves: reading them whole would cost a copy of each a step.
        W = tf.gather(self.W.value, rows)
        b = tf.gather(self.b.value, rows)
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
