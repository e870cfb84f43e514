"""The recurrence of one direction, one layer of the projected, clipped LSTM.

Source: Peters et al. (2018), section 3.4.

How it is computed. Inside the loop everything lies as (features, batch): the weights are then the
large left factor of every product, which is where matrix products of few rows are fastest, and
the gates are whole blocks. A step is one product with [x; h], the cell, one product with the
projection. The backward loop has the same two products, transposed; each weight's gradient is one
large product over all steps after it. Between the two the sums z are kept, not the gates: to
compute the gates again costs less than to write and read them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.layers.cell import LSTMState, cell, clipped


def projected_lstm(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    projection: tf.Tensor | None,
    state: LSTMState,
    *,
    mask: tf.Tensor | None = None,
    resets: tf.Tensor | None = None,
    initial: LSTMState | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
    compiled: bool = False,
    precision: str = "float32",
    own_gradient: bool = True,
    can_be_saved: bool = True,
) -> tuple[tf.Tensor, LSTMState]:
    """Run the cell over all steps of `inputs`.

    Args:
        inputs: float32 (time, batch, input_dim), at least one step.
        kernel: float32 (input_dim + hidden_dim, 4 * dim); rows are [input; recurrent h], columns
            the gates in the order i, j, f, o.
        bias: float32 (4 * dim,).
        projection: float32 (dim, hidden_dim); None means h' = sigmoid(o) * tanh(c'), and
            hidden_dim == dim.
        state: state before the first step.
        mask: bool (time, batch); where False the output is zeros and the state stays. None: all
            True.
        resets: bool (time, batch); where True a text begins: the state before the step is
            `initial`, whatever came before. None: all False.
        initial: state in which texts begin, (batch, ...) or (1, ...); None: `state`.
        cell_clip, proj_clip: bounds of the cell state and of the projection; None: no bound.
            Without a projection `proj_clip` has no effect.
        compiled: compile what lies between the products with XLA: once, quickly, for each batch
            size. The number of steps may vary freely.
        precision: "float32", or "bfloat16" for products of factors rounded to bfloat16, which
            accumulate in float32 and round their result; gates, cell state and clipping stay
            float32.
        own_gradient: keep what the gradient written here needs. False saves that memory where no
            gradient is wanted; TensorFlow's own, which is slower, is there all the same.
        can_be_saved: keep it so that a SavedModel can hold the gradient, which takes a copy.

    Returns:
        outputs: float32 (time, batch, hidden_dim), and the state after the last step.

    Gradients reach `inputs`, the weights and `state`, once (no gradients of gradients); none
    reach `initial`.
    """
    weights = [kernel, bias] if projection is None else [kernel, bias, projection]
    n_rows = tf.shape(inputs)[1] if inputs.shape[1] is None else inputs.shape[1]
    begin = state if initial is None else initial
    state = LSTMState(*(tf.broadcast_to(x, (n_rows, x.shape[1])) for x in state))
    ends, first = None, None
    if resets is not None:
        # In the loop a state is reset at the end of the step before, which the compiled cell does
        # at no cost; so the first step's resets come before the loop.
        resets = tf.convert_to_tensor(resets)
        at_once = resets[0, :, tf.newaxis]
        state = LSTMState(*(tf.where(at_once, *x) for x in zip(begin, state, strict=True)))
        ends = tf.concat([resets[1:], tf.zeros_like(resets[:1])], axis=0)
        first = LSTMState(*(tf.transpose(tf.stop_gradient(x)) for x in begin))
    layer = _Layer(
        _step_functions(cell_clip, None if projection is None else proj_clip, compiled),
        tf.as_dtype(precision),
        _Places(_of_steps(mask), _of_steps(ends), first),
        can_be_saved,
    )

    if not own_gradient:
        (outputs, c, h), _ = layer.forward(inputs, state.c, state.h, tuple(weights), keep=False)
        return outputs, LSTMState(c, h)

    @tf.custom_gradient
    def run(inputs: tf.Tensor, c: tf.Tensor, h: tf.Tensor, *weights: tf.Tensor) -> Any:
        result, kept = layer.forward(inputs, c, h, weights)

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            return layer.backward(upstream, kept, weights)

        return result, gradient

    outputs, c, h = run(inputs, state.c, state.h, *weights)
    return outputs, LSTMState(c, h)


class _Places(NamedTuple):
    """What is special about places: bool (time, 1, batch), of a step (1, batch); or None."""

    here: tf.Tensor | None  # where False the place does not count
    ends: tf.Tensor | None  # where True the state after it is the first one again
    first: LSTMState | None  # (features, batch or 1), if there are ends

    def at(self, t: tf.Tensor) -> _Places:
        here, ends = (None if x is None else x[t] for x in self[:2])
        return _Places(here, ends, self.first)

    def output(self, new: tf.Tensor) -> tf.Tensor:
        return new if self.here is None else tf.where(self.here, new, tf.zeros_like(new))

    def c(self, old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        return self._state(old, new, self.first and self.first.c)

    def h(self, old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        return self._state(old, new, self.first and self.first.h)

    def _state(self, old: tf.Tensor, new: tf.Tensor, first: tf.Tensor | None) -> tf.Tensor:
        if self.here is not None:
            new = tf.where(self.here, new, old)
        return new if self.ends is None else tf.where(self.ends, first, new)


def _of_steps(places: tf.Tensor | None) -> tf.Tensor | None:
    """(time, batch) as `_Places` holds them."""
    # The time axis comes first as everywhere; in a step, the batch is the second axis.
    return None if places is None else tf.convert_to_tensor(places)[:, tf.newaxis, :]


def _cell(
    z: tf.Tensor, bias: tf.Tensor, c: tf.Tensor, place: _Places, clip: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The new cell state, and what is projected; z (4 * dim, batch), bias (4 * dim, 1)."""
    new_c, m = cell(tf.split(tf.cast(z, tf.float32) + bias, 4, axis=0), c, clip)
    return place.c(c, new_c), tf.cast(m, z.dtype)


def _output(
    p: tf.Tensor, h: tf.Tensor, place: _Places, clip: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The output and the new recurrent state from the projection; both (hidden_dim, batch)."""
    new_h = clipped(tf.cast(p, tf.float32), clip)
    return place.output(new_h), place.h(h, new_h)


def _cell_gradient(
    z: tf.Tensor,
    bias: tf.Tensor,
    c: tf.Tensor,
    place: _Places,
    d_c: tf.Tensor,
    d_m: tf.Tensor,
    clip: float | None,
) -> tuple[tf.Tensor, ...]:
    """Gradients of z, bias and c; and the cell's m again, which the projection's gradient needs."""
    with tf.GradientTape() as tape:
        tape.watch((z, bias, c))
        new_c, m = _cell(z, bias, c, place, clip)
    return (*tape.gradient((new_c, m), (z, bias, c), (d_c, d_m)), m)


def _output_gradient(
    p: tf.Tensor,
    h: tf.Tensor,
    place: _Places,
    d_output: tf.Tensor,
    d_h: tf.Tensor,
    clip: float | None,
) -> tuple[tf.Tensor, ...]:
    """Gradients of p, and of h where it was handed on."""
    with tf.GradientTape() as tape:
        tape.watch((p, h))
        results = _output(p, h, place, clip)
    return tape.gradient(results, (p, h), (d_output, d_h), unconnected_gradients="zero")


class _Steps(NamedTuple):
    cell: Callable[..., Any]
    output: Callable[..., Any]
    cell_gradient: Callable[..., Any]
    output_gradient: Callable[..., Any]


@functools.cache
def _step_functions(cell_clip: float | None, proj_clip: float | None, compiled: bool) -> _Steps:
    """The functions of a step; kept, so that nothing is compiled twice in a process."""
    steps = _Steps(
        functools.partial(_cell, clip=cell_clip),
        functools.partial(_output, clip=proj_clip),
        functools.partial(_cell_gradient, clip=cell_clip),
        functools.partial(_output_gradient, clip=proj_clip),
    )
    if not compiled:
        return steps
    return _Steps(*(tf.function(s, jit_compile=True, autograph=False) for s in steps))


class _Kept(NamedTuple):
    """What the backward loop needs: (time, features, batch), or tensor arrays of its steps."""

    xh: Any  # [x; h], the right factor of the step's product
    z: Any  # the product
    c: Any  # the cell state before the step
    p: Any  # the projection before it is clipped


class _Layer(NamedTuple):
    steps: _Steps
    dtype: tf.DType  # of the products
    places: _Places
    can_be_saved: bool

    def forward(
        self,
        inputs: tf.Tensor,
        c: tf.Tensor,
        h: tf.Tensor,
        weights: tuple[tf.Tensor, ...],
        keep: bool = True,
    ) -> tuple[tuple[tf.Tensor, ...], Any]:
        """Outputs and state as `projected_lstm` returns them; with `keep` what `backward` needs."""
        # Without transposing first, the products of a step take a third longer.
        kernel, *projection = [tf.transpose(tf.cast(w, self.dtype)) for w in _matrices(weights)]
        bias = weights[1][:, tf.newaxis]
        n_steps = _length(inputs)
        inputs = tf.cast(_transposed(inputs), self.dtype)

        def step(t: tf.Tensor, c: tf.Tensor, h: tf.Tensor, outputs: Any, kept: Any) -> Any:
            place = self.places.at(t)
            xh = tf.concat([inputs[t], tf.cast(h, self.dtype)], axis=0)
            z = kernel @ xh
            new_c, m = self.steps.cell(z, bias, c, place)
            p = projection[0] @ m if projection else m
            output, new_h = self.steps.output(p, h, place)
            if keep:
                kept = _Kept(*(a.write(t, v) for a, v in zip(kept, (xh, z, c, p), strict=True)))
            return t + 1, new_c, new_h, outputs.write(t, output), kept

        kept: Any = ()
        if keep:
            dtypes = (self.dtype, self.dtype, c.dtype, self.dtype)
            kept = _Kept(*(_array(n_steps, dtype) for dtype in dtypes))
        loop = (0, tf.transpose(c), tf.transpose(h), _array(n_steps, tf.float32), kept)
        _, c, h, outputs, kept = tf.while_loop(lambda t, *_: t < n_steps, step, loop)
        if keep:
            # No SavedModel can hold a gradient that reads tensor arrays of its forward pass.
            others = (a.stack() if self.can_be_saved else a for a in kept[1:])
            kept = _Kept(kept.xh.stack(), *others)
        return (_transposed(outputs.stack()), tf.transpose(c), tf.transpose(h)), kept

    def backward(
        self, upstream: tuple[tf.Tensor, ...], kept: _Kept, weights: tuple[tf.Tensor, ...]
    ) -> list[tf.Tensor]:
        """Gradients of inputs, c, h and the weights, from those of outputs, c and h."""
        d_outputs, d_c, d_h = upstream
        d_outputs = _transposed(d_outputs)
        kernel, *projection = [tf.cast(w, self.dtype) for w in _matrices(weights)]
        bias = weights[1][:, tf.newaxis]
        n_steps, input_dim = _length(d_outputs), kernel.shape[0] - d_outputs.shape[1]

        def step(t: tf.Tensor, d_c: tf.Tensor, d_h: tf.Tensor, d_bias: tf.Tensor, made: Any) -> Any:
            place = self.places.at(t)
            d_p, d_h = self.steps.output_gradient(_at(kept.p, t), d_h, place, d_outputs[t], d_h)
            d_m = projection[0] @ d_p if projection else d_p
            d_z, d_bias_t, d_c, m = self.steps.cell_gradient(
                _at(kept.z, t), bias, _at(kept.c, t), place, d_c, d_m
            )
            d_xh = tf.cast(kernel @ d_z, tf.float32)
            values = (d_xh[:input_dim], d_z, m, d_p)
            made = tuple(a.write(t, v) for a, v in zip(made, values, strict=True))
            return t - 1, d_c, d_h + d_xh[input_dim:], d_bias + d_bias_t, made

        made = (_array(n_steps, tf.float32), *(_array(n_steps, self.dtype) for _ in range(3)))
        loop = (n_steps - 1, tf.transpose(d_c), tf.transpose(d_h), tf.zeros_like(bias), made)
        _, d_c, d_h, d_bias, made = tf.while_loop(lambda t, *_: t >= 0, step, loop)
        d_inputs, d_z, m, d_p = (a.stack() for a in made)
        gradients = [_transposed(d_inputs), tf.transpose(d_c), tf.transpose(d_h)]
        gradients += [_over_all_steps(kept.xh, d_z), d_bias[:, 0]]
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
    """What was kept of a step."""
    return values.read(t) if isinstance(values, tf.TensorArray) else values[t]


def _array(n_steps: Any, dtype: tf.DType) -> tf.TensorArray:
    return tf.TensorArray(dtype, n_steps, clear_after_read=False)
