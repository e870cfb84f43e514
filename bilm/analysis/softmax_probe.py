"""The probe: a softmax on fixed vectors, or on a mix of layers.

The objective is scikit-learn's for `LogisticRegression` with C = 1: the mean cross-entropy plus
|W|^2 / (2 n). Adam minimises it on batches, because scikit-learn is too slow for 200,000 tokens of
1,024 dimensions, and does not learn the mix.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from bilm.core.keras_backend import keras
from bilm.core.scalar_mix import ScalarMix
from bilm.core.tracing import traced_once

_BATCH = 256
_EPOCHS = 10
_LEARNING_RATE = 0.01
# Batches passed to TensorFlow at once, and rows read at once.
_STEPS_AT_ONCE = 8
_ROWS_AT_ONCE = 4096


class SoftmaxProbe:
    """A softmax without a hidden layer; each `fit` starts from the initial weights.

    Each dimension is standardised over the training rows. A row has the shape (dim,), or (layers,
    dim) to learn the mix as well: weights softmax(W) over the layers, and gamma. Small training
    texts get more epochs, up to `min_steps`, because the mix needs many steps.
    """

    def __init__(self, shape: tuple[int, ...], n_labels: int, min_steps: int = 1000) -> None:
        self._min_steps = min_steps
        self.mix = ScalarMix(shape[0]) if len(shape) == 2 else None
        self._dense = keras.layers.Dense(n_labels, kernel_initializer="zeros", dtype="float32")
        self._dense.build((None, shape[-1]))
        layers = [self._dense, *filter(None, [self.mix])]
        self._trained = [variable for layer in layers for variable in layer.trainable_variables]
        self._optimizer = keras.optimizers.Adam(_LEARNING_RATE)
        self._optimizer.build(self._trained)
        variables = [*self._trained, *self._optimizer.variables]
        self._initial = [(variable, variable.numpy()) for variable in variables]
        self._moments = tf.Variable(tf.zeros((2, *shape)), trainable=False)
        # Traced once, for any number of rows.
        rows = tf.TensorSpec((None, *shape), tf.float32)
        batches = tf.TensorSpec((None, None, *shape), tf.float32)
        numbers = tf.TensorSpec((None, None), tf.int32)
        penalty = tf.TensorSpec((), tf.float32)
        self._steps = tf.function(self._train, input_signature=(batches, numbers, penalty))
        self._answers = traced_once(self._answer, (rows,))

    def fit(self, vectors: np.ndarray, rows: np.ndarray, labels: np.ndarray, seed: int) -> None:
        """Fit to `rows` (m,) of float32 vectors (n, *shape), with 0-based labels (m,); `seed` sets
        their order."""
        for variable, value in self._initial:
            variable.assign(value)
        self._moments.assign(_moments(vectors, rows))
        n, size = len(rows), min(_BATCH, len(rows))
        total = n_steps(n, self._min_steps)
        # Permutations of the rows, one after the other.
        rng = np.random.default_rng(seed)
        order = np.concatenate([rng.permutation(n) for _ in range(-(-size * total // n))])
        for step in range(0, total, _STEPS_AT_ONCE):
            stop = min(step + _STEPS_AT_ONCE, total)
            batches = order[step * size : stop * size].reshape(-1, size)
            # A cosine from the highest learning rate to zero.
            rate = _LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / total))
            self._optimizer.learning_rate = float(rate)
            self._steps(
                tf.constant(vectors[rows[batches]]),
                tf.constant(labels[batches], tf.int32),
                tf.constant(0.5 / n, tf.float32),
            )

    def predict(self, vectors: np.ndarray) -> np.ndarray:
        """The likeliest label of each row of (n, *shape): int64 (n,)."""
        blocks = _blocks(vectors, np.arange(len(vectors)))
        return np.concatenate([self._answers(tf.constant(block)).numpy() for block in blocks])

    def learned_mix(self) -> tuple[list[float], float] | None:
        """The weights of the layers, with sum 1, and gamma; None for a probe of single vectors."""
        if self.mix is None or self.mix.W is None:
            return None
        weights = tf.nn.softmax(tf.convert_to_tensor(self.mix.W)).numpy()
        return weights.tolist(), float(self.mix.gamma.numpy()[0])

    def _logits(self, rows: tf.Tensor) -> tf.Tensor:
        """(n, *shape) -> (n, labels)"""
        mean, deviation = tf.unstack(self._moments)
        rows = (rows - mean) / deviation
        if self.mix is not None:
            # (n, layers, dim) -> (n, layers, 1, dim), sentences of one token -> (n, dim)
            rows = self.mix(rows[:, :, tf.newaxis], tf.ones((tf.shape(rows)[0], 1), tf.bool))[:, 0]
        return self._dense(rows)

    def _train(self, batches: tf.Tensor, labels: tf.Tensor, penalty: tf.Tensor) -> None:
        """A step for each batch: (steps, batch, *shape) and (steps, batch)."""
        for step in tf.range(tf.shape(labels)[0]):
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=labels[step], logits=self._logits(batches[step])
                )
                # The penalty includes gamma, so that a large gamma cannot evade it.
                kernel = tf.convert_to_tensor(self._dense.kernel)
                if self.mix is not None:
                    kernel *= tf.convert_to_tensor(self.mix.gamma)
                loss = tf.reduce_mean(losses) + penalty * tf.reduce_sum(tf.square(kernel))
            values = [variable.value for variable in self._trained]
            self._optimizer.apply(tape.gradient(loss, values), self._trained)

    def _answer(self, rows: tf.Tensor) -> tf.Tensor:
        return tf.argmax(self._logits(rows), axis=-1)


def n_steps(n_rows: int, min_steps: int = 1000) -> int:
    """Optimiser steps for a number of rows: ten epochs, but at least `min_steps`."""
    return max(min_steps, _EPOCHS * n_rows // _BATCH)


def _blocks(vectors: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        yield vectors[rows[start : start + _ROWS_AT_ONCE]]


def _moments(vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Mean and standard deviation of each dimension over rows (2, *shape); 0 becomes 1."""
    sums = (block.sum(axis=0, dtype=np.float64) for block in _blocks(vectors, rows))
    mean = sum(sums, np.zeros(vectors.shape[1:])) / len(rows)
    squares = sum(np.square(block - mean).sum(axis=0) for block in _blocks(vectors, rows))
    deviation = np.sqrt(squares / len(rows))
    return np.stack([mean, np.where(deviation > 1e-6, deviation, 1)]).astype(np.float32)
