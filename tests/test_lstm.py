"""One direction of LSTM layers, with dropout and without, against the NumPy formulas."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from bilm.core.lstm import Dropout, LSTMStack
from bilm.core.options import LSTMOptions
from bilm.core.recurrence import Boundaries, LSTMState
from tests import oracle
from tests.oracle.lstm import run_layer

SIZE = 6
STACKS = {
    "published": {"n_layers": 2, "use_skip_connections": True, "cell_clip": 3, "proj_clip": 3},
    "one_layer": {"n_layers": 1, "use_skip_connections": True},
    "three_layers_tight_clips": {
        "n_layers": 3,
        "use_skip_connections": True,
        "cell_clip": 0.3,
        "proj_clip": 0.2,
    },
    "no_skip": {"n_layers": 2, "cell_clip": 0.5},
    "no_projection": {"dim": SIZE, "n_layers": 2, "use_skip_connections": True, "cell_clip": 0.4},
}
TIME, BATCH = 5, 4


class StackCase:
    """A stack with random weights and states, and the same for the formulas (batch first)."""

    def __init__(self, kind, dropout=0.0):
        self.dropout = dropout
        lstm = {"dim": 9, "projection_dim": SIZE} | STACKS[kind]
        self.lstm = LSTMOptions(**lstm)
        options = {"lstm": lstm, "bidirectional": False, "n_tokens_vocab": 3}
        weights = oracle.random_weights(options, seed=2)
        self.layers = oracle.layers_of(
            {name: value.astype(float) for name, value in weights.items()}, options, 0
        )
        self.stack = LSTMStack(self.lstm)
        for ours, theirs in zip(self.stack.layer_weights, self.layers, strict=True):
            ours.kernel.assign(theirs.kernel)
            ours.bias.assign(theirs.bias)
            if ours.projection is not None:
                ours.projection.assign(theirs.projection)
        random = np.random.default_rng(3)
        self.inputs = random.normal(size=(TIME, BATCH, SIZE)).astype(np.float32)
        self.states = tuple(
            LSTMState(*(random.normal(size=z.shape).astype(np.float32) / 4 for z in state))
            for state in self.stack.zero_states(BATCH)
        )

    def __call__(self, mask=None, seed=None):
        states = tuple(LSTMState(*map(tf.constant, state)) for state in self.states)
        dropout = None if seed is None else Dropout(self.dropout, tf.constant(seed))
        boundaries = Boundaries(None if mask is None else tf.constant(mask))
        return self.stack(
            tf.constant(self.inputs), states=states, boundaries=boundaries, dropout=dropout
        )


def batch_first(x):
    return np.swapaxes(np.asarray(x, float), 0, 1)


@pytest.mark.parametrize("kind", STACKS)
@pytest.mark.parametrize("lengths", [None, [5, 0, 2, 4]])
def test_a_stack_equals_the_formulas(kind, lengths):
    case = StackCase(kind)
    mask = None if lengths is None else np.arange(TIME)[:, np.newaxis] < np.array(lengths)
    outputs, states = case(mask)
    expected, new_states, _ = oracle.run_direction(
        case.layers,
        batch_first(case.inputs),
        [tuple(state) for state in case.states],
        None if lengths is None else np.array(lengths),
    )
    assert len(outputs) == case.lstm.n_layers
    for ours, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(batch_first(ours), theirs, 1e-5, 2e-6)
    for ours, theirs in zip(states, new_states, strict=True):
        np.testing.assert_allclose(ours.c, theirs[0], 1e-5, 2e-6)
        np.testing.assert_allclose(ours.h, theirs[1], 1e-5, 2e-6)


def test_zero_states():
    states = StackCase("published").stack.zero_states(3)
    assert [(s.c.shape, s.h.shape) for s in states] == [((3, 9), (3, SIZE))] * 2
    assert not any(np.any(part) for state in states for part in state)


@pytest.fixture
def masks(monkeypatch):
    """The dropout masks in the order they are drawn; values are 0 or 1 / (1 - rate)."""
    drawn = []
    original = tf.nn.experimental.stateless_dropout

    def recording(x, rate, seed, **others):
        mask = original(tf.ones_like(x), rate, seed, **others)
        drawn.append(mask.numpy())
        return x * mask

    monkeypatch.setattr(tf.nn.experimental, "stateless_dropout", recording)
    return drawn


@pytest.mark.parametrize("kind", STACKS)
def test_dropout_of_inputs_and_of_the_last_output(masks, kind):
    """The skip connection adds the input after dropout; the recurrence has no dropout."""
    case = StackCase(kind, dropout=0.4)
    outputs, states = case(seed=[3, 5])
    assert len(masks) == case.lstm.n_layers + 1
    x = batch_first(case.inputs)
    for layer, mask, ours, before, after in zip(
        case.layers, masks[:-1], outputs, case.states, states, strict=True
    ):
        x, state, _ = run_layer(layer, x * batch_first(mask), tuple(before))
        last = layer is case.layers[-1]
        expected = x * batch_first(masks[-1]) if last else x
        np.testing.assert_allclose(batch_first(ours), expected, 1e-5, 2e-6)
        np.testing.assert_allclose(after.c, state[0], 1e-5, 2e-6)
        np.testing.assert_allclose(after.h, state[1], 1e-5, 2e-6)


def test_masks_of_dropout(masks):
    case = StackCase("published", dropout=0.25)
    case.inputs = np.ones((40, 30, SIZE), np.float32)
    case.states = case.stack.zero_states(30)
    case(seed=[3, 5])
    first = list(masks)
    for mask in first:
        np.testing.assert_allclose(np.unique(mask), [0, 4 / 3], 1e-6)
        assert abs((mask == 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / mask.size)
    case(seed=[3, 5])
    for mask, again in zip(first, masks[3:], strict=True):
        np.testing.assert_array_equal(mask, again)
    for seed in ([4, 5], [3, 8]):
        case(seed=seed)
    drawn = first + masks[6:]
    assert len({mask.tobytes() for mask in drawn}) == len(drawn) == 9


def test_initial_values_of_a_stack():
    """Glorot uniform: the bound is sqrt(6 / (rows + columns)); the biases are zeros."""
    stacks = {
        (seed, name): LSTMStack(LSTMOptions(40, 20, n_layers=2), seed=seed, name=name)
        for seed, name in ((1, "forward"), (1, "backward"), (2, "forward"))
    }
    layer = stacks[1, "forward"].layer_weights[0]
    for variable in (layer.kernel, layer.projection):
        bound = np.sqrt(6 / sum(variable.shape))
        assert 0.97 * bound < np.abs(variable.numpy()).max() <= bound
        assert abs(variable.numpy().std() * np.sqrt(3) / bound - 1) < 0.05
    assert not layer.bias.numpy().any()
    kernels = [w.kernel.numpy() for stack in stacks.values() for w in stack.layer_weights]
    assert len({kernel.tobytes() for kernel in kernels}) == 6
    same = LSTMStack(LSTMOptions(40, 20, n_layers=2), seed=1, name="forward")
    np.testing.assert_array_equal(same.layer_weights[1].kernel, kernels[1])
