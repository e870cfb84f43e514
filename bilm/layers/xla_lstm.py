"""One LSTM layer as part of a program that XLA compiles whole, for much text and small layers.

The arithmetic is that of `recurrence`, for inference in float32. The order of work is another one,
which is faster while a layer's weights stay in a cache: the loop over the steps is compiled with
what it does, and what the first layer reads are words of a table, whose products with the kernel
are computed once for each word, not at each position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.layers.cell import (
    Boundaries,
    Clips,
    LSTMState,
    LSTMWeights,
    cell,
    clipped,
    over_rows,
)
from bilm.options import LSTMOptions

# Bytes of a kernel that stays in a cache; with a larger one the first layer's products, as
# (batch, features), are slower than those of `recurrence`.
_KERNEL_BYTES = 4 * 2**20


class WordLookup(NamedTuple):
    """Inputs as rows of a table.

    Attributes:
        vectors: float32 (n, input_dim), of the distinct words.
        ids: int32 (time, batch), the row in `vectors` of each position's word.
    """

    vectors: Any
    ids: Any

    def looked_up(self) -> tf.Tensor:
        """float32 (time, batch, input_dim)."""
        return tf.gather(self.vectors, self.ids)


def is_faster_for(options: LSTMOptions, precision: str) -> bool:
    """Whether layers are faster in one program than step by step.

    Their kernel has to fit a cache; and XLA has no fast products of bfloat16 on a CPU.
    """
    kernel = 2 * options.projection_dim * 4 * options.dim
    return precision == "float32" and tf.float32.size * kernel <= _KERNEL_BYTES


def xla_lstm(
    inputs: tf.Tensor | WordLookup,
    weights: LSTMWeights,
    state: LSTMState,
    boundaries: Boundaries,
    *,
    clips: Clips,
    n_steps: tf.Tensor,
) -> tuple[tf.Tensor, LSTMState]:
    """Run the cell over the first `n_steps` steps of `inputs`; within a compiled function.

    Args:
        inputs: words of a table, or float32 (time, batch, input_dim).
        weights, state, boundaries, clips: as for `projected_lstm`; there is no mask.
        n_steps: int32 (); steps from there on are left out.

    Returns:
        outputs: float32 (time, batch, hidden_dim), zeros from `n_steps` on, and the state after
        the last step.
    """
    is_lookup = isinstance(inputs, WordLookup)
    products = (_of_words if is_lookup else _of_vectors)(inputs, weights)
    # Constants to XLA, which compiles for each shape.
    max_steps, n_rows = tf.unstack(tf.shape(inputs.ids if is_lookup else inputs)[:2])
    initial = state if boundaries.initial is None else boundaries.initial
    initial = LSTMState(*map(products.as_in_loop, initial))
    before = over_rows(state, n_rows)

    def step(t: tf.Tensor, c: tf.Tensor, h: tf.Tensor, outputs: tf.TensorArray) -> tuple[Any, ...]:
        begins = tf.expand_dims(boundaries.resets[t], products.features)
        c, h = tf.where(begins, initial.c, c), tf.where(begins, initial.h, h)
        gates = tf.split(products.pre_activations(t, h), 4, axis=products.features)
        c, h = cell(gates, c, clips.cell)
        if products.project is not None:
            h = clipped(products.project(h), clips.projection)
        return t + 1, c, h, outputs.write(t, products.as_in_loop(h))

    outputs = tf.TensorArray(tf.float32, max_steps, element_shape=(None, before.h.shape[1]))
    loop = (0, *map(products.as_in_loop, before), outputs)
    _, c, h, outputs = tf.while_loop(lambda t, *_: t < n_steps, step, loop)
    return outputs.stack(), LSTMState(products.as_in_loop(c), products.as_in_loop(h))


class _Products(NamedTuple):
    """The products of a layer.

    Attributes:
        pre_activations: of all gates, from the number of the step and h.
        project: the projection of the cell's output; None if there is none.
        features: the axis of the features in the loop; the other one is the batch.
    """

    pre_activations: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    project: Callable[[tf.Tensor], tf.Tensor] | None
    features: int

    def as_in_loop(self, x: tf.Tensor) -> tf.Tensor:
        """From (batch, features) to how it lies in the loop, and back."""
        return x if self.features == 1 else tf.transpose(x)


def _of_words(words: WordLookup, weights: LSTMWeights) -> _Products:
    """As (batch, features), so that a word's products are looked up as they lie."""
    kernel, bias, projection = weights
    input_dim = words.vectors.shape[1]
    of_words = words.vectors @ kernel[:input_dim] + bias  # (n, 4 * dim)
    recurrent = kernel[input_dim:]  # (hidden_dim, 4 * dim)
    return _Products(
        lambda t, h: h @ recurrent + tf.gather(of_words, words.ids[t]),  # (batch, 4 * dim)
        None if projection is None else lambda m: m @ projection,
        features=1,
    )


def _of_vectors(x: tf.Tensor, weights: LSTMWeights) -> _Products:
    """As (features, batch), in which products of few rows are faster."""
    kernel = tf.transpose(weights.kernel)  # (4 * dim, input_dim + hidden_dim)
    bias = weights.bias[:, tf.newaxis]  # (4 * dim, 1)
    # (hidden_dim, dim)
    projection = None if weights.projection is None else tf.transpose(weights.projection)
    return _Products(
        lambda t, h: kernel @ tf.concat([tf.transpose(x[t]), h], axis=0) + bias,
        None if projection is None else lambda m: projection @ m,
        features=0,
    )
