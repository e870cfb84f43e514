"""The recurrence of one direction, one layer of the projected, clipped LSTM.

Source: Peters et al. (2018), section 3.1; the cell is that of Sak et al. (2014).
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf


class LSTMState(NamedTuple):
    """What an LSTM layer hands from one step to the next; zeros at the start of a text.

    c: float32 (batch, dim), the cell state. h: float32 (batch, projection_dim), the output.
    """

    c: tf.Tensor
    h: tf.Tensor


def projected_lstm(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    projection: tf.Tensor | None,
    state: LSTMState,
    *,
    mask: tf.Tensor | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
    compiled: bool = False,
    precision: str = "float32",
) -> tuple[tf.Tensor, LSTMState]:
    """Run the cell over all steps of `inputs`.

    Args:
        inputs: float32 (time, batch, input_dim).
        kernel: float32 (input_dim + hidden_dim, 4 * dim); rows are [input; recurrent h], columns
            the gates in the order i, j, f, o.
        bias: float32 (4 * dim,).
        projection: float32 (dim, hidden_dim); None means h' = sigmoid(o) * tanh(c'), and
            hidden_dim == dim.
        state: state before the first step.
        mask: bool (time, batch); where False the output is zeros and the state stays. None: all
            True.
        cell_clip, proj_clip: bounds of the cell state and of the projection; None: no bound.
            Without a projection `proj_clip` has no effect.
        compiled: compile with XLA, for shapes that are fixed or few.
        precision: "float32", or "bfloat16" for products in bfloat16 (all else stays float32).

    Returns:
        outputs: float32 (time, batch, hidden_dim), and the state after the last step.
    """
    del compiled
    dim = kernel.shape[-1] // 4
    input_dim = inputs.shape[-1]
    dtype = tf.as_dtype(precision)
    input_kernel = tf.cast(kernel[:input_dim], dtype)
    recurrent_kernel = tf.cast(kernel[input_dim:], dtype)
    flat = tf.cast(tf.reshape(inputs, [-1, input_dim]), dtype)
    from_inputs = tf.cast(flat @ input_kernel, tf.float32) + bias
    n_steps, batch = tf.unstack(tf.shape(inputs)[:2])
    from_inputs = tf.reshape(from_inputs, [n_steps, batch, 4 * dim])

    def step(t, c, h, outputs):
        z = from_inputs[t] + tf.cast(tf.cast(h, dtype) @ recurrent_kernel, tf.float32)
        i, j, f, o = tf.split(z, 4, axis=-1)
        new_c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        if cell_clip is not None:
            new_c = tf.clip_by_value(new_c, -cell_clip, cell_clip)
        new_h = tf.sigmoid(o) * tf.tanh(new_c)
        if projection is not None:
            new_h = tf.cast(tf.cast(new_h, dtype) @ tf.cast(projection, dtype), tf.float32)
            if proj_clip is not None:
                new_h = tf.clip_by_value(new_h, -proj_clip, proj_clip)
        if mask is None:
            return t + 1, new_c, new_h, outputs.write(t, new_h)
        here = mask[t][:, tf.newaxis]
        output = tf.where(here, new_h, tf.zeros_like(new_h))
        return t + 1, tf.where(here, new_c, c), tf.where(here, new_h, h), outputs.write(t, output)

    outputs = tf.TensorArray(tf.float32, n_steps, element_shape=state.h.shape)
    _, c, h, outputs = tf.while_loop(
        lambda t, *_: t < n_steps, step, (0, state.c, state.h, outputs)
    )
    result = outputs.stack()
    result.set_shape([inputs.shape[0], inputs.shape[1], state.h.shape[-1]])
    return result, LSTMState(c, h)
