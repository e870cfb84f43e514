"""The recurrence against a step-by-step NumPy oracle, and its gradients against a plain loop's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from bilm.layers.recurrence import LSTMState, projected_lstm

N_STEPS, BATCH, INPUT_DIM, DIM, HIDDEN_DIM = 6, 4, 5, 7, 3

SWITCHES = {
    "plain": {},
    "clipped": {"cell_clip": 0.4, "proj_clip": 0.3},
    "cell_clipped": {"cell_clip": 0.3},
    "masked": {"masked": True},
    "masked_clipped": {"masked": True, "cell_clip": 0.4, "proj_clip": 0.3},
    "unprojected": {"projected": False},
    "unprojected_masked_clipped": {"projected": False, "masked": True, "cell_clip": 0.4},
}


@pytest.fixture(params=SWITCHES.values(), ids=SWITCHES.keys())
def case(request):
    """Arguments of projected_lstm as NumPy arrays, and its keywords."""
    switches = dict(request.param)
    projected = switches.pop("projected", True)
    masked = switches.pop("masked", False)
    rng = np.random.default_rng(5)
    hidden_dim = HIDDEN_DIM if projected else DIM

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    arrays = [
        normal(N_STEPS, BATCH, INPUT_DIM),
        normal(INPUT_DIM + hidden_dim, 4 * DIM),
        normal(4 * DIM),
        normal(DIM, hidden_dim) if projected else None,
        normal(BATCH, DIM) * 0.2,
        normal(BATCH, hidden_dim) * 0.2,
    ]
    lengths = np.array([N_STEPS, 2, 0, 5])
    mask = np.arange(N_STEPS)[:, np.newaxis] < lengths if masked else None
    return arrays, dict(switches, mask=mask)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def oracle(x, kernel, bias, projection, c, h, mask=None, cell_clip=None, proj_clip=None):
    """One step after the other, as formats describe it, in float64."""
    dim = kernel.shape[1] // 4
    outputs = []
    for t in range(len(x)):
        z = np.concatenate([x[t], h], axis=1).astype(np.float64) @ kernel + bias
        i, j, f, o = (z[:, n * dim : (n + 1) * dim] for n in range(4))
        new_c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        if cell_clip is not None:
            new_c = np.clip(new_c, -cell_clip, cell_clip)
        new_h = sigmoid(o) * np.tanh(new_c)
        if projection is not None:
            new_h = new_h @ projection
            if proj_clip is not None:
                new_h = np.clip(new_h, -proj_clip, proj_clip)
        here = np.ones(len(c), bool) if mask is None else mask[t]
        outputs.append(new_h * here[:, np.newaxis])
        c = np.where(here[:, np.newaxis], new_c, c)
        h = np.where(here[:, np.newaxis], new_h, h)
    return np.stack(outputs), c, h


def plain_loop(x, kernel, bias, projection, c, h, mask=None, cell_clip=None, proj_clip=None):
    """The same with TensorFlow's own gradients."""
    outputs = []
    for t in range(x.shape[0]):
        z = tf.concat([x[t], h], axis=1) @ kernel + bias
        i, j, f, o = tf.split(z, 4, axis=1)
        new_c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        if cell_clip is not None:
            new_c = tf.clip_by_value(new_c, -cell_clip, cell_clip)
        new_h = tf.sigmoid(o) * tf.tanh(new_c)
        if projection is not None:
            new_h = new_h @ projection
            if proj_clip is not None:
                new_h = tf.clip_by_value(new_h, -proj_clip, proj_clip)
        here = tf.ones([c.shape[0], 1], bool) if mask is None else mask[t][:, np.newaxis]
        outputs.append(tf.where(here, new_h, 0.0))
        c, h = tf.where(here, new_c, c), tf.where(here, new_h, h)
    return tf.stack(outputs), c, h


def tensors(arrays):
    return [None if array is None else tf.constant(array) for array in arrays]


def run(arrays, **keywords):
    x, kernel, bias, projection, c, h = arrays
    outputs, state = projected_lstm(x, kernel, bias, projection, LSTMState(c, h), **keywords)
    return outputs, state.c, state.h


def gradients(function, arrays, **keywords):
    """Of a weighted sum over the outputs and the final state, so that every path counts."""
    arrays = tensors(arrays)
    given = [array for array in arrays if array is not None]
    rng = np.random.default_rng(9)
    with tf.GradientTape() as tape:
        tape.watch(given)
        results = function(arrays, **keywords)
        loss = tf.add_n([tf.reduce_sum(r * rng.normal(size=r.shape)) for r in results])
    return tape.gradient(loss, given)


def assert_close(received, expected, tolerance):
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_values(case, compiled, graph):
    arrays, keywords = case
    function = tf.function(run, autograph=False) if graph else run
    results = function(tensors(arrays), compiled=compiled, **keywords)
    assert_close(results, oracle(*arrays, **keywords), 2e-6)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_gradients(case, compiled, graph):
    arrays, keywords = case
    expected = gradients(lambda a, **k: plain_loop(*a, **k), arrays, **keywords)
    function = tf.function(run, autograph=False) if graph else run
    received = gradients(function, arrays, compiled=compiled, **keywords)
    assert_close(received, expected, 1e-5)
