"""All layers of one direction as one compiled program, for much text and small layers.

The arithmetic is that of `recurrence`, for inference in float32. The order of work is another one,
which is faster while a layer's weights stay in a cache: the loop over the steps is compiled with
what it does, and what the first layer reads are words of a table, whose products with the kernel
are computed once for each word, not at each place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.layers.cell import LSTMState, cell, clipped
from bilm.options import LSTMOptions

# Bytes of a kernel that stays in a cache; with a larger one the first layer's products, as
# (batch, features), are slower than those of `recurrence`.
_KERNEL_BYTES = 4 * 2**20


class WordRows(NamedTuple):
    """Texts that lie end to end in the rows of a batch.

    Attributes:
        vectors: float32 (n, input_dim), of the words.
        words: int32 (steps, rows), the row in `vectors` of each place's word.
        resets: bool (steps, rows), True where a text begins, from the first state.
        n_steps: int32 (), how many steps are computed; the others, at the end, are left out.
    """

    vectors: Any
    words: Any
    resets: Any
    n_steps: Any


def pays_for(options: LSTMOptions) -> bool:
    """Whether layers of this size are faster in one program than step by step."""
    kernel = 2 * options.projection_dim * 4 * options.dim
    return tf.float32.size * kernel <= _KERNEL_BYTES


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
    for (kernel, bias, projection), state in zip(weights, states, strict=True):
        if outputs:
            layer = _layer_of_outputs(outputs[-1], kernel, bias, projection)
        else:
            layer = _layer_of_words(rows, kernel, bias, projection)
        x = _run(layer, state, rows, options)
        if outputs and options.use_skip_connections:
            x += outputs[-1]
        outputs.append(x)
    return outputs


class _Layer(NamedTuple):
    """The products of a layer.

    Attributes:
        sums: what is under the gates, from the number of the step and h.
        project: the projection of the cell's output.
        features: the axis of the features; the other one is the batch.
    """

    sums: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    project: Callable[[tf.Tensor], tf.Tensor] | None
    features: int

    def turned(self, x: tf.Tensor) -> tf.Tensor:
        """From (batch, features) as the layer has it, and back."""
        return x if self.features == 1 else tf.transpose(x)


def _layer_of_words(
    rows: WordRows, kernel: tf.Tensor, bias: tf.Tensor, projection: tf.Tensor | None
) -> _Layer:
    """As (batch, features), so that a word's products are looked up as they lie."""
    input_dim = rows.vectors.shape[1]
    of_words = rows.vectors @ kernel[:input_dim] + bias
    recurrent = kernel[input_dim:]
    return _Layer(
        lambda t, h: h @ recurrent + tf.gather(of_words, rows.words[t]),
        None if projection is None else lambda m: m @ projection,
        features=1,
    )


def _layer_of_outputs(
    x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, projection: tf.Tensor | None
) -> _Layer:
    """As (features, batch), in which products of few rows are faster."""
    kernel, bias = tf.transpose(kernel), bias[:, tf.newaxis]
    projection = None if projection is None else tf.transpose(projection)
    return _Layer(
        lambda t, h: kernel @ tf.concat([tf.transpose(x[t]), h], axis=0) + bias,
        None if projection is None else lambda m: projection @ m,
        features=0,
    )


def _run(layer: _Layer, state: LSTMState, rows: WordRows, options: LSTMOptions) -> tf.Tensor:
    n_steps, n_rows = tf.unstack(tf.shape(rows.words))  # constants to XLA
    first = LSTMState(*map(layer.turned, state))

    def step(t: tf.Tensor, c: tf.Tensor, h: tf.Tensor, outputs: tf.TensorArray) -> tuple[Any, ...]:
        begins = tf.expand_dims(rows.resets[t], layer.features)
        c, h = tf.where(begins, first.c, c), tf.where(begins, first.h, h)
        gates = tf.split(layer.sums(t, h), 4, axis=layer.features)
        c, h = cell(gates, c, options.cell_clip)
        if layer.project is not None:
            h = clipped(layer.project(h), options.proj_clip)
        return t + 1, c, h, outputs.write(t, layer.turned(h))

    outputs = tf.TensorArray(tf.float32, n_steps, element_shape=(None, options.projection_dim))
    c, h = (layer.turned(tf.broadcast_to(x, (n_rows, x.shape[1]))) for x in state)
    loop = tf.while_loop(lambda t, *_: t < rows.n_steps, step, (0, c, h, outputs))
    return loop[3].stack()
