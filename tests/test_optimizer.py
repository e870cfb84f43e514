"""Adagrad, Adam and Muon against the formulas, with sparse gradients and clipping; schedules."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.core.options import Options
from bilm.files.weights import lstm_blocks, weight_table
from bilm.training import LanguageModel
from bilm.training.optimizer import Optimizer, orthogonal, sum_repeated_rows
from bilm.training.state import RunState
from tests import oracle
from tests.small_runs import small_options

SHAPES = {"table": (7, 3), "matrix": (4, 5), "bias": (6,)}
ROWS = np.array([5, 0, 5, 2, 5, 0], np.int32)


def variables(seed=0):
    random = np.random.default_rng(seed)
    return {
        name: keras.Variable(random.normal(size=shape).astype(np.float32), name=name)
        for name, shape in SHAPES.items()
    }


def gradients(seed):
    """Gradients as in training, sparse with repeated rows for the table, and all of them dense."""
    random = np.random.default_rng(seed)
    values = random.normal(size=(len(ROWS), 3)).astype(np.float32)
    dense = {name: random.normal(size=SHAPES[name]) for name in ("matrix", "bias")}
    given = {name: tf.constant(value, tf.float32) for name, value in dense.items()}
    shape = tf.constant((7, 3))
    given["table"] = tf.IndexedSlices(tf.constant(values), tf.constant(ROWS), shape)
    dense["table"] = np.zeros((7, 3))
    np.add.at(dense["table"], ROWS, values)
    return given, dense


def accumulators_of(optimizer):
    return [slots["Adagrad"] for slots in optimizer.slots]


def in_graph(optimizer, names):
    """The update in a graph, as in training: the indices are not known when tracing."""

    @tf.function(autograph=False)
    def apply(given):
        return optimizer.apply([given[name] for name in names])

    return apply


@pytest.mark.parametrize("clip_norm", [None, 0.7, 1000.0])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_steps_equal_the_formulas(clip_norm, graph):
    trained = variables()
    weights = {name: variable.numpy() for name, variable in trained.items()}
    accumulators = {name: np.ones(value.shape) for name, value in weights.items()}
    optimizer = Optimizer(list(trained.values()), 0.2, clip_norm)
    step = in_graph(optimizer, list(trained)) if graph else None
    for seed in range(4):
        given, dense = gradients(seed)
        norm = step(given) if graph else optimizer.apply([given[name] for name in trained])
        np.testing.assert_allclose(norm, np.sqrt(sum((g**2).sum() for g in dense.values())), 1e-5)
        dense = oracle.clip_by_global_norm(dense, clip_norm)
        weights, accumulators = oracle.adagrad(weights, accumulators, dense, 0.2)
    for name, accumulator in zip(trained, accumulators_of(optimizer), strict=True):
        np.testing.assert_allclose(trained[name], weights[name], 1e-5, 1e-6)
        np.testing.assert_allclose(accumulator, accumulators[name], 1e-5)


def test_only_the_rows_of_a_sparse_gradient_move():
    trained = variables()
    before = trained["table"].numpy()
    optimizer = Optimizer([trained["table"]], 0.2, 10.0)
    given, _ = gradients(1)
    optimizer.apply([given["table"]])
    moved = (trained["table"].numpy() != before).all(axis=1)
    assert moved.tolist() == [True, False, True, False, False, True, False]
    still = accumulators_of(optimizer)[0].numpy()[~moved]
    np.testing.assert_array_equal(still, np.ones_like(still))


def test_a_variable_without_a_gradient_stays():
    trained = variables()
    before = {name: variable.numpy() for name, variable in trained.items()}
    optimizer = Optimizer(list(trained.values()), 0.2, 0.5)
    given, dense = gradients(2)
    norm = optimizer.apply([given["table"], None, given["bias"]])
    del dense["matrix"]
    np.testing.assert_allclose(norm, np.sqrt(sum((g**2).sum() for g in dense.values())), 1e-5)
    np.testing.assert_array_equal(trained["matrix"], before["matrix"])
    np.testing.assert_array_equal(accumulators_of(optimizer)[1], np.ones(SHAPES["matrix"]))
    dense = oracle.clip_by_global_norm(dense, 0.5)
    moved = {name: before[name] for name in dense}
    expected, _ = oracle.adagrad(moved, {name: np.ones(()) for name in dense}, dense, 0.2)
    for name, value in expected.items():
        np.testing.assert_allclose(trained[name], value, 1e-5, 1e-6)


def test_gradients_of_zeros_change_nothing():
    trained = variables()
    before = trained["bias"].numpy()
    optimizer = Optimizer([trained["bias"]], 0.2, 1.0)
    assert float(optimizer.apply([tf.zeros(6)])) == 0.0
    np.testing.assert_array_equal(trained["bias"], before)


def test_a_table_with_a_sparse_and_a_dense_gradient():
    """A tied table is used in a lookup and in a matmul, and the tape adds both gradients."""
    trained = variables()
    table = trained["table"]
    hidden = np.random.default_rng(3).normal(size=(2, 3)).astype(np.float32)
    for dense in (True, False):
        with tf.GradientTape() as tape:
            x = tf.convert_to_tensor(table)
            value = tf.reduce_sum(tf.gather(x, ROWS) * 2.0)
            other = tf.matmul(hidden, x, transpose_b=True) if dense else tf.gather(x, ROWS[:3])
            value += tf.reduce_sum(other)
        gradient = tape.gradient(value, table.value)
        expected = np.zeros((7, 3))
        np.add.at(expected, ROWS, 2.0)
        if dense:
            expected += hidden.sum(axis=0)
        else:
            np.add.at(expected, ROWS[:3], 1.0)
        before = {"table": table.numpy()}
        optimizer = Optimizer([table], 0.1, None)
        optimizer.apply([gradient])
        expected, accumulators = oracle.adagrad(
            before, {"table": np.ones((7, 3))}, {"table": expected}, 0.1
        )
        np.testing.assert_allclose(table, expected["table"], 1e-5, 1e-6)
        np.testing.assert_allclose(accumulators_of(optimizer)[0], accumulators["table"], 1e-5)


def test_repeated_rows_are_summed():
    values = np.arange(18, dtype=np.float32).reshape(6, 3)
    summed = sum_repeated_rows(tf.IndexedSlices(tf.constant(values), tf.constant(ROWS), (7, 3)))
    assert summed.indices.numpy().tolist() == [5, 0, 2]
    expected = [values[[0, 2, 4]].sum(axis=0), values[[1, 5]].sum(axis=0), values[3]]
    np.testing.assert_array_equal(summed.values, expected)
    dense = tf.ones((2, 2))
    assert sum_repeated_rows(dense) is dense


def test_adam_for_dense_weights_and_adagrad_for_rows():
    """Against the formulas of Kingma and Ba (2015), with rates that change from step to step."""
    trained = variables()
    weights = {name: variable.numpy().astype(float) for name, variable in trained.items()}
    table = weights.pop("table")
    accumulator = np.full(SHAPES["table"], 0.01)
    mean = {name: np.zeros(value.shape) for name, value in weights.items()}
    square = {name: np.zeros(value.shape) for name, value in weights.items()}
    optimizer = Optimizer(
        list(trained.values()),
        0.2,
        0.7,
        initial_accumulator=0.01,
        adam_learning_rate=0.05,
        adam_variables=[name != "table" for name in trained],
    )
    step = in_graph(optimizer, list(trained))
    for t, factor in enumerate((0.5, 1.0, 0.25), start=1):
        assert optimizer.set_rates(factor, t - 1) == 0.2 * factor
        given, dense = gradients(t)
        step(given)
        dense = oracle.clip_by_global_norm(dense, 0.7)
        accumulator += dense["table"] ** 2
        table -= 0.2 * factor * dense["table"] / np.sqrt(accumulator)
        for name, weight in weights.items():
            mean[name] = 0.9 * mean[name] + 0.1 * dense[name]
            square[name] = 0.999 * square[name] + 0.001 * dense[name] ** 2
            unbiased = mean[name] / (1 - 0.9**t), square[name] / (1 - 0.999**t)
            weight -= 0.05 * factor * unbiased[0] / np.sqrt(unbiased[1])
    np.testing.assert_allclose(trained["table"], table, 1e-4, 1e-6)
    for name, weight in weights.items():
        np.testing.assert_allclose(trained[name], weight, 1e-4, 1e-6, err_msg=name)
    names = [sorted(slots) for slots in optimizer.slots]
    assert names == [["Adagrad"], ["Adam", "Adam_1"], ["Adam", "Adam_1"]]


# Muon


def near_orthogonal(matrix):
    """The iteration of Jordan et al. (2024), applied to the singular values, with the scale of
    Liu et al. (2025)."""
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    s = s / np.linalg.norm(s)
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    return (u * s) @ v * 0.2 * np.sqrt(max(matrix.shape))


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (1, 5)])
def test_the_orthogonal_matrix(shape):
    matrix = np.random.default_rng(4).normal(size=shape)
    result = orthogonal([tf.constant(matrix, tf.float32)], [(1, 1)])[0].numpy()
    np.testing.assert_allclose(result, near_orthogonal(matrix), atol=1e-4)
    sizes = np.linalg.svd(result, compute_uv=False) / (0.2 * np.sqrt(max(shape)))
    assert sizes.min() > 0.6 and sizes.max() < 1.3


def test_the_orthogonal_matrix_in_bfloat16():
    """Three matmuls in each of five iterations; a processor without bfloat16 rounds every partial
    sum of at most nine terms, by 2**-8 each."""
    matrix = np.random.default_rng(4).normal(size=(6, 9)).astype(np.float32)
    result = orthogonal([tf.constant(matrix)], [(1, 1)], "bfloat16")[0].numpy()
    expected = near_orthogonal(matrix)
    error = np.linalg.norm(result - expected) / np.linalg.norm(expected)
    assert 1e-4 < error < 5 * 3 * 9 * 2**-8


def test_each_block_is_a_matrix_of_its_own():
    matrix = np.random.default_rng(5).normal(size=(6, 20)).astype(np.float32)
    blocks = [[near_orthogonal(block) for block in np.split(half, 4, axis=1)]
              for half in np.split(matrix, 2)]  # fmt: skip
    np.testing.assert_allclose(orthogonal([matrix], [(2, 4)])[0], np.block(blocks), atol=1e-4)


def test_a_matrix_of_zeros_stays():
    np.testing.assert_array_equal(orthogonal([tf.zeros((3, 4))], [(1, 1)])[0], np.zeros((3, 4)))


def test_muon_for_matrices_beside_adam_and_adagrad():
    trained = variables()
    others = variables()
    settings = {"initial_accumulator": 0.01, "adam_learning_rate": 0.05,
                "adam_variables": [name != "table" for name in trained]}  # fmt: skip
    blocks = [(2, 1) if name == "matrix" else None for name in trained]
    optimizer = Optimizer(list(trained.values()), 0.2, 0.7, **settings, muon_blocks=blocks)
    without = Optimizer(list(others.values()), 0.2, 0.7, **settings)
    step, other_step = in_graph(optimizer, list(trained)), in_graph(without, list(trained))
    matrix, mean = trained["matrix"].numpy().astype(float), np.zeros(SHAPES["matrix"])
    for t, factor in enumerate((0.5, 1.0, 0.25), start=1):
        optimizer.set_rates(factor, t - 1)
        without.set_rates(factor, t - 1)
        given, dense = gradients(t)
        step(given)
        other_step(given)
        gradient = oracle.clip_by_global_norm(dense, 0.7)["matrix"]
        mean = 0.95 * mean + 0.05 * gradient
        ahead = 0.95 * mean + 0.05 * gradient  # Nesterov's momentum
        update = np.concatenate([near_orthogonal(half) for half in np.split(ahead, 2)])
        matrix -= 0.05 * factor * (update + 0.2 * matrix)
    np.testing.assert_allclose(trained["matrix"], matrix, 1e-4, 1e-5)
    for name in ("table", "bias"):
        np.testing.assert_array_equal(trained[name], others[name], err_msg=name)
    names = [sorted(slots) for slots in optimizer.slots]
    assert names == [["Adagrad"], ["Momentum"], ["Adam", "Adam_1"]]
    np.testing.assert_allclose(optimizer.slots[1]["Momentum"], mean, 1e-4, 1e-6)


def test_muon_trains_the_kernels_of_the_lstms():
    """In a kernel, the input's rows are above the state's, and the gates are side by side."""
    for kind in ("as_published", "no_lstm_projection_tight_clips", "one_direction_one_layer_words"):
        options = small_options(kind)
        table = weight_table(LanguageModel(options, seed=1))
        found = {w.checkpoint: lstm_blocks(w.checkpoint) for w in table}
        lstms = {name: blocks for name, blocks in found.items() if "/rnn/" in name}
        assert {blocks for name, blocks in found.items() if name not in lstms} == {None}
        for name, blocks in lstms.items():
            projection = name.endswith("projection/kernel")
            kernel = name.endswith("lstm_cell/kernel")
            assert blocks == ((1, 1) if projection else (2, 4) if kernel else None), name
        assert (2, 4) in lstms.values()


# Schedules of the learning rate


@pytest.mark.parametrize(
    ("kind", "warmup", "factors"),
    [
        ("constant", 0, [1, 1, 1, 1, 1]),
        ("linear", 0, [1, 0.8, 0.6, 0.4, 0.2]),
        ("cosine", 0, [1, 0.9045085, 0.6545085, 0.3454915, 0.0954915]),
        ("constant", 2, [0.5, 1, 1, 1, 1]),
        ("linear", 1, [1, 1, 0.75, 0.5, 0.25]),
        ("cosine", 9, [0.5, 1, 1, 0.75, 0.25]),  # a warm-up is at most half of the run
    ],
)
def test_factors_of_a_schedule(kind, warmup, factors):
    state = RunState((1, 1))
    state.set_length(Options.from_dict(small_options(n_steps=5, warmup_steps=warmup), True))
    computed = []
    for state.position in range(5):
        computed.append(state.rate_factor(kind))
    np.testing.assert_allclose(computed, factors, rtol=1e-6)


def test_factors_of_a_run_by_time():
    """They follow the share of the time after set-up: a warm-up of 5 %, then the schedule."""
    state = RunState((1, 1), setup=20.0)
    state.set_length(Options.from_dict(small_options(warmup_steps=7), True), seconds=220.0)
    times = [0, 20, 24, 30, 125, 220, 300]
    computed = {"linear": [], "cosine": [], "constant": []}
    for state.elapsed in times:
        for kind, factors in computed.items():
            factors.append(state.rate_factor(kind))
    np.testing.assert_allclose(computed["linear"], [0.01, 0.01, 0.4, 1, 0.5, 0, 0])
    np.testing.assert_allclose(computed["cosine"], [0.01, 0.01, 0.4, 1, 0.5, 0, 0], atol=1e-9)
    np.testing.assert_allclose(computed["constant"], [0.01, 0.01, 0.4, 1, 1, 1, 1])
    state.warmup, state.elapsed = 0, 20
    assert state.rate_factor("linear") == 1
    with pytest.raises(KeyError):
        state.rate_factor("exponential")
