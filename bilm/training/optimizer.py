"""Adagrad, Adam and Muon with one bound on the gradient's global norm.

The original trained all weights with Adagrad (Duchi et al. 2011). Repeated rows of a sparse
gradient are summed before anything is squared, and a step's cost depends on the rows it touches.

Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks") replaces the
mean gradient of a matrix by the nearest orthogonal matrix: a step is equally far in all directions.
It is scaled as in Liu et al. (2025), "Muon is scalable for LLM training", section 2.2: its entries
are as large as Adam's, so both have one rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

Blocks = tuple[int, int]  # matrices of a variable, one below another and side by side


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
        muon_blocks: for each variable, the numbers of blocks that Muon makes orthogonal, one below
            another and side by side; None: Adam trains it. Empty: all by Adam.
        precision: precision of Muon's matrix products, "float32" or "bfloat16".

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
                dense = tf.convert_to_tensor(gradient) * scale
                by_muon.append((variable, slots[MOMENTUM], blocks, dense))
            else:
                self._adam(variable, slots, tf.convert_to_tensor(gradient) * scale)
        self._muon(by_muon)
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

    def _muon(self, updates: Sequence[tuple[tf.Variable, tf.Variable, Blocks, tf.Tensor]]) -> None:
        """Update matrices, given as (variable, momentum, blocks, gradient)."""
        ahead = []
        for _, momentum, _, gradient in updates:
            mean = tf.raw_ops.ReadVariableOp(resource=momentum.handle, dtype=tf.float32)
            mean = _MOMENTUM * mean + (1 - _MOMENTUM) * gradient
            tf.raw_ops.AssignVariableOp(resource=momentum.handle, value=mean)
            ahead.append(_MOMENTUM * mean + (1 - _MOMENTUM) * gradient)
        steps = orthogonal(ahead, [blocks for _, _, blocks, _ in updates], self._precision)
        rate = tf.convert_to_tensor(self._adam_rate)
        for (variable, *_), step in zip(updates, steps, strict=True):
            step += _DECAY * tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32)
            tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=rate * step)


def orthogonal(
    matrices: Sequence[tf.Tensor], blocks: Sequence[Blocks], precision: str = "float32"
) -> list[tf.Tensor]:
    """The nearest orthogonal matrix of each block, approximately, with entries of Adam's size.

    Singular values become 0.7 to 1.2; the exact ones are not needed (Jordan et al. 2024).

    Args:
        matrices: float32 (rows, columns).
        blocks: for each matrix, the number of blocks one below another and side by side.
        precision: precision of the iteration.
    """
    # All blocks of one shape are computed together: few large matmuls instead of many.
    by_shape: dict[tuple[int, int], list[tf.Tensor]] = {}
    positions = []  # shape of a matrix's blocks, and its number in `by_shape`
    for matrix, (n_rows, n_columns) in zip(matrices, blocks, strict=True):
        rows, columns = matrix.shape[0] // n_rows, matrix.shape[1] // n_columns
        # (n_rows * rows, n_columns * columns) -> (blocks, shorter side, longer side)
        x = tf.reshape(matrix, (n_rows, rows, n_columns, columns))
        x = tf.transpose(x, (0, 2, 3, 1) if rows > columns else (0, 2, 1, 3))
        x = tf.reshape(x, (n_rows * n_columns, *x.shape[2:]))
        x /= tf.sqrt(tf.reduce_sum(x * x, axis=(1, 2), keepdims=True)) + 1e-7
        same_shape = by_shape.setdefault(tuple(x.shape[1:]), [])
        positions.append((tuple(x.shape[1:]), len(same_shape)))
        same_shape.append(x)
    results = {
        shape: tf.split(_iterated(tf.concat(parts, axis=0), precision), [x.shape[0] for x in parts])
        for shape, parts in by_shape.items()
    }
    steps = []
    for matrix, (n_rows, n_columns), (shape, number) in zip(
        matrices, blocks, positions, strict=True
    ):
        x = tf.reshape(results[shape][number], (n_rows, n_columns, *shape))
        is_transposed = matrix.shape[0] // n_rows > matrix.shape[1] // n_columns
        x = tf.transpose(x, (0, 3, 1, 2) if is_transposed else (0, 2, 1, 3))
        steps.append(tf.reshape(x, matrix.shape))
    return steps


def _iterated(x: tf.Tensor, precision: str) -> tf.Tensor:
    """The iteration for matrices (n, rows, columns), rows <= columns, scaled to Adam's size."""
    a, b, c = _NEWTON_SCHULZ
    x = tf.cast(x, precision)
    diagonal = a * tf.eye(x.shape[1], dtype=x.dtype)
    for _ in range(_ITERATIONS):
        square = tf.matmul(x, x, transpose_b=True)
        x = tf.matmul(diagonal + b * square + c * tf.matmul(square, square), x)
    return tf.cast(x, tf.float32) * (_ADAM_SIZE * math.sqrt(x.shape[2]))


def sum_repeated_rows(gradient: Gradient) -> Gradient:
    """A sparse gradient with each row once; a dense one unchanged."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, index = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, index, tf.shape(rows)[0])
    return tf.IndexedSlices(values, rows, gradient.dense_shape)
