"""The loop over the steps of one LSTM layer, in two orders of work; the cell is in `cell`.

`projected_lstm` has a backward pass of its own. Inside its loop everything lies as (features,
batch): the weights are then the large left factor of every product, which is where matrix products
of few rows are fastest, and the gates are whole blocks. A step is one product with [x; h], the
cell, one product with the projection. The backward loop has the same two products, transposed; each
weight's gradient is one large product over all steps after it. Between the two the pre-activations
z are saved, not the gates: to compute the gates again costs less than to write and read them.

`xla_lstm` is for inference on much text with small layers, as part of a program that XLA compiles
whole. That is faster while a layer's weights stay in a cache: the loop over the steps is compiled
with what it does, and what the first layer reads are products of words with its kernel, computed
once for each word, not at each position.

Source: Peters et al. (2018), section 3.4.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.core.cell import (
    Boundaries,
    Clips,
    LSTMState,
    LSTMWeights,
    Mode,
    cell,
    clipped,
    over_rows,
)
from bilm.core.options import LSTMOptions


def projected_lstm(
    inputs: tf.Tensor,
    weights: LSTMWeights,
    state: LSTMState,
    boundaries: Boundaries = Boundaries(),  # noqa: B008 - a value that cannot change
    *,
    clips: Clips = Clips(),  # noqa: B008
    mode: Mode = Mode.KERAS,
    precision: str = "float32",
) -> tuple[tf.Tensor, LSTMState]:
    """Run the cell over all steps of `inputs`.

    Args:
        inputs: float32 (time, batch, input_dim), at least one step.
        weights: float32 tensors.
        state: before the first step, (batch, ...) or (1, ...).
        boundaries: where texts are in the rows.
        clips: of the cell state and of the projection.
        mode: what is compiled, and what is saved for the gradient. Compiled are the operations
            between the products: once, quickly, for each batch size, whatever the number of steps.
        precision: "float32", or "bfloat16" for products of factors rounded to bfloat16, which
            accumulate in float32 and round their result; gates, cell state and clipping stay
            float32.

    Returns:
        outputs: float32 (time, batch, hidden_dim), and the state after the last step.

    Gradients reach `inputs`, the weights and `state`, once (no gradients of gradients).
    """
    given = [weight for weight in weights if weight is not None]
    n_rows = tf.shape(inputs)[1] if inputs.shape[1] is None else inputs.shape[1]
    initial = state if boundaries.initial is None else boundaries.initial
    state = over_rows(state, n_rows)
    resets_after, transposed_initial = None, None
    if boundaries.resets is not None:
        # In the loop a state is reset at the end of the step before, which the compiled cell does
        # at no cost; so the first step's resets come before the loop.
        resets = tf.convert_to_tensor(boundaries.resets)
        at_first = resets[0, :, tf.newaxis]  # (batch, 1)
        state = LSTMState(*(tf.where(at_first, *x) for x in zip(initial, state, strict=True)))
        resets_after = tf.concat([resets[1:], tf.zeros_like(resets[:1])], axis=0)
        # (batch, features) -> (features, batch)
        transposed_initial = LSTMState(*(tf.transpose(tf.stop_gradient(x)) for x in initial))
    layer = _Layer(
        _step_functions(
            clips.cell, None if weights.projection is None else clips.projection,
            mode.compiles_steps,
        ),
        tf.as_dtype(precision),
        _StepMasks(_by_step(boundaries.mask), _by_step(resets_after), transposed_initial),
        stacks_activations=mode is Mode.KERAS,
    )  # fmt: skip

    if not mode.saves_activations:
        (outputs, c, h), _ = layer.forward(inputs, state.c, state.h, tuple(given), saves=False)
        return outputs, LSTMState(c, h)

    @tf.custom_gradient
    def run(inputs: tf.Tensor, c: tf.Tensor, h: tf.Tensor, *weights: tf.Tensor) -> Any:
        result, saved = layer.forward(inputs, c, h, weights)

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            return layer.backward(upstream, saved, weights)

        return result, gradient

    outputs, c, h = run(inputs, state.c, state.h, *given)
    return outputs, LSTMState(c, h)


class _StepMasks(NamedTuple):
    """Padding mask and reset mask: bool (time, 1, batch), of a step (1, batch); or None."""

    mask: tf.Tensor | None  # where False nothing is computed
    resets_after: tf.Tensor | None  # where True the state after the step is `initial`
    initial: LSTMState | None  # (features, batch or 1), if there are resets

    def at(self, t: tf.Tensor) -> _StepMasks:
        mask, resets = (None if x is None else x[t] for x in self[:2])
        return _StepMasks(mask, resets, self.initial)

    def output(self, new: tf.Tensor) -> tf.Tensor:
        return new if self.mask is None else tf.where(self.mask, new, tf.zeros_like(new))

    def state(self, part: str, old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        if self.mask is not None:
            new = tf.where(self.mask, new, old)
        if self.resets_after is None:
            return new
        return tf.where(self.resets_after, getattr(self.initial, part), new)


def _by_step(mask: tf.Tensor | None) -> tf.Tensor | None:
    """(time, batch) -> (time, 1, batch): in a step, the batch is the second axis."""
    return None if mask is None else tf.convert_to_tensor(mask)[:, tf.newaxis, :]


def _cell(
    z: tf.Tensor, bias: tf.Tensor, c: tf.Tensor, masks: _StepMasks, clip: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The new cell state, and what is projected; z (4 * dim, batch), bias (4 * dim, 1)."""
    new_c, m = cell(tf.split(tf.cast(z, tf.float32) + bias, 4, axis=0), c, clip)
    return masks.state("c", c, new_c), tf.cast(m, z.dtype)


def _output(
    p: tf.Tensor, h: tf.Tensor, masks: _StepMasks, clip: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The output and the new recurrent state from the projection; both (hidden_dim, batch)."""
    new_h = clipped(tf.cast(p, tf.float32), clip)
    return masks.output(new_h), masks.state("h", h, new_h)


def _cell_gradient(
    z: tf.Tensor,
    bias: tf.Tensor,
    c: tf.Tensor,
    masks: _StepMasks,
    d_c: tf.Tensor,
    d_m: tf.Tensor,
    clip: float | None,
) -> tuple[tf.Tensor, ...]:
    """Gradients of z, bias and c; and the cell's m again, which the projection's gradient needs."""
    with tf.GradientTape() as tape:
        tape.watch((z, bias, c))
        new_c, m = _cell(z, bias, c, masks, clip)
    return (*tape.gradient((new_c, m), (z, bias, c), (d_c, d_m)), m)


def _output_gradient(
    p: tf.Tensor,
    h: tf.Tensor,
    masks: _StepMasks,
    d_output: tf.Tensor,
    d_h: tf.Tensor,
    clip: float | None,
) -> tuple[tf.Tensor, ...]:
    """Gradients of p, and of h where it was handed on."""
    with tf.GradientTape() as tape:
        tape.watch((p, h))
        results = _output(p, h, masks, clip)
    return tape.gradient(results, (p, h), (d_output, d_h), unconnected_gradients="zero")


class _Steps(NamedTuple):
    cell: Any
    output: Any
    cell_gradient: Any
    output_gradient: Any


@functools.cache
def _step_functions(cell_clip: float | None, proj_clip: float | None, compiled: bool) -> _Steps:
    """The functions of a step; cached, so that nothing is compiled twice in a process."""
    steps = _Steps(
        functools.partial(_cell, clip=cell_clip),
        functools.partial(_output, clip=proj_clip),
        functools.partial(_cell_gradient, clip=cell_clip),
        functools.partial(_output_gradient, clip=proj_clip),
    )
    if not compiled:
        return steps
    return _Steps(*(tf.function(s, jit_compile=True, autograph=False) for s in steps))


class _Saved(NamedTuple):
    """What the backward loop needs: (time, features, batch), or TensorArrays of its steps."""

    xh: Any  # [x; h], the right factor of the step's product
    z: Any  # the product
    c: Any  # the cell state before the step
    p: Any  # the projection before it is clipped


class _Layer(NamedTuple):
    steps: _Steps
    dtype: tf.DType  # of the products
    masks: _StepMasks
    stacks_activations: bool  # SavedModel cannot serialise gradients that read TensorArrays

    def forward(
        self,
        inputs: tf.Tensor,
        c: tf.Tensor,
        h: tf.Tensor,
        weights: tuple[tf.Tensor, ...],
        saves: bool = True,
    ) -> tuple[tuple[tf.Tensor, ...], Any]:
        """Outputs and state as `projected_lstm` returns them, and what `backward` needs."""
        # (input_dim + hidden_dim, 4 * dim) -> (4 * dim, input_dim + hidden_dim), and
        # (dim, hidden_dim) -> (hidden_dim, dim): without, the products take a third longer.
        kernel, *projection = [tf.transpose(tf.cast(w, self.dtype)) for w in _matrices(weights)]
        bias = weights[1][:, tf.newaxis]  # (4 * dim, 1)
        n_steps = _length(inputs)
        inputs = tf.cast(_transposed(inputs), self.dtype)

        def step(t: tf.Tensor, c: tf.Tensor, h: tf.Tensor, outputs: Any, saved: Any) -> Any:
            masks = self.masks.at(t)
            # (input_dim + hidden_dim, batch), and the pre-activations (4 * dim, batch)
            xh = tf.concat([inputs[t], tf.cast(h, self.dtype)], axis=0)
            z = kernel @ xh
            new_c, m = self.steps.cell(z, bias, c, masks)
            p = projection[0] @ m if projection else m  # (hidden_dim, batch)
            output, new_h = self.steps.output(p, h, masks)
            if saves:
                saved = _Saved(*(a.write(t, v) for a, v in zip(saved, (xh, z, c, p), strict=True)))
            return t + 1, new_c, new_h, outputs.write(t, output), saved

        saved: Any = ()
        if saves:
            dtypes = (self.dtype, self.dtype, c.dtype, self.dtype)
            saved = _Saved(*(_array(n_steps, dtype) for dtype in dtypes))
        loop = (0, tf.transpose(c), tf.transpose(h), _array(n_steps, tf.float32), saved)
        _, c, h, outputs, saved = tf.while_loop(lambda t, *_: t < n_steps, step, loop)
        if saves:
            others = (a.stack() if self.stacks_activations else a for a in saved[1:])
            saved = _Saved(saved.xh.stack(), *others)
        return (_transposed(outputs.stack()), tf.transpose(c), tf.transpose(h)), saved

    def backward(
        self, upstream: tuple[tf.Tensor, ...], saved: _Saved, weights: tuple[tf.Tensor, ...]
    ) -> list[tf.Tensor]:
        """Gradients of inputs, c, h and the weights, from those of outputs, c and h."""
        d_outputs, d_c, d_h = upstream
        d_outputs = _transposed(d_outputs)
        kernel, *projection = [tf.cast(w, self.dtype) for w in _matrices(weights)]
        bias = weights[1][:, tf.newaxis]  # (4 * dim, 1)
        n_steps, input_dim = _length(d_outputs), kernel.shape[0] - d_outputs.shape[1]

        def step(t: tf.Tensor, d_c: tf.Tensor, d_h: tf.Tensor, d_bias: tf.Tensor, made: Any) -> Any:
            masks = self.masks.at(t)
            d_p, d_h = self.steps.output_gradient(_at(saved.p, t), d_h, masks, d_outputs[t], d_h)
            d_m = projection[0] @ d_p if projection else d_p
            d_z, d_bias_t, d_c, m = self.steps.cell_gradient(
                _at(saved.z, t), bias, _at(saved.c, t), masks, d_c, d_m
            )
            d_xh = tf.cast(kernel @ d_z, tf.float32)  # (input_dim + hidden_dim, batch)
            values = (d_xh[:input_dim], d_z, m, d_p)
            made = tuple(a.write(t, v) for a, v in zip(made, values, strict=True))
            return t - 1, d_c, d_h + d_xh[input_dim:], d_bias + d_bias_t, made

        made = (_array(n_steps, tf.float32), *(_array(n_steps, self.dtype) for _ in range(3)))
        loop = (n_steps - 1, tf.transpose(d_c), tf.transpose(d_h), tf.zeros_like(bias), made)
        _, d_c, d_h, d_bias, made = tf.while_loop(lambda t, *_: t >= 0, step, loop)
        d_inputs, d_z, m, d_p = (a.stack() for a in made)
        gradients = [_transposed(d_inputs), tf.transpose(d_c), tf.transpose(d_h)]
        gradients += [_over_all_steps(saved.xh, d_z), d_bias[:, 0]]
        return [*gradients, _over_all_steps(m, d_p)] if projection else gradients


def _matrices(weights: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
    """Kernel, and projection if there is one."""
    return (weights[0], *weights[2:])


def _over_all_steps(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The sum over steps of a times b transposed, as one product: (a's features, b's)."""
    return tf.cast(tf.einsum("tib,tob->io", a, b), tf.float32)


def _transposed(x: tf.Tensor) -> tf.Tensor:
    """(time, batch, features) <-> (time, features, batch)."""
    return tf.transpose(x, (0, 2, 1))


def _length(x: tf.Tensor) -> Any:
    """Of the first axis; a number where it is known, as XLA must have it."""
    return tf.shape(x)[0] if x.shape[0] is None else x.shape[0]


def _at(values: tf.Tensor | tf.TensorArray, t: tf.Tensor) -> tf.Tensor:
    """What was saved of a step."""
    return values.read(t) if isinstance(values, tf.TensorArray) else values[t]


def _array(n_steps: Any, dtype: tf.DType) -> tf.TensorArray:
    return tf.TensorArray(dtype, n_steps, clear_after_read=False)


# Bytes of a kernel that stays in a cache; with a larger one the first layer's products, as
# (batch, features), are slower than those of `recurrence`.
_KERNEL_BYTES = 4 * 2**20
# From so many rows on, products with the weights as the left factor are not slower.
_MANY_ROWS = 32
# With fewer rows, steps whose inputs are multiplied together.
_BLOCK_STEPS = 8


class WordLookup(NamedTuple):
    """Inputs as rows of a table."""

    vectors: Any  # float32 (n, input_dim), of the distinct words
    ids: Any  # int32 (time, batch), the row in `vectors` of each position's word

    def looked_up(self) -> tf.Tensor:
        """float32 (time, batch, input_dim)."""
        return tf.gather(self.vectors, self.ids)


class ProductLookup(NamedTuple):
    """Inputs as rows of a table of what they give to a layer's pre-activations."""

    products: Any  # float32 (n, 4 * dim), of the distinct words, the bias added
    ids: Any  # int32 (time, batch), the row in `products` of each position's word


def is_faster_for(options: LSTMOptions, precision: str) -> bool:
    """Whether layers are faster in one program than step by step.

    Their kernel has to fit a cache; and XLA has no fast products of bfloat16 on a CPU.
    """
    kernel = 2 * options.projection_dim * 4 * options.dim
    return precision == "float32" and tf.float32.size * kernel <= _KERNEL_BYTES


def xla_lstm(
    inputs: tf.Tensor | ProductLookup,
    weights: LSTMWeights,
    state: LSTMState,
    boundaries: Boundaries,
    *,
    clips: Clips,
    n_steps: tf.Tensor,
) -> tuple[tf.Tensor, LSTMState]:
    """Run the cell over the first `n_steps` steps of `inputs`; within a compiled function.

    Args:
        inputs: words of a table of products, or float32 (time, batch, input_dim).
        weights, state, boundaries, clips: as for `projected_lstm`; there is no mask.
        n_steps: int32 (); steps from there on are left out.

    Returns:
        outputs: float32 (time, batch, hidden_dim), zeros from `n_steps` on, and the state after
        the last step.
    """
    products = (_of_words if isinstance(inputs, ProductLookup) else _of_vectors)(inputs, weights)
    read = inputs.ids if isinstance(inputs, ProductLookup) else inputs
    # Constants to XLA, which compiles for each shape.
    max_steps, n_rows = tf.unstack(tf.shape(read)[:2])
    initial = state if boundaries.initial is None else boundaries.initial
    initial = LSTMState(*map(products.as_in_loop, initial))
    before = over_rows(state, n_rows)

    def block(first: tf.Tensor, *carried: Any) -> Any:
        """Some steps from `first` on."""
        of_inputs = products.of_inputs(first)

        def step(t: tf.Tensor, c: tf.Tensor, h: tf.Tensor, outputs: tf.TensorArray) -> Any:
            begins = tf.expand_dims(boundaries.resets[t], products.features)
            c, h = tf.where(begins, initial.c, c), tf.where(begins, initial.h, h)
            gates = tf.split(of_inputs(t, h), 4, axis=products.features)
            c, h = cell(gates, c, clips.cell)
            if products.project is not None:
                h = clipped(products.project(h), clips.projection)
            return t + 1, c, h, outputs.write(t, products.as_in_loop(h))

        stop = n_steps if products.block is None else tf.minimum(first + products.block, n_steps)
        return tf.while_loop(lambda t, *_: t < stop, step, (first, *carried))

    element_shape = (read.shape[1], before.h.shape[1])
    outputs = tf.TensorArray(tf.float32, max_steps, element_shape=element_shape)
    loop = (0, *map(products.as_in_loop, before), outputs)
    if products.block is None:
        _, c, h, outputs = block(*loop)
    else:
        _, c, h, outputs = tf.while_loop(lambda t, *_: t < n_steps, block, loop)
    return outputs.stack(), LSTMState(products.as_in_loop(c), products.as_in_loop(h))


# Pre-activations of all gates, from the number of a step and h.
_PreActivations = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class _Products(NamedTuple):
    """The products of a layer."""

    of_inputs: Callable[[tf.Tensor], _PreActivations]  # of the steps of a block, from its first one
    project: Callable[[tf.Tensor], tf.Tensor] | None  # of the cell's output; None: there is none
    features: int  # the axis of the features in the loop; the other one is the batch
    block: int | None = None  # steps; None: all of them

    def as_in_loop(self, x: tf.Tensor) -> tf.Tensor:
        """From (batch, features) to how it lies in the loop, and back."""
        return x if self.features == 1 else tf.transpose(x)


def _of_words(words: ProductLookup, weights: LSTMWeights) -> _Products:
    """As (batch, features), so that a word's products are looked up as they lie."""
    recurrent, projection = _recurrent(weights), weights.projection

    def pre_activations(t: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
        return h @ recurrent + tf.gather(words.products, words.ids[t])  # (batch, 4 * dim)

    return _Products(
        lambda _: pre_activations,
        None if projection is None else lambda m: m @ projection,
        features=1,
    )


def _recurrent(weights: LSTMWeights) -> tf.Tensor:
    """The part of the kernel that is for h: (hidden_dim, 4 * dim)."""
    kernel, _, projection = weights
    return kernel[-(kernel.shape[1] // 4 if projection is None else projection.shape[1]) :]


def _of_vectors(x: tf.Tensor, weights: LSTMWeights) -> _Products:
    """As (batch, features) for few rows, and as (features, batch) for many or an unknown number:
    as is faster."""
    if (x.shape[1] or _MANY_ROWS) < _MANY_ROWS:
        return _in_blocks(x, weights)
    kernel = tf.transpose(weights.kernel)  # (4 * dim, input_dim + hidden_dim)
    bias = weights.bias[:, tf.newaxis]  # (4 * dim, 1)
    # (hidden_dim, dim)
    projection = None if weights.projection is None else tf.transpose(weights.projection)

    def pre_activations(t: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
        return kernel @ tf.concat([tf.transpose(x[t]), h], axis=0) + bias  # (4 * dim, batch)

    return _Products(
        lambda _: pre_activations,
        None if projection is None else lambda m: projection @ m,
        features=0,
    )


def _in_blocks(x: tf.Tensor, weights: LSTMWeights) -> _Products:
    """What the inputs of some steps give, in one product: with few rows, reading the weights costs
    as much as multiplying with them, and so they are read once for these steps."""
    recurrent, projection = _recurrent(weights), weights.projection
    n_rows, size = x.shape[1:]
    x = tf.pad(x, [(0, -tf.shape(x)[0] % _BLOCK_STEPS), (0, 0), (0, 0)])  # whole blocks

    def of_inputs(first: tf.Tensor) -> _PreActivations:
        # (steps, batch, input_dim) -> (steps * batch, input_dim), for the product
        block = tf.reshape(tf.slice(x, (first, 0, 0), (_BLOCK_STEPS, n_rows, size)), (-1, size))
        given = block @ weights.kernel[:size] + weights.bias
        given = tf.reshape(given, (_BLOCK_STEPS, n_rows, -1))  # (steps, batch, 4 * dim)
        return lambda t, h: given[t - first] + h @ recurrent

    return _Products(
        of_inputs,
        None if projection is None else lambda m: m @ projection,
        features=1,
        block=_BLOCK_STEPS,
    )
