"""The recurrence and its gradients against the NumPy formulas, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bilm.core.lstm import EXECUTORS, Mode
from bilm.core.recurrence import Boundaries, Clips, LSTMState, LSTMWeights
from tests.oracle.lstm import Layer, step, step_gradient

N_STEPS, BATCH, INPUT_DIM, DIM, HIDDEN_DIM = 6, 4, 5, 7, 3

SWITCHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped": {"cell_clip": 0.4, "proj_clip": 0.3},
    "cell_clipped": {"cell_clip": 0.3},
    "masked": {"masked": True},
    "masked_clipped": {"masked": True, "cell_clip": 0.4, "proj_clip": 0.3},
    "unprojected": {"projected": False},
    "texts_in_a_row": {"several": True, "cell_clip": 0.4, "proj_clip": 0.3},
    "unprojected_texts_in_a_row": {"projected": False, "several": True},
    "unprojected_texts_in_a_row_masked": {"projected": False, "several": True, "masked": True},
    "unprojected_masked_clipped": {"projected": False, "masked": True, "cell_clip": 0.4},
}

STEPWISE = [Mode.PLAIN, Mode.TRAINING, Mode.INFERENCE, Mode.COMPILED_STEPS]
WITH_GRADIENT = [Mode.PLAIN, Mode.TRAINING]
ALIKE = ("cell_clipped", "masked_clipped")  # compiled like others, with other clips
# Tracing and compiling takes a second per case; these cases cover every part.
QUICK_IN_A_GRAPH = (
    "texts_in_a_row", "unprojected_texts_in_a_row", "unprojected_texts_in_a_row_masked",
)  # fmt: skip
IN_A_GRAPH = (*QUICK_IN_A_GRAPH, "clipped", "masked_clipped")


def cases(modes, in_a_graph=False):
    """All switches in all modes, or some of them in a graph, with masks only in the plain loop,
    which supports them."""
    pairs = [
        pytest.param(
            switches,
            mode,
            id=f"{name}-{mode.name.lower()}",
            marks=pytest.mark.slow
            if (name not in QUICK_IN_A_GRAPH if in_a_graph else name in ALIKE)
            else (),
        )
        for name, switches in SWITCHES.items()
        if name in IN_A_GRAPH or not in_a_graph
        for mode in modes
        if mode is Mode.PLAIN or not switches.get("masked")
    ]
    return pytest.mark.parametrize("case, mode", pairs, indirect=["case"])


@pytest.fixture
def case(request):
    """Arguments of an executor as NumPy arrays, and its keywords."""
    switches = dict(request.param)
    projected = switches.pop("projected", True)
    masked = switches.pop("masked", False)
    several = switches.pop("several", False)
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
    resets = rng.random((N_STEPS, BATCH)) < 0.4 if several else None
    return arrays, dict(switches, mask=mask, resets=resets)


class OracleRun:
    """The formulas step by step in float64, forward and backward.

    Attributes:
        results: outputs (time, rows, size), c, h.
    """

    def __init__(
        self, x, kernel, bias, projection, c, h, mask=None, resets=None, cell_clip=None,
        proj_clip=None,
    ):  # fmt: skip
        clips = (np.inf if clip is None else clip for clip in (cell_clip, proj_clip))
        self.layer = Layer("", kernel.astype(float), bias, projection, *clips, skip=False)
        every = np.ones(x.shape[:2], bool)
        self.alive = (every if mask is None else mask)[..., np.newaxis]
        self.resets = (~every if resets is None else resets)[..., np.newaxis]
        self.traces, outputs, state = [], [], (c, h)
        for t in range(len(x)):
            begun = zip((c, h), state, strict=True)
            state = tuple(np.where(self.resets[t], *z) for z in begun)
            new, trace = step(self.layer, x[t], state)
            state = tuple(np.where(self.alive[t], *z) for z in zip(new, state, strict=True))
            outputs.append(new[1] * self.alive[t])
            self.traces.append(trace)
        self.results = np.stack(outputs), *state

    def gradients(self, d_outputs, dc, dh):
        """Gradients of x, the weights, c and h, given the gradients of the results.

        No gradient flows to the initial state at a reset.
        """
        dx, of_weights = [], {}
        for t in reversed(range(len(self.traces))):
            alive, kept = self.alive[t], ~self.resets[t]
            d_new = (d_outputs[t] + dh) * alive, dc * alive
            d_inputs, dc_before, inner = step_gradient(self.layer, self.traces[t], *d_new)
            dx.insert(0, d_inputs[:, : -dh.shape[1]])
            dh = (d_inputs[:, -dh.shape[1] :] + dh * ~alive) * kept
            dc = (dc_before + dc * ~alive) * kept
            for name, value in inner.items():
                of_weights[name] = of_weights.get(name, 0) + value
        names = [name for name in ("W_0", "B", "W_P_0") if name in of_weights]
        return [np.stack(dx), *(of_weights[name] for name in names), dc, dh]


def factors(results):
    """Random factors of a sum over the outputs and the final state, so that every path counts."""
    rng = np.random.default_rng(9)
    return [rng.normal(size=r.shape) for r in results]


def oracle_gradients(*arrays, **keywords):
    """Gradients of the sum weighted by `factors`, by the formulas."""
    done = OracleRun(*arrays, **keywords)
    return done.gradients(*factors(done.results))


def tensors(arrays):
    return [None if array is None else tf.constant(array) for array in arrays]


def run(
    arrays, mask=None, resets=None, cell_clip=None, proj_clip=None, mode=Mode.PLAIN,
    precision="float32",
):  # fmt: skip
    x, kernel, bias, projection, c, h = arrays
    state = LSTMState(c, h)
    mask, resets = (x if x is None else tf.convert_to_tensor(x) for x in (mask, resets))
    outputs, state = EXECUTORS[mode](
        x,
        LSTMWeights(kernel, bias, projection),
        state,
        Boundaries(mask, resets, None if resets is None else state),
        clips=Clips(cell_clip, proj_clip),
        precision=precision,
    )
    return outputs, state.c, state.h


def gradients(function, arrays, **keywords):
    """Gradients of the same sum by TensorFlow."""
    arrays = tensors(arrays)
    given = [array for array in arrays if array is not None]
    with tf.GradientTape() as tape:
        tape.watch(given)
        results = function(arrays, **keywords)
        parts = zip(results, factors(results), strict=True)
        loss = tf.add_n([tf.reduce_sum(result * factor) for result, factor in parts])
    return tape.gradient(loss, given)


def assert_close(received, expected, tolerance):
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@cases(STEPWISE)
def test_values(case, mode):
    arrays, keywords = case
    results = run(tensors(arrays), mode=mode, **keywords)
    assert_close(results, OracleRun(*arrays, **keywords).results, 2e-6)


@cases(WITH_GRADIENT)
def test_gradients(case, mode):
    arrays, keywords = case
    received = gradients(run, arrays, mode=mode, **keywords)
    assert_close(received, oracle_gradients(*arrays, **keywords), 1e-5)


@pytest.mark.parametrize("graph", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_gradients_of_gradients_of_the_plain_loop(graph):
    """Compare the gradients' derivative along a direction with the formulas' finite difference."""
    arrays = random_layer(4, 3, dim=5, hidden_dim=4)
    random = np.random.default_rng(6)
    along = [random.normal(size=array.shape).astype(np.float32) for array in arrays]

    def derivative(*arrays):
        with tf.GradientTape() as outer:
            outer.watch(arrays)
            with tf.GradientTape() as inner:
                inner.watch(arrays)
                loss = tf.add_n([tf.reduce_sum(result) for result in run(arrays, cell_clip=3.0)])
            found = inner.gradient(loss, arrays)
            total = tf.add_n([tf.reduce_sum(g * a) for g, a in zip(found, along, strict=True)])
        return outer.gradient(total, arrays)

    def oracle_at(step):
        moved = [array + step * a.astype(float) for array, a in zip(arrays, along, strict=True)]
        done = OracleRun(*moved, cell_clip=3.0)
        return done.gradients(*map(np.ones_like, done.results))

    received = (tf.function(derivative, autograph=False) if graph else derivative)(*tensors(arrays))
    pairs = zip(oracle_at(1e-4), oracle_at(-1e-4), strict=True)
    assert_close(received, [(above - below) / 2e-4 for above, below in pairs], 2e-4)


@cases(STEPWISE, in_a_graph=True)
def test_values_in_a_graph(case, mode):
    arrays, keywords = case
    results = tf.function(run, autograph=False)(tensors(arrays), mode=mode, **keywords)
    assert_close(results, OracleRun(*arrays, **keywords).results, 2e-6)


@cases(WITH_GRADIENT, in_a_graph=True)
def test_gradients_in_a_graph(case, mode):
    arrays, keywords = case
    function = tf.function(run, autograph=False)
    received = gradients(function, arrays, mode=mode, **keywords)
    assert_close(received, oracle_gradients(*arrays, **keywords), 1e-5)


@cases(WITH_GRADIENT)
def test_a_state_for_all_rows(case, mode):
    arrays, keywords = case
    one = [*arrays[:4], arrays[4][:1], arrays[5][:1]]
    alike = [*arrays[:4], *(np.repeat(array, BATCH, axis=0) for array in one[4:])]
    results = run(tensors(one), mode=mode, **keywords)
    assert_close(results, OracleRun(*alike, **keywords).results, 2e-6)
    expected = oracle_gradients(*alike, **keywords)
    expected = [*expected[:-2], *(x.sum(axis=0, keepdims=True) for x in expected[-2:])]
    assert_close(gradients(run, one, mode=mode, **keywords), expected, 1e-5)


def random_layer(n_steps, batch, dim=32, hidden_dim=16, seed=3):
    """A layer with weights of a trained layer's scale, and some input."""
    rng = np.random.default_rng(seed)

    def normal(scale, *shape):
        return (rng.normal(size=shape) * scale).astype(np.float32)

    weights = [
        normal(1 / np.sqrt(2 * hidden_dim), 2 * hidden_dim, 4 * dim),
        normal(0.1, 4 * dim),
        normal(1 / np.sqrt(dim), dim, hidden_dim),
    ]
    state = [normal(0.1, batch, dim), normal(0.1, batch, hidden_dim)]
    return [normal(1.0, n_steps, batch, hidden_dim), *weights, *state]


@pytest.mark.parametrize("mode", WITH_GRADIENT)
def test_gradient_of_cell_clip_passes_at_the_border(mode):
    bias = tf.constant([-100.0, 0.0, 100.0, 0.0])  # the gates let the cell state through
    c = tf.constant([[-0.4], [-0.25], [0.1], [0.25], [0.4]])
    with tf.GradientTape() as tape:
        tape.watch(c)
        arrays = [tf.zeros((1, 5, 1)), tf.zeros((2, 4)), bias, None, c, tf.zeros((5, 1))]
        _, final, _ = run(arrays, cell_clip=0.25, mode=mode)
    np.testing.assert_array_equal(final[:, 0], np.float32([-0.25, -0.25, 0.1, 0.25, 0.25]))
    np.testing.assert_array_equal(tape.gradient(final, c)[:, 0], [0.0, 1.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("mode", WITH_GRADIENT)
def test_gradient_of_projection_clip_passes_at_the_border(mode):
    bias = tf.constant([100.0, 100.0, -100.0, 100.0])  # sigmoid(o) = 1, c' = 1
    scale = np.float32(np.tanh(np.float32(1.0)))
    projection = tf.constant([[-0.4, -0.25, 0.1, 0.25, 0.4]]) / scale
    with tf.GradientTape() as tape:
        tape.watch(projection)
        weights = [tf.zeros((6, 4)), bias, projection]
        arrays = [tf.zeros((1, 1, 1)), *weights, tf.zeros((1, 1)), tf.zeros((1, 5))]
        outputs, _, _ = run(arrays, proj_clip=0.3, mode=mode)
    np.testing.assert_allclose(outputs[0, 0], [-0.3, -0.25, 0.1, 0.25, 0.3], rtol=1e-6)
    gradient = tape.gradient(outputs, projection)[0]
    np.testing.assert_allclose(gradient, [0.0, scale, scale, scale, 0.0], rtol=1e-6)


@pytest.mark.slow
@cases([Mode.PLAIN], in_a_graph=True)
def test_unknown_numbers_of_steps_and_rows(case, mode):
    arrays, switches = case
    mask, resets = switches.pop("mask"), switches.pop("resets")
    hidden_dim = arrays[5].shape[1]
    shapes = [(None, None, INPUT_DIM), (None, DIM), (None, hidden_dim), *[(None, None)] * 2]
    dtypes = [tf.float32, tf.float32, tf.float32, tf.bool, tf.bool]
    weights = tensors(arrays[1:4])

    @tf.function(input_signature=[tf.TensorSpec(*s) for s in zip(shapes, dtypes, strict=True)])
    def outputs_and_gradients(x, c, h, here, resets):
        with tf.GradientTape() as tape:
            tape.watch((x, weights[0]))
            outputs, c, _ = run(
                [x, *weights, c, h], mask=here, resets=resets, mode=mode, **switches
            )
            loss = tf.reduce_sum(outputs) + tf.reduce_sum(c)
        return outputs, *tape.gradient(loss, (x, weights[0]))

    mask = np.ones((N_STEPS, BATCH), bool) if mask is None else mask
    resets = np.zeros((N_STEPS, BATCH), bool) if resets is None else resets
    for n_steps, batch in [(N_STEPS, BATCH), (2, 3)]:
        x = arrays[0][:n_steps, :batch]
        c, h = (array[:batch] for array in arrays[4:])
        here, begun = mask[:n_steps, :batch], resets[:n_steps, :batch]
        W = arrays[1:4]
        expected = OracleRun(x, *W, c=c, h=h, mask=here, resets=begun, **switches)
        of_x, of_kernel, *_ = expected.gradients(
            np.ones((n_steps, batch, 1)), np.ones_like(c), np.zeros_like(h)
        )
        received = outputs_and_gradients(x, c, h, here, begun)
        assert_close(received, [expected.results[0], of_x, of_kernel], 1e-5)


@pytest.mark.parametrize("masked", [pytest.param(False, marks=pytest.mark.slow), True])
def test_inside_a_function_that_is_compiled(masked):
    arrays = random_layer(5, 3)
    mask = np.arange(5)[:, np.newaxis] < [5, 1, 3] if masked else None
    keywords = {"mask": mask, "cell_clip": 0.4, "proj_clip": 0.2}

    @tf.function(jit_compile=True, autograph=False)
    def compiled(*arrays):
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            results = run(arrays, **keywords)
            loss = tf.add_n([tf.reduce_sum(r) for r in results])
        return results, tape.gradient(loss, arrays)

    results, received = compiled(*tensors(arrays))
    expected = OracleRun(*arrays, **keywords)
    assert_close(results, expected.results, 2e-6)
    assert_close(received, expected.gradients(*map(np.ones_like, expected.results)), 1e-5)


def test_two_calls_with_the_state_handed_on_are_one_call():
    arrays = tensors(random_layer(7, 3))
    outputs, c, h = run(arrays)
    first, *state = run([arrays[0][:4], *arrays[1:]])
    second, *state = run([arrays[0][4:], *arrays[1:4], *state])
    assert_close([tf.concat([first, second], 0), *state], [outputs, c, h], 1e-6)


@pytest.mark.parametrize("mode", WITH_GRADIENT)
def test_a_row_does_not_depend_on_the_others(mode):
    arrays = tensors(random_layer(9, 37, dim=256, hidden_dim=64))
    outputs, _, _ = run(arrays, mode=mode)
    x, *weights, c, h = arrays
    alone, _, _ = run([x[:, 5:6], *weights, c[5:6], h[5:6]], mode=mode)
    np.testing.assert_allclose(alone, outputs[:, 5:6], rtol=0, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mode", WITH_GRADIENT)
def test_bfloat16_products_stay_near_float32(mode):
    arrays = random_layer(10, 8, dim=256, hidden_dim=64)
    keywords = {"cell_clip": 3.0, "proj_clip": 3.0, "mode": mode}
    results = run(tensors(arrays), precision="bfloat16", **keywords)
    assert {r.dtype for r in results} == {tf.float32}
    expected = run(tensors(arrays), **keywords)
    for one, other in zip(results, expected, strict=True):
        error = np.abs(one - other)
        assert 1e-5 < error.max() < 0.02
        assert error.mean() < 0.004
    received = gradients(run, arrays, precision="bfloat16", **keywords)
    for one, other in zip(received, gradients(run, arrays, **keywords), strict=True):
        assert one.dtype == tf.float32
        assert np.linalg.norm(one - other) < 0.02 * np.linalg.norm(other)
