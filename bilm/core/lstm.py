"""One direction of the language model: a stack of projected, clipped LSTM layers.

Peters et al. (2018), section 3.4. A state goes in and a state comes out; whoever calls decides
whether to keep it. How the layers are executed is chosen by a `Mode`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.core.cell import Boundaries, Clips, LSTMState, LSTMWeights, Mode
from bilm.core.initial_values import glorot
from bilm.core.keras_backend import keras
from bilm.core.options import LSTMOptions
from bilm.core.products import check_precision
from bilm.core.recurrence import ProductLookup, WordLookup, projected_lstm, xla_lstm

States = tuple[LSTMState, ...]


class BatchSlice(NamedTuple):
    """Some of the rows of a batch that is divided among devices."""

    first: int  # number of the first of them
    total: int  # rows of the whole batch


@dataclass(frozen=True)
class Dropout:
    """The random numbers of dropout."""

    seed: Any  # int64 (2,); it determines, with the place in the network, what is dropped
    # Which rows of a larger batch the inputs are, so that a row is dropped alike wherever it is;
    # None: the whole batch.
    rows: BatchSlice | None = None

    def apply(self, x: tf.Tensor, rate: float, layer: int) -> tf.Tensor:
        """Drop values of x (time, batch, features) before layer number `layer`."""
        seed = tf.stack([self.seed[0], self.seed[1] + layer])
        if self.rows is None:
            return tf.nn.experimental.stateless_dropout(x, rate, seed)
        whole = tf.ones((tf.shape(x)[0], self.rows.total, x.shape[2]))
        factors = tf.nn.experimental.stateless_dropout(whole, rate, seed)
        # (time, total, features) -> (time, batch, features)
        return x * factors[:, self.rows.first : self.rows.first + x.shape[1]]


class LSTMStack(keras.layers.Layer):
    """The layers of one direction.

    Args:
        options: sizes, clips, skip connections.
        dropout: rate of dropout.
        seed: of the initial values; None leaves zeros, for weights that are about to be loaded.
        precision: "float32", or "bfloat16" for products in bfloat16.
        mode: how the layers are executed when a call does not say.

    Call arguments:
        inputs: float32 (time, batch, projection_dim), or a `WordLookup`; for
            `Mode.COMPILED_LOOP` a `ProductLookup`, of a table that `word_products` computes.
        states: a state per layer before the first step: c (batch, dim) and h (batch,
            projection_dim); a batch of 1 is for all rows alike.
        padding_mask: bool (time, batch); where False a layer's output is zeros and its state is
            handed on unchanged. None: every position counts.
        resets: bool (time, batch); where True a text begins: each layer's state before the step
            is that of `initial`. None: a row is one text.
        initial: a state per layer in which texts begin; None: `states`.
        dropout: None is no dropout. It applies to the input of each layer and to the last layer's
            output, not to the recurrence (Zaremba et al. 2014).
        mode: in place of the stack's own. `Mode.COMPILED_LOOP` takes float32, needs resets and a
            `ProductLookup`, and has neither a mask nor dropout.
        n_steps: int32 (); of `Mode.COMPILED_LOOP`: steps that count, the others at the end do not.

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
        mode: Mode = Mode.KERAS,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, dtype="float32", **kwargs)
        self.options = options
        self.dropout = dropout
        self.precision = check_precision(precision)
        self.mode = mode
        self.layer_weights = [self._add_layer(i, seed) for i in range(options.n_layers)]
        self.initial = tuple(self._add_initial(i) for i in range(options.n_layers))
        self.built = True

    def _add_layer(self, i: int, seed: int | None) -> LSTMWeights:
        size, dim = self.options.projection_dim, self.options.dim
        shapes = {"kernel": (2 * size, 4 * dim), "bias": (4 * dim,), "projection": (dim, size)}
        if not self.options.has_projection:
            del shapes["projection"]
        added = {
            name: self.add_weight(
                name=f"layer_{i}_{name}",
                shape=shape,
                initializer="zeros" if name == "bias" else glorot(seed, f"{self.name}_{i}_{name}"),
            )
            for name, shape in shapes.items()
        }
        return LSTMWeights(**({"projection": None} | added))

    def _add_initial(self, i: int) -> LSTMState:
        def add(name: str, size: int) -> Any:
            name = f"layer_{i}_initial_{name}"
            return self.add_weight(name=name, shape=(1, size), initializer="zeros", trainable=False)

        return LSTMState(add("c", self.options.dim), add("h", self.options.projection_dim))

    def initial_states(self) -> States:
        """The states in which texts begin, (1, ...) for all rows: zeros, unless a warm-up set
        others."""
        return tuple(LSTMState(*map(tf.convert_to_tensor, state)) for state in self.initial)

    def zero_states(self, batch_size: Any) -> States:
        """Zeros for `batch_size` rows."""
        c = tf.zeros((batch_size, self.options.dim))
        h = tf.zeros((batch_size, self.options.projection_dim))
        return tuple(LSTMState(c, h) for _ in range(self.options.n_layers))

    def word_products(self, vectors: tf.Tensor) -> tf.Tensor:
        """What words (n, projection_dim) give to the first layer's pre-activations, the bias added:
        float32 (n, 4 * dim)."""
        kernel, bias, _ = self.layer_weights[0].tensors()
        return vectors @ kernel[: self.options.projection_dim] + bias

    def call(
        self,
        inputs: tf.Tensor | WordLookup | ProductLookup,
        states: Sequence[LSTMState],
        padding_mask: tf.Tensor | None = None,
        resets: tf.Tensor | None = None,
        initial: Sequence[LSTMState] | None = None,
        dropout: Dropout | None = None,
        mode: Mode | None = None,
        n_steps: tf.Tensor | None = None,
    ) -> tuple[list[tf.Tensor], States]:
        """Run the layers over the time axis."""
        mode, drop = mode or self.mode, None
        if dropout is not None and self.dropout:
            drop = functools.partial(dropout.apply, rate=self.dropout)
        boundaries = [Boundaries(padding_mask, resets, state) for state in initial or states]
        weights = [weights.tensors() for weights in self.layer_weights]
        if mode is Mode.COMPILED_LOOP:
            return _xla_layers(self.options)(inputs, weights, states, boundaries, n_steps)
        inputs = inputs.looked_up() if isinstance(inputs, WordLookup) else inputs
        clips = Clips(self.options.cell_clip, self.options.proj_clip)
        run: Callable[..., tuple[tf.Tensor, LSTMState]]
        if mode is Mode.INFERENCE and tf.inside_function():
            run = _traced_layer(clips, self.precision)
        else:
            run = functools.partial(
                projected_lstm, clips=clips, mode=mode, precision=self.precision
            )
        return run_layers(inputs, weights, states, boundaries, run, self.options, drop)


def run_layers(
    inputs: tf.Tensor | ProductLookup,
    weights: Sequence[LSTMWeights],
    states: Sequence[LSTMState],
    boundaries: Sequence[Boundaries],
    run_layer: Callable[..., tuple[tf.Tensor, LSTMState]],
    options: LSTMOptions,
    drop: Callable[..., tf.Tensor] | None = None,
) -> tuple[list[tf.Tensor], States]:
    """All layers of a direction, each by `run_layer`; see `LSTMStack`.

    From the second layer on, a skip connection adds a layer's input to its output.
    """
    outputs: list[tf.Tensor] = []
    new_states = []
    x = inputs
    for i, of_layer in enumerate(zip(weights, states, boundaries, strict=True)):
        x = x if drop is None else drop(x, layer=i)
        h, new_state = run_layer(x, *of_layer)
        x = h + x if i > 0 and options.use_skip_connections else h
        outputs.append(x)
        new_states.append(new_state)
    if drop is not None:
        outputs[-1] = drop(x, layer=options.n_layers)
    return outputs, tuple(new_states)


@functools.cache
def _xla_layers(options: LSTMOptions) -> Callable[..., tuple[list[tf.Tensor], States]]:
    """All layers of a direction as one program, compiled once for each shape in a process."""

    def run(
        inputs: ProductLookup,
        weights: Sequence[LSTMWeights],
        states: Sequence[LSTMState],
        boundaries: Sequence[Boundaries],
        n_steps: tf.Tensor,
    ) -> tuple[list[tf.Tensor], States]:
        clips = Clips(options.cell_clip, options.proj_clip)
        run_layer = functools.partial(xla_lstm, clips=clips, n_steps=n_steps)
        return run_layers(inputs, weights, states, boundaries, run_layer, options)

    return tf.function(run, jit_compile=True, autograph=False)


@functools.cache
def _traced_layer(clips: Clips, precision: str) -> Callable[..., tuple[tf.Tensor, LSTMState]]:
    """`projected_lstm` as a function within a function: it is traced once for all layers and
    directions, and not for each."""
    run = functools.partial(projected_lstm, clips=clips, mode=Mode.INFERENCE, precision=precision)
    # Within the other function it would be made ready to run once for each call.
    attributes = {"_noinline": True}
    return tf.function(run, autograph=False, experimental_attributes=attributes)
