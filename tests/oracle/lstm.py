"""One direction of the LSTM stack: projected, clipped, with skip connections. Section 3.1.

z = [x; h] W + B                                 columns i, j, f, o
c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j))
h' = clip((sigmoid(o) tanh(c')) W_P)
output = h', plus the layer's input (from the second layer on)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.oracle.encoder import Options, Weights, sigmoid

State = tuple[np.ndarray, np.ndarray]  # c (batch, dim), h (batch, projection_dim)


class Layer(NamedTuple):
    prefix: str
    kernel: np.ndarray  # (2 * projection_dim, 4 * dim)
    bias: np.ndarray  # (4 * dim,)
    projection: np.ndarray | None  # (dim, projection_dim); None when the sizes are equal
    cell_clip: float
    proj_clip: float
    skip: bool


class Step(NamedTuple):
    """The values of a step that its gradient needs."""

    inputs: np.ndarray  # [x; h]
    c_before: np.ndarray
    gates: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # activated i, j, f, o
    c_unclipped: np.ndarray
    c: np.ndarray
    h_unclipped: np.ndarray


def layers_of(weights: Weights, options: Options, direction: int) -> list[Layer]:
    """The layers of direction 0 (forward) or 1 (backward)."""
    lstm: dict[str, Any] = options["lstm"]
    layers = []
    for number in range(lstm.get("n_layers", 1)):
        prefix = f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell/"
        layers.append(
            Layer(
                prefix,
                weights[prefix + "W_0"],
                weights[prefix + "B"],
                weights.get(prefix + "W_P_0"),
                lstm.get("cell_clip") or np.inf,
                lstm.get("proj_clip") or np.inf,
                bool(lstm.get("use_skip_connections")) and number > 0,
            )
        )
    return layers


def step(layer: Layer, x: np.ndarray, state: State) -> tuple[State, Step]:
    c, h = state
    inputs = np.concatenate([x, h], axis=-1)
    i, j, f, o = np.split(inputs @ layer.kernel + layer.bias, 4, axis=-1)
    i, j, f, o = sigmoid(i), np.tanh(j), sigmoid(f + 1), sigmoid(o)
    c_unclipped = f * c + i * j
    c_new = np.clip(c_unclipped, -layer.cell_clip, layer.cell_clip)
    h_new = h_unclipped = o * np.tanh(c_new)
    # TF1's cell clips the projected output only: without a projection there is no proj_clip.
    if layer.projection is not None:
        h_unclipped = h_unclipped @ layer.projection
        h_new = np.clip(h_unclipped, -layer.proj_clip, layer.proj_clip)
    return (c_new, h_new), Step(inputs, c, (i, j, f, o), c_unclipped, c_new, h_unclipped)


def step_gradient(
    layer: Layer, step: Step, dh: np.ndarray, dc: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Weights]:
    """Gradients of [x; h], of c before the step, and of the weights, by name within the cell."""
    i, j, f, o = step.gates
    tanh_c = np.tanh(step.c)
    gradients: Weights = {}
    if layer.projection is not None:
        dh = dh * (np.abs(step.h_unclipped) <= layer.proj_clip)
        gradients["W_P_0"] = (o * tanh_c).T @ dh
        dh = dh @ layer.projection.T
    dc = (dc + dh * o * (1 - tanh_c**2)) * (np.abs(step.c_unclipped) <= layer.cell_clip)
    di, dj, df = dc * j * i * (1 - i), dc * i * (1 - j**2), dc * step.c_before * f * (1 - f)
    dz = np.concatenate([di, dj, df, dh * tanh_c * o * (1 - o)], axis=-1)
    gradients["W_0"] = step.inputs.T @ dz
    gradients["B"] = dz.sum(axis=0)
    return dz @ layer.kernel.T, dc * f, gradients


def run_layer(
    layer: Layer,
    x: np.ndarray,
    state: State,
    lengths: np.ndarray | None = None,
    resets: np.ndarray | None = None,
) -> tuple[np.ndarray, State, list[Step]]:
    """Outputs (batch, time, projection_dim), the state after the last step, and the steps.

    Past a row's length the output is zero and the state is unchanged. Where `resets` (batch, time)
    is True, the state is set to zero before the step.
    """
    if lengths is None:
        lengths = np.full(len(x), x.shape[1])
    outputs, steps = np.zeros_like(x), []
    for t in range(x.shape[1]):
        alive = (t < lengths)[:, None]
        if resets is not None:
            state = (state[0] * ~resets[:, t, None], state[1] * ~resets[:, t, None])
        new, trace = step(layer, x[:, t], state)
        state = (np.where(alive, new[0], state[0]), np.where(alive, new[1], state[1]))
        outputs[:, t] = np.where(alive, new[1] + (x[:, t] if layer.skip else 0), 0)
        steps.append(trace)
    return outputs, state, steps


def run_direction(
    layers: list[Layer],
    x: np.ndarray,
    states: list[State],
    lengths: np.ndarray | None = None,
    resets: np.ndarray | None = None,
) -> tuple[list[np.ndarray], list[State], list[list[Step]]]:
    """Outputs, states and steps of every layer; each layer reads the output of the one below."""
    outputs, new_states, traces = [], [], []
    for layer, state in zip(layers, states, strict=True):
        x, state, steps = run_layer(layer, x, state, lengths, resets)
        outputs.append(x)
        new_states.append(state)
        traces.append(steps)
    return outputs, new_states, traces


def run_direction_gradient(
    layers: list[Layer], traces: list[list[Step]], d: np.ndarray, resets: np.ndarray | None = None
) -> tuple[np.ndarray, Weights]:
    """Gradients of the input and of the weights, given the gradient of the last layer's outputs.

    The state before the first step gets no gradient: gradients stop at the start of a batch.
    """
    gradients: Weights = {}
    for layer, steps in zip(reversed(layers), reversed(traces), strict=True):
        size = d.shape[-1]
        dx = np.zeros_like(d)
        dh, dc = np.zeros_like(d[:, 0]), np.zeros_like(steps[0].c)
        for t in reversed(range(len(steps))):
            d_inputs, dc, inner = step_gradient(layer, steps[t], d[:, t] + dh, dc)
            dx[:, t], dh = d_inputs[:, :size], d_inputs[:, size:]
            if resets is not None:
                dh, dc = dh * ~resets[:, t, None], dc * ~resets[:, t, None]
            for name, value in inner.items():
                gradients[layer.prefix + name] = gradients.get(layer.prefix + name, 0) + value
        d = dx + d if layer.skip else dx
    return d, gradients
