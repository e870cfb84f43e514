"""The projected, clipped LSTM: one step, and a layer to read, with its inputs and outputs.

Source: Sak et al. (2014), "Long short-term memory recurrent neural network architectures for large
scale acoustic modeling", and Peters et al. (2018), section 3.4, for the clipping. There are no
peepholes, and 1 is added to the forget gate's pre-activation (Jozefowicz et al. 2015):

    z = [x; h] W + b                              columns in the order i, j, f, o
    c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j))
    h' = clip((sigmoid(o) tanh(c')) W_P)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.core.keras_backend import matmul


class LSTMState(NamedTuple):
    """A layer's state between two steps. A batch size of 1 is broadcast to all rows."""

    c: tf.Tensor  # float32 (batch, dim), the cell state
    h: tf.Tensor  # float32 (batch, hidden_dim), the output


class LSTMWeights(NamedTuple):
    """The weights of one layer; the columns of kernel and bias are the gates i, j, f, o."""

    kernel: Any  # (input_dim + hidden_dim, 4 * dim), rows are [input; recurrent h]
    bias: Any  # (4 * dim,)
    projection: Any  # (dim, hidden_dim), or None: h' is not projected and hidden_dim == dim

    def tensors(self) -> LSTMWeights:
        """The values of variables."""
        return LSTMWeights(*(None if w is None else tf.convert_to_tensor(w) for w in self))


class Clips(NamedTuple):
    """Bounds of absolute values; None: no bound. `projection` is ignored without a projection."""

    cell: float | None = None
    projection: float | None = None


class Boundaries(NamedTuple):
    """The padding of a batch, and the positions in its rows at which sentences start."""

    # Bool (time, batch); where False the output is zeros and the state stays. None: no padding.
    mask: Any = None
    # Bool (time, batch); where True the step starts from `initial`. None: no resets.
    resets: Any = None
    # The initial state, (batch, ...) or (1, ...), or one per layer; needed with `resets`. No
    # gradient reaches it.
    initial: Any = None


def cell(
    pre_activations: Sequence[tf.Tensor], c: tf.Tensor, clip: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The new cell state and the cell's output, from the pre-activations of i, j, f and o."""
    i, j, f, o = pre_activations
    new_c = clipped(tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j), clip)
    return new_c, tf.sigmoid(o) * tf.tanh(new_c)


def clipped(x: tf.Tensor, clip: float | None) -> tf.Tensor:
    """`x` clipped to [-clip, clip]; None: no bound."""
    return x if clip is None else tf.clip_by_value(x, -clip, clip)


def over_rows(state: LSTMState, n_rows: Any) -> LSTMState:
    """Broadcast a (1, ...) state to `n_rows` rows."""
    return LSTMState(*(tf.broadcast_to(x, (n_rows, x.shape[1])) for x in state))


def plain_lstm(
    inputs: tf.Tensor,
    weights: LSTMWeights,
    state: LSTMState,
    boundaries: Boundaries,
    *,
    clips: Clips,
    precision: str,
) -> tuple[tf.Tensor, LSTMState]:
    """Run the cell over all steps of `inputs`: the layer to read.

    TensorFlow differentiates this loop automatically, to any order. Keras models use it because it
    can be saved, exported and compiled with the rest of the model. `recurrence.py` and
    `xla_lstm.py` compute the same values faster.

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
