"""Layers missing from Keras: a CRF, the best path of tags, masked pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

# Score of a step that is not allowed.
_FORBIDDEN = -1e4


def bilstm(size: int) -> keras.layers.Layer:
    """A bidirectional LSTM of `size` units in each direction: call it with vectors and mask=."""
    return keras.layers.Bidirectional(keras.layers.LSTM(size, return_sequences=True))


def allowed_steps(tags: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Scores that enforce IOB2, where I-X follows B-X or I-X.

    Returns:
        float32 (tags,) for the first tag and (tags, tags) for steps, from and to: 0 if allowed,
        otherwise very low.
    """
    start = np.zeros(len(tags), np.float32)
    steps = np.zeros((len(tags), len(tags)), np.float32)
    for k, tag in enumerate(tags):
        if tag.startswith("I-"):
            before = [other in (f"B-{tag[2:]}", tag) for other in tags]
            start[k] = _FORBIDDEN
            steps[:, k] = np.where(before, 0, _FORBIDDEN)
    return start, steps


def best_paths(
    scores: np.ndarray, lengths: Sequence[int], start: np.ndarray, steps: np.ndarray
) -> list[list[int]]:
    """The tags whose scores and steps have the highest sum (Viterbi 1967).

    Args:
        scores: float (batch, time, tags).
        lengths: tokens of each sentence.
        start: float (tags,), added to the scores of the first token.
        steps: float (tags, tags), the score of each step from tag to tag.

    Returns:
        for each sentence a tag for each token.
    """
    best = scores[:, 0] + start  # (batch, tags): the best path to each tag
    before = np.zeros(scores.shape, np.int32)
    for t in range(1, scores.shape[1]):
        sums = best[:, :, np.newaxis] + steps  # (batch, from, to)
        before[:, t] = sums.argmax(axis=1)
        inside = (t < np.asarray(lengths))[:, np.newaxis]
        best = np.where(inside, sums.max(axis=1) + scores[:, t], best)
    paths = []
    for row, length in enumerate(lengths):
        path = [int(best[row].argmax())]
        for t in range(length - 1, 0, -1):
            path.append(int(before[row, t, path[-1]]))
        paths.append(path[::-1])
    return paths


class CRF(keras.layers.Layer):
    """A linear-chain conditional random field (Lafferty et al. 2001): scores of tags, and a score
    for each step from tag to tag.

    The layer returns its input without a mask; `loss` is the loss of the model, and `decode` finds
    the best tags.

    Args:
        tags: names of the tags in IOB2; steps that IOB2 does not allow are excluded.

    Call arguments:
        scores: float32 (batch, time, tags).
    """

    def __init__(self, tags: Sequence[str], *, name: str = "crf", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.supports_masking = True
        self.tags = list(tags)
        self._allowed = allowed_steps(self.tags)
        self.start = self.add_weight(name="start", shape=(len(tags),), initializer="zeros")
        self.steps = self.add_weight(name="steps", shape=(len(tags),) * 2, initializer="zeros")
        self.built = True

    def call(self, scores: Any) -> Any:
        """The scores."""
        return scores + 0.0  # a new tensor, without a mask

    def compute_mask(self, scores: Any, previous_mask: Any = None) -> None:
        """None: no mask is needed, because `loss` ignores tags of -1."""

    def loss(self, tags: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        """The negative log-probability of tags: float32 (batch,).

        Args:
            tags: int (batch, time), -1 for padding.
            scores: float32 (batch, time, tags).
        """
        tags = tf.cast(tags, tf.int32)
        mask = tags >= 0
        start, steps = self._weights()
        chosen = tf.maximum(tags, 0)
        right = tf.gather(scores, chosen, batch_dims=2)  # (batch, time)
        moves = tf.gather_nd(steps, tf.stack([chosen[:, :-1], chosen[:, 1:]], axis=-1))
        path = tf.gather(start, chosen[:, 0]) + tf.reduce_sum(
            tf.where(mask, right, 0.0), axis=1
        ) + tf.reduce_sum(tf.where(mask[:, 1:], moves, 0.0), axis=1)  # fmt: skip

        def step(alpha: tf.Tensor, at: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            scores, inside = at
            # (batch, from, 1) + (from, to) -> (batch, to)
            summed = tf.reduce_logsumexp(alpha[:, :, tf.newaxis] + steps, axis=1) + scores
            return tf.where(inside[:, tf.newaxis], summed, alpha)

        # (batch, time, ...) -> (time, batch, ...)
        later = tf.transpose(scores, [1, 0, 2])[1:], tf.transpose(mask)[1:]
        alpha = tf.foldl(step, later, initializer=scores[:, 0] + start)
        return tf.reduce_logsumexp(alpha, axis=1) - path

    def decode(self, scores: np.ndarray, lengths: Sequence[int]) -> list[list[str]]:
        """The best tags of each sentence: see `best_paths`."""
        start, steps = (weights.numpy() for weights in self._weights())
        paths = best_paths(scores, lengths, start, steps)
        return [[self.tags[tag] for tag in path] for path in paths]

    def _weights(self) -> tuple[tf.Tensor, tf.Tensor]:
        start, steps = map(tf.convert_to_tensor, (self.start, self.steps))
        return start + self._allowed[0], steps + self._allowed[1]

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return super().get_config() | {"tags": self.tags}


def masked_softmax(scores: Any, mask: Any, axis: int = -1) -> Any:
    """The softmax over unmasked scores; `mask` has the axes of `scores`."""
    return ops.softmax(ops.where(mask, scores, _FORBIDDEN), axis=axis)


def masked_max(vectors: Any, mask: Any) -> Any:
    """The maximum over the tokens of a text: (batch, time, dim) -> (batch, dim)."""
    return ops.max(ops.where(mask[..., None], vectors, _FORBIDDEN), axis=1)


def masked_mean(vectors: Any, mask: Any) -> Any:
    """The mean over the tokens of a text: (batch, time, dim) -> (batch, dim)."""
    weights = ops.cast(mask, "float32")[..., None]
    return ops.sum(vectors * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)
