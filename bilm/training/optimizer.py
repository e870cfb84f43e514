"""Adagrad with a bound on the gradient's global norm, as the original trained, and schedules of
its learning rate.

Duchi et al. (2011), "Adaptive subgradient methods for online learning and stochastic
optimization". Rows of a sparse gradient that occur twice are summed before anything is squared,
and only the rows that a step touches cost work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bilm.core.errors import InputError, shown

Gradient = Any  # a tf.Tensor, or tf.IndexedSlices where few rows have one

INITIAL_ACCUMULATOR = 1.0
SCHEDULES = ("constant", "linear", "cosine")


class Adagrad:
    """a += g ** 2; v -= learning_rate * g / sqrt(a); a starts at 1, without an epsilon.

    Args:
        variables: Keras variables, float32.
        learning_rate: of the steps to come, until another value is assigned to the attribute.
        clip_norm: bound of the global norm of all gradients; None is no bound.

    Attributes:
        learning_rate: a scalar tf.Variable, so that a compiled step sees what is assigned to it.
        accumulators: a tf.Variable of each variable's shape.
    """

    def __init__(
        self, variables: Sequence[Any], learning_rate: float, clip_norm: float | None
    ) -> None:
        self._variables = [variable.value for variable in variables]
        self.learning_rate = tf.Variable(learning_rate, dtype=tf.float32, trainable=False)
        self.clip_norm = clip_norm
        self.accumulators = [
            tf.Variable(tf.fill(variable.shape, INITIAL_ACCUMULATOR), trainable=False)
            for variable in self._variables
        ]

    def apply(self, gradients: Sequence[Gradient | None]) -> tf.Tensor:
        """Do one step; return the global norm of the gradients before the bound."""
        summed = [None if g is None else sum_repeated_rows(g) for g in gradients]
        norm = tf.linalg.global_norm([g for g in summed if g is not None])
        scale = tf.ones(())
        if self.clip_norm is not None:
            scale = self.clip_norm / tf.maximum(norm, self.clip_norm)
        for variable, accumulator, gradient in zip(
            self._variables, self.accumulators, summed, strict=True
        ):
            if gradient is not None:
                self._update(variable, accumulator, gradient, scale)
        return norm

    def _update(
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


def sum_repeated_rows(gradient: Gradient) -> Gradient:
    """A sparse gradient with each row once; a dense one as it is."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, index = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, index, tf.shape(rows)[0])
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


@dataclass(frozen=True)
class Schedule:
    """A factor of the options' learning rate for every step.

    Adagrad makes its steps smaller by itself, and the original trained at one rate. A rate that
    falls to zero helps when the end of the run is known; a warm-up helps a model that was trained
    before, whose accumulators start anew.

    Args:
        kind: after the warm-up the factor is 1 ("constant"), or falls from 1 to 0 at the end of
            the run along a line ("linear") or half a cosine ("cosine").
        warmup_steps: steps in which the factor rises from near 0 to 1; 0 is no warm-up.

    Raises:
        InputError: there is no such kind, or the number of steps is not one.
    """

    kind: str = "constant"
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULES:
            raise InputError(
                f"schedule: one of {', '.join(SCHEDULES)} is expected, not {shown(self.kind)}."
            )
        if not isinstance(self.warmup_steps, int) or self.warmup_steps < 0:
            raise InputError(
                f"warmup_steps: a whole number from 0 is expected, not {shown(self.warmup_steps)}."
            )

    def factor(self, step: int, n_steps: int) -> float:
        """The factor of a step of the whole run, counted from 0.

        >>> [Schedule("linear", warmup_steps=2).factor(step, 6) for step in range(6)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
        """
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.kind == "constant":
            return 1.0
        done = min(1.0, (step - self.warmup_steps) / max(1, n_steps - self.warmup_steps))
        return 1.0 - done if self.kind == "linear" else (1.0 + math.cos(math.pi * done)) / 2
