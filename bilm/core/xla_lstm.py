"""One LSTM layer over all time steps, inside a program compiled by XLA; for inference.

It is faster than `recurrence` if a layer's weights fit the CPU cache: the loop over the steps is
compiled too, and the first layer's matmul with word vectors is computed once per distinct word
instead of once per position. `plain_lstm` computes the same values.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.core.recurrence import Boundaries, Clips, LSTMState, LSTMWeights, cell, clipped, over_rows

# With at least this many rows, the weights are the left factor of the matmuls.
_MANY_ROWS = 32
# With fewer rows, one matmul multiplies the inputs of this many steps.
_BLOCK_STEPS = 8


class ProductLookup(NamedTuple):
    """Inputs as rows of a table of precomputed `x @ W_x + b`."""

    products: Any  # float32 (n, 4 * dim), of the distinct words
    ids: Any  # int32 (time, batch), the row in `products` of each position's word
    n_steps: Any  # int32 (), steps to run; the outputs of later steps are zeros


def xla_lstm(
    inputs: tf.Tensor | ProductLookup,
    weights: LSTMWeights,
    state: LSTMState,
    boundaries: Boundaries,
    *,
    clips: Clips,
    n_steps: tf.Tensor,
) -> tuple[tf.Tensor, LSTMState]:
    """Run the cell over the first `n_steps` steps of `inputs`; only inside a compiled function.

    Arguments as for `plain_lstm`, but `boundaries` must have resets and the initial state, and no
    mask. `n_steps` is int32 (); outputs of later steps are zeros.
    """
    matmuls = (_of_words if isinstance(inputs, ProductLookup) else _of_vectors)(inputs, weights)
    steps = inputs.ids if isinstance(inputs, ProductLookup) else inputs
    # XLA compiles for each shape, so these are constants.
    max_steps, n_rows = tf.unstack(tf.shape(steps)[:2])
    initial = LSTMState(*map(matmuls.in_loop, boundaries.initial))
    projection = weights.projection
    if projection is not None:
        projection = matmuls.in_loop(projection)
    before = over_rows(state, n_rows)

    def block(first: tf.Tensor, *carried: Any) -> Any:
        pre_activations = matmuls.for_block(first)

        def step(t: tf.Tensor, c: tf.Tensor, h: tf.Tensor, outputs: tf.TensorArray) -> Any:
            begins = tf.expand_dims(boundaries.resets[t], matmuls.features)
            c, h = tf.where(begins, initial.c, c), tf.where(begins, initial.h, h)
            gates = tf.split(pre_activations(t, h), 4, axis=matmuls.features)
            c, h = cell(gates, c, clips.cell)
            if projection is not None:
                h = h @ projection if matmuls.features == 1 else projection @ h
                h = clipped(h, clips.projection)
            return t + 1, c, h, outputs.write(t, matmuls.in_loop(h))

        stop = n_steps if matmuls.block is None else tf.minimum(first + matmuls.block, n_steps)
        return tf.while_loop(lambda t, *_: t < stop, step, (first, *carried))

    element_shape = (steps.shape[1], before.h.shape[1])
    outputs = tf.TensorArray(tf.float32, max_steps, element_shape=element_shape)
    loop = (0, *map(matmuls.in_loop, before), outputs)
    if matmuls.block is None:
        _, c, h, outputs = block(*loop)
    else:
        _, c, h, outputs = tf.while_loop(lambda t, *_: t < n_steps, block, loop)
    return outputs.stack(), LSTMState(matmuls.in_loop(c), matmuls.in_loop(h))


# Computes the pre-activations of all gates from a step's number and h.
_PreActivations = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class _Matmuls(NamedTuple):
    for_block: Callable[[tf.Tensor], _PreActivations]  # from the first step of a block
    features: int = 1  # the axis of the features in the loop; the other axis is the batch
    block: int | None = None  # steps; None: all of them

    def in_loop(self, x: tf.Tensor) -> tf.Tensor:
        """From (batch, features) to the layout of the loop, and back."""
        return x if self.features == 1 else tf.transpose(x)


def _of_words(words: ProductLookup, weights: LSTMWeights) -> _Matmuls:
    """Matmuls in the layout of the table, (batch, features)."""
    recurrent = _recurrent(weights)

    def pre_activations(t: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
        return h @ recurrent + tf.gather(words.products, words.ids[t])  # (batch, 4 * dim)

    return _Matmuls(lambda _: pre_activations)


def _recurrent(weights: LSTMWeights) -> tf.Tensor:
    """The rows of the kernel that multiply h: (hidden_dim, 4 * dim)."""
    kernel, _, projection = weights
    return kernel[-(kernel.shape[1] // 4 if projection is None else projection.shape[1]) :]


def _of_vectors(x: tf.Tensor, weights: LSTMWeights) -> _Matmuls:
    """Matmuls as (batch, features) for few rows, otherwise as (features, batch)."""
    if (x.shape[1] or _MANY_ROWS) < _MANY_ROWS:
        return _in_blocks(x, weights)
    kernel = tf.transpose(weights.kernel)  # (4 * dim, input_dim + hidden_dim)
    bias = weights.bias[:, tf.newaxis]  # (4 * dim, 1)

    def pre_activations(t: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
        return kernel @ tf.concat([tf.transpose(x[t]), h], axis=0) + bias  # (4 * dim, batch)

    return _Matmuls(lambda _: pre_activations, features=0)


def _in_blocks(x: tf.Tensor, weights: LSTMWeights) -> _Matmuls:
    """One matmul for the inputs of several steps: with few rows, reading the weights costs as much
    as the multiplication."""
    recurrent = _recurrent(weights)
    n_rows, size = x.shape[1:]
    x = tf.pad(x, [(0, -tf.shape(x)[0] % _BLOCK_STEPS), (0, 0), (0, 0)])  # complete blocks

    def for_block(first: tf.Tensor) -> _PreActivations:
        # (steps, batch, input_dim) -> (steps * batch, input_dim), for the matmul
        block = tf.reshape(tf.slice(x, (first, 0, 0), (_BLOCK_STEPS, n_rows, size)), (-1, size))
        products = block @ weights.kernel[:size] + weights.bias
        products = tf.reshape(products, (_BLOCK_STEPS, n_rows, -1))  # (steps, batch, 4 * dim)
        return lambda t, h: products[t - first] + h @ recurrent

    return _Matmuls(for_block, block=_BLOCK_STEPS)
