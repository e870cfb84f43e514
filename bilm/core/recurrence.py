"""The projected, clipped LSTM: one step, a layer to read, and a fast layer for training.

Source: Sak et al. (2014), "Long short-term memory recurrent neural network architectures for large
scale acoustic modeling", and Peters et al. (2018), section 3.4, for the clipping. There are no
peepholes, and 1 is added to the forget gate's pre-activation (Jozefowicz et al. 2015):

    z = [x; h] W + b                              columns in the order i, j, f, o
    c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j))
    h' = clip((sigmoid(o) tanh(c')) W_P)

`plain_lstm` is the layer to read. `projected_lstm` computes the same values with a custom backward
pass, without a padding mask: training fills its batches, and packed sentences need resets only.

Inside its loop everything has the shape (features, batch): the weights are then the large left
factor of every matmul, which is fastest for few rows, and the gates are contiguous blocks. A step
is one matmul with [x; h], the cell, one matmul with the projection, and the next [x; h]. The
backward loop has the same two matmuls, transposed; then the gradient of each weight is one large
matmul over all steps. In training both loops are unrolled in the graph, without the bookkeeping
of TensorFlow's loops.
The forward pass saves the pre-activations z, not the gates: recomputing the gates is cheaper than
storing and reloading them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.core.keras_backend import matmul


class LSTMState(NamedTuple):
    """A layer's state between two steps. A batch size of 1 is broadcast to all rows."""

    c: tf.Tensor  # float32 (batch, dim), the cell state
    h: tf.Tensor  # float32 (batch, hidden_dim), the output


class LSTMWeights(NamedTuple):
    """The weights of one layer; the columns of kernel and bias are the gates i, j, f, o."""

    kernel: Any  # (input_dim + hidden_dim, 4 * dim), rows are [input; recurrent h]
    bias: Any  # (4 * dim,)
    projection: Any  # (dim, hidden_dim), or None: h' is not projected and hidden_dim == dim

    def tensors(self) -> LSTMWeights:
        """The values of variables."""
        return LSTMWeights(*(None if w is None else tf.convert_to_tensor(w) for w in self))


class Clips(NamedTuple):
    """Bounds of absolute values; None: no bound. `projection` is ignored without a projection."""

    cell: float | None = None
    projection: float | None = None


class Boundaries(NamedTuple):
    """The padding of a batch, and the positions in its rows at which sentences start."""

    # Bool (time, batch); where False the output is zeros and the state stays. None: no padding.
    mask: Any = None
    # Bool (time, batch); where True the step starts from `initial`. None: no resets.
    resets: Any = None
    # The initial state, (batch, ...) or (1, ...), or one per layer; needed with `resets`. No
    # gradient reaches it.
    initial: Any = None


def cell(
    pre_activations: Sequence[tf.Tensor], c: tf.Tensor, clip: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The new cell state and the cell's output, from the pre-activations of i, j, f and o."""
    i, j, f, o = pre_activations
    new_c = clipped(tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j), clip)
    return new_c, tf.sigmoid(o) * tf.tanh(new_c)


def clipped(x: tf.Tensor, clip: float | None) -> tf.Tensor:
    """`x` clipped to [-clip, clip]; None: no bound."""
    return x if clip is None else tf.clip_by_value(x, -clip, clip)


def over_rows(state: LSTMState, n_rows: Any) -> LSTMState:
    """Broadcast a (1, ...) state to `n_rows` rows."""
    return LSTMState(*(tf.broadcast_to(x, (n_rows, x.shape[1])) for x in state))


def plain_lstm(
    inputs: tf.Tensor,
    weights: LSTMWeights,
    state: LSTMState,
    boundaries: Boundaries,
    *,
    clips: Clips,
    precision: str,
) -> tuple[tf.Tensor, LSTMState]:
    """Run the cell over all steps of `inputs`: the layer to read.

    TensorFlow differentiates this loop automatically, to any order. Keras models use it because it
    can be saved, exported and compiled with the rest of the model. `projected_lstm` and
    `xla_lstm` compute the same values faster.

    Args:
        inputs: float32 (time, batch, input_dim).
        weights: float32 tensors.
        state: state before the first step, (batch, ...) or (1, ...).
        boundaries: padding and resets.
        clips: bounds of the cell state and of the projection.
        precision: "float32", or "bfloat16" for matmuls of factors rounded to bfloat16.

    Returns:
        outputs: float32 (time, batch, hidden_dim), and the state after the last step.
    """
    n_steps, n_rows = tf.unstack(tf.shape(inputs)[:2])

    def step(t: tf.Tensor, c: tf.Tensor, h: tf.Tensor, outputs: tf.TensorArray) -> Any:
        if boundaries.resets is not None:  # a new sentence starts from the initial state
            begins = boundaries.resets[t][:, tf.newaxis]  # (batch, 1)
            c = tf.where(begins, tf.stop_gradient(boundaries.initial.c), c)
            h = tf.where(begins, tf.stop_gradient(boundaries.initial.h), h)
        xh = tf.concat([inputs[t], h], axis=1)  # (batch, input_dim + hidden_dim)
        z = matmul(xh, weights.kernel, precision) + weights.bias  # (batch, 4 * dim)
        new_c, new_h = cell(tf.split(z, 4, axis=1), c, clips.cell)
        if weights.projection is not None:
            new_h = clipped(matmul(new_h, weights.projection, precision), clips.projection)
        output = new_h
        if boundaries.mask is not None:  # at padding the output is zeros and the state stays
            here = boundaries.mask[t][:, tf.newaxis]  # (batch, 1)
            output = tf.where(here, new_h, tf.zeros_like(new_h))
            new_c, new_h = tf.where(here, new_c, c), tf.where(here, new_h, h)
        return t + 1, new_c, new_h, outputs.write(t, output)

    outputs = tf.TensorArray(tf.float32, n_steps)
    loop = (tf.constant(0), *over_rows(state, n_rows), outputs)
    if inputs.shape[0] == 1:  # no loop
        _, c, h, outputs = step(*loop)
        return outputs.stack(), LSTMState(c, h)
    # XLA needs `maximum_iterations` for the gradient.
    _, c, h, outputs = tf.while_loop(
        lambda t, *_: t < n_steps, step, loop, maximum_iterations=n_steps
    )
    return outputs.stack(), LSTMState(c, h)


def projected_lstm(
    inputs: tf.Tensor,
    weights: LSTMWeights,
    state: LSTMState,
    boundaries: Boundaries,
    *,
    clips: Clips,
    precision: str,
    trains: bool,
    compiled: bool,
) -> tuple[tf.Tensor, LSTMState]:
    """Run the cell over all steps of `inputs`, at least one; see `plain_lstm` for arguments.

    Args:
        boundaries: resets, no mask.
        precision: with "bfloat16" the matmuls accumulate in float32 and round their result; gates,
            cell state and clipping stay float32.
        trains: save activations for a backward pass, which gives gradients of `inputs`, weights and
            `state`, but no gradients of gradients. The number of steps must be static.
        compiled: compile the operations between the matmuls, once for each batch size and any
            number of steps.
    """
    tensors = tuple(weight for weight in weights if weight is not None)
    n_rows = tf.shape(inputs)[1] if inputs.shape[1] is None else inputs.shape[1]
    state, boundaries = _in_loop(over_rows(state, n_rows), boundaries)
    proj_clip = None if weights.projection is None else clips.projection
    layer = _Layer(
        _step_functions(clips.cell, proj_clip, compiled), tf.as_dtype(precision), boundaries
    )
    if not trains:
        return layer.infer(inputs, state, tensors)

    @tf.custom_gradient
    def run(inputs: tf.Tensor, c: tf.Tensor, h: tf.Tensor, *weights: tf.Tensor) -> Any:
        (outputs, state), saved = layer.forward(inputs, LSTMState(c, h), weights)

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            return layer.backward(upstream, saved, weights)

        return (outputs, *state), gradient

    outputs, c, h = run(inputs, state.c, state.h, *tensors)
    return outputs, LSTMState(c, h)


def _in_loop(state: LSTMState, boundaries: Boundaries) -> tuple[LSTMState, Boundaries]:
    """The state before the loop, and the resets as the loop uses them.

    A state is reset at the end of the previous step, which the compiled cell does at no cost; so
    the first step's resets come before the loop. Initial states become (features, batch).
    """
    _, resets, initial = boundaries
    if resets is None:
        return state, Boundaries()
    initial = LSTMState(*map(tf.stop_gradient, initial))
    at_first = resets[0, :, tf.newaxis]  # (batch, 1)
    state = LSTMState(*(tf.where(at_first, *x) for x in zip(initial, state, strict=True)))
    resets_after = tf.concat([resets[1:], tf.zeros_like(resets[:1])], axis=0)[:, tf.newaxis, :]
    return state, Boundaries(None, resets_after, LSTMState(*map(tf.transpose, initial)))


def _state_after(part: str, new: tf.Tensor, boundaries: Boundaries) -> tf.Tensor:
    """ "c" or "h" after a step: the initial state where a sentence starts at the next step."""
    if boundaries.resets is None:
        return new
    return tf.where(boundaries.resets, getattr(boundaries.initial, part), new)


def _cell(
    z: tf.Tensor, bias: tf.Tensor, c: tf.Tensor, boundaries: Boundaries, clip: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The new cell state and the projection's input m; z (4 * dim, batch), bias (4 * dim, 1)."""
    new_c, m = cell(tf.split(tf.cast(z, tf.float32) + bias, 4, axis=0), c, clip)
    return _state_after("c", new_c, boundaries), tf.cast(m, z.dtype)


def _output(
    p: tf.Tensor, boundaries: Boundaries, clip: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The output and the new recurrent state from the projection; both (hidden_dim, batch)."""
    output = clipped(tf.cast(p, tf.float32), clip)
    return output, _state_after("h", output, boundaries)


def _output_and_next(
    p: tf.Tensor, next_input: tf.Tensor, boundaries: Boundaries, clip: float | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The output, and the next step's [x; h], (input_dim + hidden_dim, batch)."""
    output, h = _output(p, boundaries, clip)
    return output, tf.concat([next_input, tf.cast(h, next_input.dtype)], axis=0)


def _cell_gradient(
    z: tf.Tensor,
    bias: tf.Tensor,
    c: tf.Tensor,
    boundaries: Boundaries,
    d_c: tf.Tensor,
    d_m: tf.Tensor,
    clip: float | None,
) -> tuple[tf.Tensor, ...]:
    """Gradients of z and c; and m again, which the projection's gradient needs."""
    with tf.GradientTape() as tape:
        tape.watch((z, c))
        new_c, m = _cell(z, bias, c, boundaries, clip)
    return (*tape.gradient((new_c, m), (z, c), (d_c, d_m)), m)


def _output_gradient(
    p: tf.Tensor, boundaries: Boundaries, d_output: tf.Tensor, d_xh: tf.Tensor, clip: float | None
) -> tf.Tensor:
    """The gradient of p, given the gradients of the output and of the next step's [x; h]."""
    d_h = tf.cast(d_xh[-d_output.shape[0] :], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(p)
        results = _output(p, boundaries, clip)
    return tape.gradient(results, p, (d_output, d_h))


class _Steps(NamedTuple):
    """The functions of a step, without its matmuls."""

    cell: Any
    output: Any
    cell_gradient: Any
    output_gradient: Any


@functools.cache  # so that each function is compiled once per process
def _step_functions(cell_clip: float | None, proj_clip: float | None, compiled: bool) -> _Steps:
    steps: list[Any] = [
        functools.partial(_cell, clip=cell_clip),
        functools.partial(_output_and_next, clip=proj_clip),
        functools.partial(_cell_gradient, clip=cell_clip),
        functools.partial(_output_gradient, clip=proj_clip),
    ]
    if compiled:
        steps = [tf.function(step, jit_compile=True, autograph=False) for step in steps]
    return _Steps(*steps)


class _Saved(NamedTuple):
    """Values of a step for the backward loop."""

    xh: tf.Tensor  # [x; h], the right factor of the first matmul
    z: tf.Tensor  # its result
    c: tf.Tensor  # the cell state before the step
    p: tf.Tensor  # the projection before clipping


class _Layer(NamedTuple):
    steps: _Steps
    dtype: tf.DType  # of the matmuls
    boundaries: Boundaries  # see `_in_loop`

    def infer(
        self, inputs: tf.Tensor, state: LSTMState, weights: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, LSTMState]:
        """Outputs and state as `projected_lstm` returns them."""
        n_steps = _n_steps(inputs)
        inputs, c, xh, step = self._start(inputs, state, weights)

        def body(t: tf.Tensor, c: tf.Tensor, xh: tf.Tensor, outputs: tf.TensorArray) -> Any:
            next_input = inputs[tf.minimum(t + 1, n_steps - 1)]
            c, xh, output, _ = step(c, xh, next_input, self._boundaries_at(t))
            return t + 1, c, xh, outputs.write(t, output)

        outputs = tf.TensorArray(tf.float32, n_steps)
        _, c, _, outputs = tf.while_loop(lambda t, *_: t < n_steps, body, (0, c, xh, outputs))
        return self._result(outputs.stack(), c)

    def forward(
        self, inputs: tf.Tensor, state: LSTMState, weights: Sequence[tf.Tensor]
    ) -> tuple[tuple[tf.Tensor, LSTMState], list[_Saved]]:
        """`infer` with a loop unrolled in the graph, and the values for `backward`."""
        inputs, c, xh, step = self._start(inputs, state, weights)
        xs = tf.unstack(inputs)
        outputs, saved = [], []
        for t, next_input in enumerate([*xs[1:], xs[-1]]):
            c, xh, output, values = step(c, xh, next_input, self._boundaries_at(t))
            outputs.append(output)
            saved.append(values)
        return self._result(tf.stack(outputs), c), saved

    def _start(
        self, inputs: tf.Tensor, state: LSTMState, weights: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Callable[..., Any]]:
        """The inputs as the loop reads them, the first c and [x; h], and the function of a step."""
        kernel, bias, *projection = weights
        # (input_dim + hidden_dim, 4 * dim) -> (4 * dim, input_dim + hidden_dim), and
        # (dim, hidden_dim) -> (hidden_dim, dim): otherwise the matmuls take a third longer.
        kernel, *projection = (tf.transpose(tf.cast(w, self.dtype)) for w in (kernel, *projection))
        bias = bias[:, tf.newaxis]  # (4 * dim, 1)
        inputs = tf.cast(_transposed(inputs), self.dtype)
        c, h = map(tf.transpose, state)

        def step(c: tf.Tensor, xh: tf.Tensor, next_input: tf.Tensor, boundaries: Boundaries) -> Any:
            z = kernel @ xh  # the pre-activations, (4 * dim, batch)
            new_c, m = self.steps.cell(z, bias, c, boundaries)
            p = projection[0] @ m if projection else m  # (hidden_dim, batch)
            output, next_xh = self.steps.output(p, next_input, boundaries)
            return new_c, next_xh, output, _Saved(xh, z, c, p)

        return inputs, c, tf.concat([inputs[0], tf.cast(h, self.dtype)], axis=0), step

    def _result(self, outputs: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, LSTMState]:
        outputs = _transposed(outputs)
        # No reset follows the last step, so its output is the state.
        return outputs, LSTMState(tf.transpose(c), outputs[-1])

    def backward(
        self, upstream: Sequence[tf.Tensor], saved: Sequence[_Saved], weights: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Gradients of inputs, c, h and the weights, given the gradients of outputs, c and h."""
        d_outputs, d_c, d_h = upstream
        d_outputs = tf.unstack(_transposed(d_outputs))
        kernel, bias, *projection = weights
        kernel, *projection = (tf.cast(w, self.dtype) for w in (kernel, *projection))
        bias = bias[:, tf.newaxis]  # (4 * dim, 1)
        input_dim = kernel.shape[0] - d_h.shape[1]
        d_c = tf.transpose(d_c)
        # The last step's [x; h] has no next input.
        d_xh = tf.pad(tf.cast(tf.transpose(d_h), self.dtype), [(input_dim, 0), (0, 0)])
        by_step = []  # gradients, from the last step to the first
        for t, (xh, z, c, p) in reversed(list(enumerate(saved))):
            boundaries = self._boundaries_at(t)
            d_p = self.steps.output_gradient(p, boundaries, d_outputs[t], d_xh)
            d_m = projection[0] @ d_p if projection else d_p
            d_z, d_c, m = self.steps.cell_gradient(z, bias, c, boundaries, d_c, d_m)
            d_xh = kernel @ d_z  # (input_dim + hidden_dim, batch)
            by_step.append((d_xh, xh, d_z, m, d_p))
        d_xhs, *factors = zip(*reversed(by_step), strict=True)
        d_inputs = _transposed(tf.stack([d_xh[:input_dim] for d_xh in d_xhs]))
        # Sums over all steps as one matmul: (features, batch) of each -> (features, time * batch)
        xh, d_z, m, d_p = (tf.concat(factor, axis=1) for factor in factors)
        d_kernel = tf.matmul(xh, d_z, transpose_b=True)
        d_bias = tf.matmul(d_z, tf.ones((d_z.shape[1], 1), self.dtype))[:, 0]
        gradients = [d_inputs, tf.transpose(d_c), tf.transpose(d_xh[input_dim:]), d_kernel, d_bias]
        if projection:
            gradients.append(tf.matmul(m, d_p, transpose_b=True))
        return [tf.cast(gradient, tf.float32) for gradient in gradients]

    def _boundaries_at(self, t: Any) -> Boundaries:
        """The boundaries of one step: resets (1, batch)."""
        resets = self.boundaries.resets
        return self.boundaries if resets is None else self.boundaries._replace(resets=resets[t])


def _transposed(x: tf.Tensor) -> tf.Tensor:
    """(time, batch, features) <-> (time, features, batch)."""
    return tf.transpose(x, (0, 2, 1))


def _n_steps(x: tf.Tensor) -> Any:
    """The length of the first axis: an int if it is known, as XLA requires."""
    return tf.shape(x)[0] if x.shape[0] is None else x.shape[0]
