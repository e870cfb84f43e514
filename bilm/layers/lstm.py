"""One direction of the language model: a stack of projected, clipped LSTM layers.

Peters et al. (2018), section 3.4; the cell is that of Sak et al. (2014), "Long short-term memory
recurrent neural network architectures for large scale acoustic modeling". A state goes in and a
state comes out; whoever calls decides whether to keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bilm.layers.cell import LSTMState
from bilm.layers.initial_values import glorot
from bilm.layers.products import check_precision
from bilm.layers.recurrence import projected_lstm
from bilm.options import LSTMOptions

States = tuple[LSTMState, ...]


class Rows(NamedTuple):
    """Some of the rows of a batch that is divided among devices.

    Attributes:
        first: number of the first of them.
        total: rows of the whole batch.
    """

    first: int
    total: int


class LSTMWeights(NamedTuple):
    """The variables of one layer; the columns of kernel and bias are the gates i, j, f, o."""

    kernel: Any  # (2 * projection_dim, 4 * dim), rows are [input; recurrent output]
    bias: Any  # (4 * dim,)
    projection: Any  # (dim, projection_dim), or None when the two are equal

    def tensors(self) -> LSTMWeights:
        """Their values."""
        return LSTMWeights(*(None if w is None else tf.convert_to_tensor(w) for w in self))


class LSTMStack(keras.layers.Layer):
    """The layers of one direction.

    Call arguments:
        inputs: float32 (time, batch, projection_dim).
        states: a state per layer: c (batch, dim) and h (batch, projection_dim); a batch of 1 is
            for all rows alike.
        present: bool (time, batch); where False a layer's output is zeros and its state is
            handed on unchanged. None: every place counts.
        resets: bool (time, batch); where True a text begins: each layer's state before the step
            is that of `initial`. None: a row is one text.
        initial: a state per layer in which texts begin; None: `states`.
        dropout_seed: int32 (2,); None is no dropout. It applies to the input of each layer and
            to the last layer's output, not to the recurrence (Zaremba et al. 2014).
        dropout_rows: which rows of a larger batch `inputs` are, so that a row is dropped alike
            wherever it is; None: the whole batch.
        compiled: in place of the layer's own setting.

    Returns:
        the layers' outputs, each float32 (time, batch, projection_dim), and the new states.

    The backward direction of the model is a second stack that is fed the reversed text.
    """

    def __init__(
        self,
        options: LSTMOptions,
        *,
        dropout: float = 0.0,
        seed: int | None = None,
        precision: str = "float32",
        compiled: bool = False,
        own_gradient: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, dtype="float32", **kwargs)
        self.options = options
        self.dropout = dropout
        self.precision = check_precision(precision)
        self.compiled = compiled
        self.own_gradient = own_gradient
        self.can_be_saved = True  # with its gradient, in a SavedModel; who trains may do without
        self.layer_weights = [self._add_layer(i, seed) for i in range(options.n_layers)]
        self.initial = tuple(self._add_initial(i) for i in range(options.n_layers))
        self.built = True

    def _add_layer(self, i: int, seed: int | None) -> LSTMWeights:
        size, dim = self.options.projection_dim, self.options.dim
        named = f"{self.name}_{i}"
        kernel = self.add_weight(
            name=f"layer_{i}_kernel",
            shape=(2 * size, 4 * dim),
            initializer=glorot(seed, f"{named}_kernel"),
        )
        bias = self.add_weight(name=f"layer_{i}_bias", shape=(4 * dim,), initializer="zeros")
        if not self.options.has_projection:
            return LSTMWeights(kernel, bias, None)
        projection = self.add_weight(
            name=f"layer_{i}_projection",
            shape=(dim, size),
            initializer=glorot(seed, f"{named}_projection"),
        )
        return LSTMWeights(kernel, bias, projection)

    def _add_initial(self, i: int) -> LSTMState:
        sizes = self.options.dim, self.options.projection_dim
        return LSTMState(
            *(
                self.add_weight(
                    name=f"layer_{i}_initial_{name}",
                    shape=(1, size),
                    initializer="zeros",
                    trainable=False,
                )
                for name, size in zip(LSTMState._fields, sizes, strict=True)
            )
        )

    def initial_states(self) -> States:
        """The states in which texts begin, (1, ...) for all rows: zeros, unless `warm_up` set
        others."""
        return tuple(LSTMState(*map(tf.convert_to_tensor, state)) for state in self.initial)

    def zero_states(self, batch_size: Any) -> States:
        """Zeros for `batch_size` rows."""
        c = tf.zeros((batch_size, self.options.dim))
        h = tf.zeros((batch_size, self.options.projection_dim))
        return tuple(LSTMState(c, h) for _ in range(self.options.n_layers))

    def call(
        self,
        inputs: tf.Tensor,
        states: Sequence[LSTMState],
        present: tf.Tensor | None = None,
        dropout_seed: tf.Tensor | None = None,
        compiled: bool | None = None,
        resets: tf.Tensor | None = None,
        initial: Sequence[LSTMState] | None = None,
        dropout_rows: Rows | None = None,
    ) -> tuple[list[tf.Tensor], States]:
        """Run the layers over the time axis."""
        outputs, new_states = [], []
        x = inputs
        begin = states if initial is None else initial
        layers = zip(self.layer_weights, states, begin, strict=True)
        for i, (weights, state, first) in enumerate(layers):
            x = self._drop(x, dropout_seed, i, dropout_rows)
            h, new_state = self._run_layer(x, weights, state, (present, resets, first), compiled)
            x = h + x if i > 0 and self.options.use_skip_connections else h
            outputs.append(x)
            new_states.append(new_state)
        outputs[-1] = self._drop(x, dropout_seed, self.options.n_layers, dropout_rows)
        return outputs, tuple(new_states)

    def _run_layer(
        self,
        x: tf.Tensor,
        weights: LSTMWeights,
        state: LSTMState,
        places: tuple[tf.Tensor | None, tf.Tensor | None, LSTMState],
        compiled: bool | None,
    ) -> tuple[tf.Tensor, LSTMState]:
        return projected_lstm(
            x,
            *weights.tensors(),
            state,
            mask=places[0],
            resets=places[1],
            initial=places[2],
            cell_clip=self.options.cell_clip,
            proj_clip=self.options.proj_clip,
            compiled=self.compiled if compiled is None else compiled,
            precision=self.precision,
            own_gradient=self.own_gradient,
            can_be_saved=self.can_be_saved,
        )

    def _drop(
        self, x: tf.Tensor, seed: tf.Tensor | None, place: int, rows: Rows | None
    ) -> tf.Tensor:
        if seed is None or not self.dropout:
            return x
        seed = tf.stack([seed[0], seed[1] + place])
        if rows is None:
            return tf.nn.experimental.stateless_dropout(x, self.dropout, seed)
        whole = tf.ones((tf.shape(x)[0], rows.total, x.shape[2]))
        factors = tf.nn.experimental.stateless_dropout(whole, self.dropout, seed)
        return x * factors[:, rows.first : rows.first + x.shape[1]]
