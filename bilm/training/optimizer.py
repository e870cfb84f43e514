"""Adagrad, Adam and Muon with one bound on the gradient's global norm.

The original trained all weights with Adagrad (Duchi et al. 2011). Repeated rows of a sparse
gradient are summed before anything is squared, and a step's cost depends on the rows it touches.

Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks") replaces the
mean gradient of a matrix by the nearest orthogonal matrix: a step is equally far in all directions.
It is scaled as in Liu et al. (2025), "Muon is scalable for LLM training", section 2.2: its entries
are as large as Adam's, so both have one rate.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from bilm.files.checkpoints import ADAGRAD, ADAM, MOMENTUM

Gradient = Any  # a tf.Tensor, or tf.IndexedSlices for a few rows

_BETA1, _BETA2 = 0.9, 0.999
_MOMENTUM = 0.95
# Weight decay per step, in units of the rate: on WikiText-2 better than 0, 0.5 and 1.2.
_DECAY = 0.2
# Root mean square of a step's entries by Adam, in units of the rate.
_ADAM_SIZE = 0.2
# Jordan et al.: the iteration brings all singular values near 1 in few steps.
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5

Blocks = tuple[int, int]  # (rows, columns) of the grid of matrices that make up a variable


class Optimizer:
    """Adagrad for all weights, or for the word rows, with Adam or Muon for the others.

    Adagrad: a += g ** 2; v -= rate * g / sqrt(a), without an epsilon. A sparse gradient changes
    only its own rows. Adam (Kingma and Ba 2015): beta1 0.9, beta2 0.999.
    Muon: v -= rate * (step + 0.2 * v), with Nesterov momentum 0.95.

    Args:
        variables: Keras variables, float32.
        learning_rate: Adagrad's rate.
        clip_norm: bound on the global norm of all gradients; None disables clipping.
        initial_accumulator: initial value of Adagrad's sums of squares. Smaller values make the
            first steps of rare rows larger.
        adam_learning_rate: rate of Adam and Muon; None trains all variables with Adagrad.
        adam_variables: for each variable, whether Adam or Muon trains it.
        muon_blocks: for each variable, the grid (rows, columns) of blocks that Muon makes
            orthogonal, or None for a variable that Muon does not train. Empty: no Muon.
        precision: precision of Muon's matmuls, "float32" or "bfloat16".

    `slots` holds each variable's state by TensorFlow 1's name in checkpoints: "Adagrad", or "Adam"
    (mean) and "Adam_1" (mean square), or "Momentum"; of the variable's shape.
    """

    def __init__(
        self,
        variables: Sequence[Any],
        learning_rate: float,
        clip_norm: float | None,
        *,
        initial_accumulator: float = 1.0,
        adam_learning_rate: float | None = None,
        adam_variables: Sequence[bool] = (),
        muon_blocks: Sequence[Blocks | None] = (),
        precision: str = "float32",
    ) -> None:
        self._variables = [variable.value for variable in variables]
        self._base_rates = learning_rate, adam_learning_rate or 0.0
        # Variables, so that a compiled step sees assignments.
        self.learning_rate = tf.Variable(learning_rate, dtype=tf.float32, trainable=False)
        self._adam_rate = tf.Variable(self._base_rates[1], dtype=tf.float32, trainable=False)
        self._n_steps = tf.Variable(0.0, trainable=False)  # before the next step
        self.clip_norm = clip_norm
        self._precision = precision
        self.slots: list[dict[str, tf.Variable]] = []
        none = (None,) * len(self._variables)
        uses_adam = adam_variables if adam_learning_rate is not None else none
        self._blocks = muon_blocks or none
        for variable, adam, blocks in zip(self._variables, uses_adam, self._blocks, strict=True):
            names = (ADAGRAD,) if not adam else ADAM if blocks is None else (MOMENTUM,)
            start = 0.0 if adam else initial_accumulator
            self.slots.append(
                {
                    name: tf.Variable(tf.fill(variable.shape, start), trainable=False)
                    for name in names
                }
            )

    def set_rates(self, factor: float, n_steps: int) -> float:
        """Set the rates of the next step to `factor` times the base rates; return Adagrad's.

        `n_steps` is the number of finished steps, for Adam's bias correction.
        """
        rate, adam_rate = (factor * base for base in self._base_rates)
        self.learning_rate.assign(rate)
        self._adam_rate.assign(adam_rate)
        self._n_steps.assign(float(n_steps))
        return rate

    def apply(self, gradients: Sequence[Gradient | None]) -> tf.Tensor:
        """Do one step; return the global norm of the gradients before clipping."""
        summed = [None if g is None else sum_repeated_rows(g) for g in gradients]
        norm = tf.linalg.global_norm([g for g in summed if g is not None])
        scale = tf.ones(())
        if self.clip_norm is not None:
            scale = self.clip_norm / tf.maximum(norm, self.clip_norm)
        rows = zip(self._variables, self.slots, self._blocks, summed, strict=True)
        by_muon = []
        for variable, slots, blocks, gradient in rows:
            if gradient is None:
                continue
            if ADAGRAD in slots:
                self._adagrad(variable, slots[ADAGRAD], gradient, scale)
            elif blocks is not None:
                by_muon.append((variable, slots[MOMENTUM], tf.convert_to_tensor(gradient), blocks))
            else:
                self._adam(variable, slots, tf.convert_to_tensor(gradient) * scale)
        self._muon(by_muon, scale)
        return norm

    def _adagrad(
        self, variable: tf.Variable, accumulator: tf.Variable, gradient: Gradient, scale: tf.Tensor
    ) -> None:
        common = {
            "var": variable.handle,
            "accum": accumulator.handle,
            "lr": tf.convert_to_tensor(self.learning_rate),
            "epsilon": tf.zeros(()),
        }
        if isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceSparseApplyAdagradV2(
                grad=gradient.values * scale, indices=gradient.indices, **common
            )
        else:
            tf.raw_ops.ResourceApplyAdagradV2(grad=gradient * scale, **common)

    def _adam(
        self, variable: tf.Variable, slots: dict[str, tf.Variable], gradient: tf.Tensor
    ) -> None:
        mean, mean_square = (slots[name] for name in ADAM)
        n_steps = tf.convert_to_tensor(self._n_steps) + 1.0
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=mean.handle,
            v=mean_square.handle,
            beta1_power=tf.pow(_BETA1, n_steps),
            beta2_power=tf.pow(_BETA2, n_steps),
            lr=tf.convert_to_tensor(self._adam_rate),
            beta1=_BETA1,
            beta2=_BETA2,
            epsilon=1e-8,
            grad=gradient,
        )

    def _muon(self, updates: Sequence[tuple[Any, ...]], scale: tf.Tensor) -> None:
        """Update matrices, given as (variable, momentum, gradient before `scale`, blocks)."""
        parts = []
        for _, momentum, gradient, blocks in updates:
            before = tf.raw_ops.ReadVariableOp(resource=momentum.handle, dtype=tf.float32)
            mean, part = _compiled(_momentum)(before, gradient, scale, blocks, self._precision)
            tf.raw_ops.AssignVariableOp(resource=momentum.handle, value=mean)
            parts.append(part)
        rate = tf.convert_to_tensor(self._adam_rate)
        for (variable, *_, blocks), step in zip(updates, _orthogonal_parts(parts), strict=True):
            before = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32)
            value = _compiled(_after_step)(before, step, rate, blocks)
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


@functools.cache  # so that it is compiled once per shape and process
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return tf.function(function, jit_compile=True, autograph=False)


def _momentum(
    mean: tf.Tensor, gradient: tf.Tensor, scale: tf.Tensor, blocks: Blocks, precision: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """The new mean gradient, and the blocks of Nesterov's look-ahead mean."""
    gradient = (1 - _MOMENTUM) * scale * gradient
    mean = _MOMENTUM * mean + gradient
    return mean, _split(_MOMENTUM * mean + gradient, blocks, precision)


def _after_step(variable: tf.Tensor, step: tf.Tensor, rate: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    return variable - rate * (_joined(step, variable.shape, blocks) + _DECAY * variable)


def orthogonal(
    matrices: Sequence[tf.Tensor], blocks: Sequence[Blocks], precision: str = "float32"
) -> list[tf.Tensor]:
    """The nearest orthogonal matrix of each block, approximately, with entries of Adam's size.

    Singular values become 0.7 to 1.2; the exact ones are not needed (Jordan et al. 2024).

    Args:
        matrices: float32 (rows, columns).
        blocks: for each matrix, its grid (rows, columns) of blocks.
        precision: precision of the iteration.
    """
    pairs = list(zip(matrices, blocks, strict=True))
    parts = _orthogonal_parts([_split(matrix, n, precision) for matrix, n in pairs])
    return [_joined(x, matrix.shape, n) for x, (matrix, n) in zip(parts, pairs, strict=True)]


def _split(matrix: tf.Tensor, blocks: Blocks, precision: str) -> tf.Tensor:
    """The blocks of a matrix, each of norm 1: (blocks, shorter side, longer side)."""
    (n_rows, n_columns), (rows, columns) = blocks, _block_shape(matrix.shape, blocks)
    # (n_rows * rows, n_columns * columns) -> (n_rows, n_columns, rows, columns), or transposed
    x = tf.reshape(matrix, (n_rows, rows, n_columns, columns))
    x = tf.transpose(x, (0, 2, 3, 1) if rows > columns else (0, 2, 1, 3))
    x = tf.reshape(x, (n_rows * n_columns, *x.shape[2:]))
    x /= tf.sqrt(tf.reduce_sum(x * x, axis=(1, 2), keepdims=True)) + 1e-7
    return tf.cast(x, precision)


def _joined(x: tf.Tensor, shape: Sequence[int], blocks: Blocks) -> tf.Tensor:
    """The matrix of a shape from its orthogonal blocks, with entries of Adam's size."""
    rows, columns = _block_shape(shape, blocks)
    x = tf.cast(x, tf.float32) * (_ADAM_SIZE * math.sqrt(x.shape[2]))
    x = tf.reshape(x, (*blocks, *x.shape[1:]))
    return tf.reshape(tf.transpose(x, (0, 3, 1, 2) if rows > columns else (0, 2, 1, 3)), shape)


def _block_shape(shape: Sequence[int], blocks: Blocks) -> tuple[int, int]:
    return shape[0] // blocks[0], shape[1] // blocks[1]


def _orthogonal_parts(parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The iteration for matrices (n, rows, columns), rows <= columns, of norm 1."""
    # All matrices of one shape are computed together: few large matmuls instead of many.
    results: dict[int, tf.Tensor] = {}
    for shape in dict.fromkeys(tuple(x.shape[1:]) for x in parts):
        numbers = [k for k, x in enumerate(parts) if tuple(x.shape[1:]) == shape]
        together = _iterated(tf.concat([parts[k] for k in numbers], axis=0))
        split = tf.split(together, [parts[k].shape[0] for k in numbers])
        results |= dict(zip(numbers, split, strict=True))
    return [results[k] for k in range(len(parts))]


def _iterated(x: tf.Tensor) -> tf.Tensor:
    a, b, c = _NEWTON_SCHULZ
    diagonal = a * tf.eye(x.shape[1], dtype=x.dtype)
    for _ in range(_ITERATIONS):
        square = tf.matmul(x, x, transpose_b=True)
        x = tf.matmul(diagonal + b * square + c * tf.matmul(square, square), x)
    return x


def sum_repeated_rows(gradient: Gradient) -> Gradient:
    """A sparse gradient with each row once; a dense one unchanged."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, index = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, index, tf.shape(rows)[0])
    return tf.IndexedSlices(values, rows, gradient.dense_shape)
