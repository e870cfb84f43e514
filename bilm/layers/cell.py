"""One step of the projected, clipped LSTM: the cell, and what its output becomes.

Source: Sak et al. (2014), "Long short-term memory recurrent neural network architectures for large
scale acoustic modeling", and Peters et al. (2018), section 3.4, for the clipping. There are no
peepholes, and 1 is added to what the forget gate is computed from (Jozefowicz et al. 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class LSTMState(NamedTuple):
    """What an LSTM layer hands from one step to the next; zeros at the start of a text.

    c: float32 (batch, dim), the cell state. h: float32 (batch, hidden_dim), the output. A batch of
    1 stands for all rows alike.
    """

    c: tf.Tensor
    h: tf.Tensor


def cell(
    sums: Sequence[tf.Tensor], c: tf.Tensor, clip: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The new cell state, and what is projected.

    Args:
        sums: of i, j, f and o, what is under the gate's sigmoid (of j, under tanh).
        c: the cell state before, of their shape.
        clip: bound of the cell state; None: no bound.
    """
    i, j, f, o = sums
    new_c = clipped(tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j), clip)
    return new_c, tf.sigmoid(o) * tf.tanh(new_c)


def clipped(x: tf.Tensor, clip: float | None) -> tf.Tensor:
    """`x` within its bound; None: no bound."""
    return x if clip is None else tf.clip_by_value(x, -clip, clip)
