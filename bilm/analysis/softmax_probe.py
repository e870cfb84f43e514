"""The probe itself: a softmax on vectors that stay as they are, or on a mix of layers.

The objective is that of scikit-learn's `LogisticRegression` with C = 1: the mean cross-entropy plus
|W|^2 / (2 n). It is minimised by Adam on batches, as a whole is too slow on 200,000 tokens of 1,024
dimensions; vectors are taken from where they lie, a few batches at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.keras_backend import keras
from bilm.core.scalar_mix import ScalarMix

# Few tokens are seen more often: the weights of the mix need steps to get anywhere.
LEAST_STEPS = 1000
_BATCH = 256
_EPOCHS = 10
_LEARNING_RATE = 0.01
# Batches that go to TensorFlow at once, and rows that are read at once.
_STEPS_AT_ONCE = 8
_ROWS_AT_ONCE = 4096


class Mix(NamedTuple):
    """A mix that was learned.

    Attributes:
        weights: s_j of each layer; their sum is 1.
        gamma: the factor of the sum.
    """

    weights: list[float]
    gamma: float


class SoftmaxProbe:
    """A softmax on vectors, fitted anew for each set of labels; without a hidden layer.

    Each dimension is brought to mean 0 and deviation 1 over the rows that it is fitted on. Of
    several layers (rows, layers, dim) it learns the mix as well: softmax(W)_j over the layers, and
    gamma. A mix of one layer alone would be the probe of that layer.

    Args:
        shape: of a row: (dim,) or (layers, dim).
        n_labels: labels that it tells apart.
        least_steps: steps of fitting that are made even of few rows; None is LEAST_STEPS.
    """

    def __init__(
        self, shape: tuple[int, ...], n_labels: int, least_steps: int | None = None
    ) -> None:
        self._least_steps = least_steps
        self.mix = ScalarMix(shape[0]) if len(shape) == 2 else None
        self._dense = keras.layers.Dense(n_labels, kernel_initializer="zeros", dtype="float32")
        self._dense.build((None, shape[-1]))
        variables = [*self._dense.trainable_variables]
        if self.mix is not None:
            variables += self.mix.trainable_variables
        self._trained = variables
        self._optimizer = keras.optimizers.Adam(_LEARNING_RATE)
        self._optimizer.build(variables)
        kept = [*variables, *self._optimizer.variables]
        self._beginning = [(variable, variable.numpy()) for variable in kept]
        self._mean = tf.Variable(tf.zeros(shape), trainable=False)
        self._deviation = tf.Variable(tf.ones(shape), trainable=False)
        # Traced once, for any number of rows.
        rows = tf.TensorSpec((None, *shape), tf.float32)
        batches = tf.TensorSpec((None, None, *shape), tf.float32)
        numbers = tf.TensorSpec((None, None), tf.int32)
        penalty = tf.TensorSpec((), tf.float32)
        self._steps = tf.function(self._train, input_signature=(batches, numbers, penalty))
        self._answers = tf.function(self._answer, input_signature=(rows,))

    def fit(self, vectors: np.ndarray, rows: np.ndarray, labels: np.ndarray, seed: int) -> None:
        """Fit to rows of an array; what was fitted before is forgotten.

        Args:
            vectors: float32 (n, *shape).
            rows: int (m,): which of them.
            labels: int (m,): the number of the label of each of these rows, from 0.
            seed: of the order in which they are seen.
        """
        for variable, value in self._beginning:
            variable.assign(value)
        mean, deviation = _moments(vectors, rows)
        self._mean.assign(mean)
        self._deviation.assign(deviation)
        size = min(_BATCH, len(rows))
        total = n_steps(len(rows), self._least_steps)
        order = _order(len(rows), size * total, np.random.default_rng(seed))
        penalty = tf.constant(0.5 / len(rows), tf.float32)
        for step in range(0, total, _STEPS_AT_ONCE):
            chosen = order[step * size : (step + _STEPS_AT_ONCE) * size].reshape(-1, size)
            self._optimizer.learning_rate = _rate(step / total)
            self._steps(
                tf.constant(vectors[rows[chosen]]), tf.constant(labels[chosen], tf.int32), penalty
            )

    def predict(self, vectors: np.ndarray) -> np.ndarray:
        """The number of the likeliest label of each row of (n, *shape): int64 (n,)."""
        blocks = _blocks(vectors, np.arange(len(vectors)))
        return np.concatenate([self._answers(tf.constant(block)).numpy() for block in blocks])

    def learned_mix(self) -> Mix | None:
        """The weights of the layers; None of a probe of single vectors."""
        if self.mix is None or self.mix.W is None:
            return None
        weights = tf.nn.softmax(tf.convert_to_tensor(self.mix.W)).numpy()
        return Mix([float(weight) for weight in weights], float(self.mix.gamma.numpy()[0]))

    def _logits(self, rows: tf.Tensor) -> tf.Tensor:
        """(n, *shape) -> (n, labels)"""
        rows = (rows - self._mean) / self._deviation
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
                # Of what the vectors are multiplied with: a large gamma does not evade it.
                kernel = tf.convert_to_tensor(self._dense.kernel)
                if self.mix is not None:
                    kernel *= tf.convert_to_tensor(self.mix.gamma)
                loss = tf.reduce_mean(losses) + penalty * tf.reduce_sum(tf.square(kernel))
            values = [variable.value for variable in self._trained]
            self._optimizer.apply(tape.gradient(loss, values), self._trained)

    def _answer(self, rows: tf.Tensor) -> tf.Tensor:
        return tf.argmax(self._logits(rows), axis=-1)


def n_steps(n_rows: int, least_steps: int | None = None) -> int:
    """Steps in which a probe is fitted to so many rows: ten epochs, but no fewer than asked."""
    return max(LEAST_STEPS if least_steps is None else least_steps, _EPOCHS * n_rows // _BATCH)


def _rate(done: float) -> float:
    """The learning rate, which falls to zero along a cosine."""
    return float(_LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * done)))


def _order(n: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """One permutation of 0 .. n - 1 after the other, cut off at `length`."""
    return np.concatenate([rng.permutation(n) for _ in range(-(-length // n))])[:length]


def _blocks(vectors: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        yield vectors[rows[start : start + _ROWS_AT_ONCE]]


def _moments(vectors: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each dimension over rows; 1 where all are alike."""
    mean = sum(block.sum(axis=0, dtype=np.float64) for block in _blocks(vectors, rows)) / len(rows)
    squares = sum(np.square(block - mean).sum(axis=0) for block in _blocks(vectors, rows))
    deviation = np.sqrt(squares / len(rows))
    return mean.astype(np.float32), np.where(deviation > 1e-6, deviation, 1).astype(np.float32)
