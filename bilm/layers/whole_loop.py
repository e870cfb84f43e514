"""All layers of one direction as one compiled program, for much text and small layers.

The arithmetic is that of `recurrence`, for inference in float32. The order of work is another one,
which is faster while a layer's weights stay in a cache: everything lies as (batch, features), the
loop over the steps is compiled with what it does, and what the first layer reads are words of a
table, whose products with the kernel are computed once for each word, not at each place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.layers.cell import LSTMState, cell, clipped
from bilm.options import LSTMOptions

# Kernels that stay in a cache; beyond it the products of (batch, features) are slower.
_KERNEL_BYTES = 4 * 2**20


class WordRows(NamedTuple):
    """Texts that lie end to end in the rows of a batch.

    Attributes:
        vectors: float32 (n, input_dim), of the words.
        words: int32 (steps, rows), the row in `vectors` of each place's word.
        ends: bool (steps, rows), True where a text ends; the next one begins from the first state.
        n_steps: int32 (), how many steps are computed; the others, at the end, are left out.
    """

    vectors: Any
    words: Any
    ends: Any
    n_steps: Any


def pays_for(options: LSTMOptions) -> bool:
    """Whether layers of this size are faster in one program than step by step."""
    return 4 * 2 * options.projection_dim * 4 * options.dim <= _KERNEL_BYTES


@functools.cache
def whole_loop(options: LSTMOptions) -> Callable[..., list[tf.Tensor]]:
    """What computes the layers of a direction; compiled once for each shape in a process.

    The function takes:
        rows: `WordRows`.
        weights: of each layer (kernel, bias, projection or None), as `projected_lstm` has them.
        states: of each layer, before a text: (1, dim) and (1, projection_dim).

    It returns of each layer float32 (steps, rows, projection_dim), zeros from `n_steps` on.
    """
    return tf.function(
        functools.partial(_layers, options=options), jit_compile=True, autograph=False
    )


def _layers(
    rows: WordRows,
    weights: Sequence[tuple[Any, ...]],
    states: Sequence[LSTMState],
    options: LSTMOptions,
) -> list[tf.Tensor]:
    outputs: list[tf.Tensor] = []
    for (kernel, bias, projection), first in zip(weights, states, strict=True):
        if outputs:
            sums = _sums_of_outputs(outputs[-1], kernel, bias)
        else:
            sums = _sums_of_words(rows, kernel, bias)
        x = _layer(sums, projection, first, rows, options)
        if outputs and options.use_skip_connections:
            x += outputs[-1]
        outputs.append(x)
    return outputs


# The sums under the gates, (batch, 4 * dim), from the number of the step and h.
_Sums = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def _sums_of_words(rows: WordRows, kernel: tf.Tensor, bias: tf.Tensor) -> _Sums:
    input_dim = rows.vectors.shape[1]
    of_words = rows.vectors @ kernel[:input_dim] + bias
    recurrent = kernel[input_dim:]
    return lambda t, h: h @ recurrent + tf.gather(of_words, rows.words[t])


def _sums_of_outputs(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> _Sums:
    return lambda t, h: tf.concat([x[t], h], axis=1) @ kernel + bias


def _layer(
    sums: _Sums,
    projection: tf.Tensor | None,
    first: LSTMState,
    rows: WordRows,
    options: LSTMOptions,
) -> tf.Tensor:
    n_steps, n_rows = tf.unstack(tf.shape(rows.words))  # constants to XLA

    def step(t: tf.Tensor, c: tf.Tensor, h: tf.Tensor, outputs: tf.TensorArray) -> tuple[Any, ...]:
        gates = tf.split(sums(t, h), 4, axis=1)
        c, h = cell(gates, c, options.cell_clip)
        if projection is not None:
            h = clipped(h @ projection, options.proj_clip)
        ended = rows.ends[t][:, tf.newaxis]
        state = tf.where(ended, first.c, c), tf.where(ended, first.h, h)
        return t + 1, *state, outputs.write(t, h)

    outputs = tf.TensorArray(tf.float32, n_steps, element_shape=(None, options.projection_dim))
    c, h = (tf.broadcast_to(x, (n_rows, x.shape[1])) for x in first)
    loop = tf.while_loop(lambda t, *_: t < rows.n_steps, step, (0, c, h, outputs))
    return loop[3].stack()
