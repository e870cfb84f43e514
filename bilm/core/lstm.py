"""One direction of the language model: a stack of projected, clipped LSTM layers.

Peters et al. (2018), section 3.4. A call takes states and returns new states; the caller decides
whether to keep them. A `Mode` chooses the executor of the layers.
"""

import enum
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.core.keras_backend import glorot, keras
from bilm.core.options import LSTMOptions
from bilm.core.recurrence import (
    Boundaries,
    Clips,
    LSTMState,
    LSTMWeights,
    plain_lstm,
    projected_lstm,
)
from bilm.core.xla_lstm import ProductLookup, xla_lstm

States = tuple[LSTMState, ...]


class Mode(enum.Enum):
    """How LSTM layers are run. All modes compute the same values, up to rounding."""

    # The readable loop, with automatic differentiation; the only mode with a padding mask.
    PLAIN = "plain"
    # Custom backward pass; the operations of a step are compiled with XLA. Requires a static number
    # of steps.
    TRAINING = "training"
    # No gradient, no compilation. For shapes that vary.
    INFERENCE = "inference"
    # No gradient, compiled steps. For many batches of few shapes.
    COMPILED_STEPS = "compiled steps"
    # No gradient, all layers of a direction in one compiled program. For packed sentences and
    # small layers (see `compiled_loop_is_fastest`).
    COMPILED_LOOP = "compiled loop"


# Largest kernel in bytes that stays in the cache; beyond it, `Mode.COMPILED_STEPS` is faster.
_KERNEL_BYTES = 4 * 2**20


def compiled_loop_is_fastest(options: LSTMOptions, precision: str) -> bool:
    """Whether `Mode.COMPILED_LOOP` is the fastest mode: the kernel fits the cache, and the matmuls
    are float32 (XLA has no fast bfloat16 matmuls for CPUs)."""
    kernel = 2 * options.projection_dim * 4 * options.dim
    return precision == "float32" and tf.float32.size * kernel <= _KERNEL_BYTES


# The function that runs one layer over all time steps, by mode.
EXECUTORS: dict[Mode, Callable[..., tuple[tf.Tensor, LSTMState]]] = {
    Mode.PLAIN: plain_lstm,
    Mode.TRAINING: functools.partial(projected_lstm, trains=True, compiled=True),
    Mode.INFERENCE: functools.partial(projected_lstm, trains=False, compiled=False),
    Mode.COMPILED_STEPS: functools.partial(projected_lstm, trains=False, compiled=True),
    Mode.COMPILED_LOOP: xla_lstm,
}


class BatchSlice(NamedTuple):
    """The rows of one device, if a batch is divided among devices."""

    first: int  # the first row
    total: int  # rows of the complete batch


@dataclass(frozen=True)
class Dropout:
    """Dropout with random numbers that do not depend on how rows are split over devices."""

    rate: float
    seed: Any  # int64 (2,); every layer derives its own seed from it
    rows: BatchSlice | None = None  # None: the complete batch

    def __call__(self, x: tf.Tensor, layer: int) -> tf.Tensor:
        """Drop values of x (time, batch, features) before layer number `layer`."""
        seed = tf.stack([self.seed[0], self.seed[1] + layer])
        if self.rows is None:
            return tf.nn.experimental.stateless_dropout(x, self.rate, seed)
        ones = tf.ones((tf.shape(x)[0], self.rows.total, x.shape[2]))
        factors = tf.nn.experimental.stateless_dropout(ones, self.rate, seed)
        # (time, total, features) -> (time, batch, features)
        return x * factors[:, self.rows.first : self.rows.first + x.shape[1]]


class LSTMStack(keras.layers.Layer):
    """The layers of one direction. The backward direction is a second stack, fed reversed text.

    Args:
        seed: seed of the initial values; None: zeros.
        precision: "float32", or "bfloat16" for matmuls in bfloat16.

    Call arguments:
        inputs: float32 (time, batch, projection_dim); for `Mode.COMPILED_LOOP` a `ProductLookup`
            of a table from `word_products`.
        states: one state per layer before the first step.
        boundaries: resets and, in `Mode.PLAIN`, padding; `initial` has one state per layer.
        dropout: None: no dropout. It applies to the input of each layer and to the last layer's
            output, not to the recurrence (Zaremba et al. 2014).
        mode: `Mode.COMPILED_LOOP` requires float32 and resets, and allows no dropout.

    Returns:
        the layers' outputs, each float32 (time, batch, projection_dim), and the new states.
    """

    def __init__(
        self,
        options: LSTMOptions,
        *,
        seed: int | None = None,
        precision: str = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, dtype="float32", **kwargs)
        self.options = options
        self.precision = precision
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
        """The states at the start of a sentence, (1, ...): zeros, unless a warm-up or the weights
        file set them."""
        return tuple(LSTMState(*map(tf.convert_to_tensor, state)) for state in self.initial)

    def zero_states(self, batch_size: Any) -> States:
        c = tf.zeros((batch_size, self.options.dim))
        h = tf.zeros((batch_size, self.options.projection_dim))
        return (LSTMState(c, h),) * self.options.n_layers

    def word_products(self, vectors: tf.Tensor) -> tf.Tensor:
        """First-layer pre-activations `x @ W_x + b` of word vectors x: (n, 4 * dim)."""
        kernel, bias, _ = self.layer_weights[0].tensors()
        return vectors @ kernel[: self.options.projection_dim] + bias

    def call(
        self,
        inputs: tf.Tensor | ProductLookup,
        states: Sequence[LSTMState],
        boundaries: Boundaries = Boundaries(),  # noqa: B008 - it is immutable
        dropout: Dropout | None = None,
        mode: Mode = Mode.PLAIN,
    ) -> tuple[list[tf.Tensor], States]:
        if boundaries.mask is not None and mode is not Mode.PLAIN:
            raise ValueError("Only Mode.PLAIN takes a padding mask.")
        weights = [weights.tensors() for weights in self.layer_weights]
        if mode is Mode.COMPILED_LOOP:
            return _xla_layers(self.options)(inputs, weights, states, boundaries)
        clips = Clips(self.options.cell_clip, self.options.proj_clip)
        if mode is Mode.INFERENCE and tf.inside_function():
            run_layer = _traced_layer(clips, self.precision)
        else:
            run_layer = functools.partial(EXECUTORS[mode], clips=clips, precision=self.precision)
        return _run_layers(inputs, weights, states, boundaries, run_layer, self.options, dropout)


def _run_layers(
    inputs: tf.Tensor | ProductLookup,
    weights: Sequence[LSTMWeights],
    states: Sequence[LSTMState],
    boundaries: Boundaries,
    run_layer: Callable[..., tuple[tf.Tensor, LSTMState]],
    options: LSTMOptions,
    dropout: Dropout | None = None,
) -> tuple[list[tf.Tensor], States]:
    """Run the layers of one direction with an executor; see `LSTMStack`."""
    outputs: list[tf.Tensor] = []
    new_states = []
    x = inputs
    for i, (layer_weights, state) in enumerate(zip(weights, states, strict=True)):
        x = x if dropout is None else dropout(x, i)
        initial = None if boundaries.initial is None else boundaries.initial[i]
        h, new_state = run_layer(x, layer_weights, state, boundaries._replace(initial=initial))
        x = h + x if i > 0 and options.use_skip_connections else h
        outputs.append(x)
        new_states.append(new_state)
    if dropout is not None:
        outputs[-1] = dropout(x, options.n_layers)
    return outputs, tuple(new_states)


@functools.cache
def _xla_layers(options: LSTMOptions) -> Callable[..., tuple[list[tf.Tensor], States]]:
    """All layers of a direction as one program, compiled once per shape and process."""
    run_layer = functools.partial(
        EXECUTORS[Mode.COMPILED_LOOP], clips=Clips(options.cell_clip, options.proj_clip)
    )

    def run(inputs: ProductLookup, weights: Any, states: Any, boundaries: Boundaries) -> Any:
        run_steps = functools.partial(run_layer, n_steps=inputs.n_steps)
        return _run_layers(inputs, weights, states, boundaries, run_steps, options)

    return tf.function(run, jit_compile=True, autograph=False)


@functools.cache
def _traced_layer(clips: Clips, precision: str) -> Callable[..., tuple[tf.Tensor, LSTMState]]:
    """The executor of `Mode.INFERENCE` as a nested function, traced once for all layers and
    directions."""
    run_layer = functools.partial(EXECUTORS[Mode.INFERENCE], clips=clips, precision=precision)
    # If it were inlined, TensorFlow would prepare it once per call.
    attributes = {"_noinline": True}
    return tf.function(run_layer, autograph=False, experimental_attributes=attributes)
