"""One step of the projected, clipped LSTM, and the values that go in and out of it.

Source: Sak et al. (2014), "Long short-term memory recurrent neural network architectures for large
scale acoustic modeling", and Peters et al. (2018), section 3.4, for the clipping. There are no
peepholes, and 1 is added to the forget gate's pre-activation (Jozefowicz et al. 2015):

    z = [x; h] W + b                              columns in the order i, j, f, o
    c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j))
    h' = clip((sigmoid(o) tanh(c')) W_P)
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class Mode(enum.Enum):
    """How LSTM layers are executed. The values are the same, up to rounding.

    TRAINING: steps are compiled with XLA, and activations are saved for a custom backward pass.
    KERAS: the same backward pass in a form that a SavedModel can hold; nothing is compiled.
    INFERENCE: nothing is saved for a gradient and nothing is compiled: for shapes that vary.
    COMPILED_STEPS: nothing is saved for a gradient, and steps are compiled: for many batches of
        few shapes.
    COMPILED_LOOP: nothing is saved for a gradient, and all layers of a direction are one program:
        for packed sentences, and layers that are small (see `is_faster_for`).
    """

    TRAINING = "training"
    KERAS = "keras"
    INFERENCE = "inference"
    COMPILED_STEPS = "compiled steps"
    COMPILED_LOOP = "compiled loop"

    @property
    def saves_activations(self) -> bool:
        """Whether there is a custom backward pass."""
        return self in (Mode.TRAINING, Mode.KERAS)

    @property
    def compiles_steps(self) -> bool:
        """Whether what lies between the products of a step is compiled with XLA."""
        return self in (Mode.TRAINING, Mode.COMPILED_STEPS)


class LSTMState(NamedTuple):
    """What a layer hands from one step to the next. A batch of 1 stands for all rows alike."""

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
    """Bounds; None: no bound. Without a projection the second one has no effect."""

    cell: float | None = None
    projection: float | None = None


class Boundaries(NamedTuple):
    """Where texts are in the rows of a batch."""

    # Bool (time, batch); where False the output is zeros and the state stays. None: all True.
    mask: Any = None
    # Bool (time, batch); where True a text begins: the state before the step is `initial`,
    # whatever came before. None: all False.
    resets: Any = None
    # (batch, ...) or (1, ...); None: the state before the first step. No gradient reaches it.
    initial: LSTMState | None = None


def cell(
    pre_activations: Sequence[tf.Tensor], c: tf.Tensor, clip: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The new cell state, and what is projected, from the pre-activations of i, j, f and o."""
    i, j, f, o = pre_activations
    new_c = clipped(tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j), clip)
    return new_c, tf.sigmoid(o) * tf.tanh(new_c)


def clipped(x: tf.Tensor, clip: float | None) -> tf.Tensor:
    """`x` within its bound; None: no bound."""
    return x if clip is None else tf.clip_by_value(x, -clip, clip)


def over_rows(state: LSTMState, n_rows: Any) -> LSTMState:
    """A state of `n_rows` rows, of which (1, ...) stands for all."""
    return LSTMState(*(tf.broadcast_to(x, (n_rows, x.shape[1])) for x in state))
