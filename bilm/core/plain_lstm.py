"""One LSTM layer over all time steps: the readable version.

TensorFlow differentiates this loop automatically, to any order. Keras models use it because it can
be saved, exported and compiled with the rest of the model. `recurrence.py` and `xla_lstm.py`
compute the same values faster.

Source: Peters et al. (2018), section 3.1.
"""

from typing import Any

import tensorflow as tf

from bilm.core.cell import Boundaries, Clips, LSTMState, LSTMWeights, cell, clipped, over_rows
from bilm.core.keras_backend import matmul


def plain_lstm(
    inputs: tf.Tensor,
    weights: LSTMWeights,
    state: LSTMState,
    boundaries: Boundaries,
    *,
    clips: Clips,
    precision: str,
) -> tuple[tf.Tensor, LSTMState]:
    """Run the cell over all steps of `inputs`.

    Args:
        inputs: float32 (time, batch, input_dim).
        weights: float32 tensors.
        state: state before the first step, (batch, ...) or (1, ...).
        boundaries: padding and resets.
        clips: bounds of the cell state and of the projection.
        precision: "float32", or "bfloat16" for matmuls of factors rounded to bfloat16.

    Returns:
        outputs: float32 (time, batch, hidden_dim), and the state after the last step.
    """
    n_steps, n_rows = tf.unstack(tf.shape(inputs)[:2])

    def step(t: tf.Tensor, c: tf.Tensor, h: tf.Tensor, outputs: tf.TensorArray) -> Any:
        if boundaries.resets is not None:  # a new sentence starts from the initial state
            begins = boundaries.resets[t][:, tf.newaxis]  # (batch, 1)
            c = tf.where(begins, tf.stop_gradient(boundaries.initial.c), c)
            h = tf.where(begins, tf.stop_gradient(boundaries.initial.h), h)
        xh = tf.concat([inputs[t], h], axis=1)  # (batch, input_dim + hidden_dim)
        z = matmul(xh, weights.kernel, precision) + weights.bias  # (batch, 4 * dim)
        new_c, new_h = cell(tf.split(z, 4, axis=1), c, clips.cell)
        if weights.projection is not None:
            new_h = clipped(matmul(new_h, weights.projection, precision), clips.projection)
        output = new_h
        if boundaries.mask is not None:  # at padding the output is zeros and the state stays
            here = boundaries.mask[t][:, tf.newaxis]  # (batch, 1)
            output = tf.where(here, new_h, tf.zeros_like(new_h))
            new_c, new_h = tf.where(here, new_c, c), tf.where(here, new_h, h)
        return t + 1, new_c, new_h, outputs.write(t, output)

    outputs = tf.TensorArray(tf.float32, n_steps)
    loop = (tf.constant(0), *over_rows(state, n_rows), outputs)
    if inputs.shape[0] == 1:  # no loop
        _, c, h, outputs = step(*loop)
        return outputs.stack(), LSTMState(c, h)
    # XLA needs `maximum_iterations` for the gradient.
    _, c, h, outputs = tf.while_loop(
        lambda t, *_: t < n_steps, step, loop, maximum_iterations=n_steps
    )
    return outputs.stack(), LSTMState(c, h)
