"""Cross-entropies: sampled, against TensorFlow's own function, and full, against dense logits."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from bilm.core.full_softmax import full_cross_entropy, log_probabilities
from bilm.core.softmax import Negatives, Softmax, is_member
from tests import oracle

N_TOKENS, DIM, ROWS, N_SAMPLES = 60, 5, 50, 24


class Case:
    """Two directions; targets repeat within and between them, and some are also samples."""

    def __init__(self, seed=0, rows=ROWS):
        random = np.random.default_rng(seed)
        self.W = random.normal(size=(N_TOKENS, DIM)).astype(np.float32)
        self.b = random.normal(size=N_TOKENS).astype(np.float32)
        self.hidden = random.normal(size=(2, rows, DIM)).astype(np.float32)
        self.targets = random.integers(0, N_TOKENS, (2, rows)).astype(np.int32)
        self.samples = [
            np.sort(random.permutation(N_TOKENS)[:N_SAMPLES]).astype(np.int32) for _ in range(2)
        ]
        self.n_tries = (55.0, 71.0)
        self.factors = random.uniform(0.2, 1.0, (2, rows)).astype(np.float32)
        hits = np.isin(self.targets[0], self.samples[0])
        assert hits.any() and not hits.all()

    def counts(self, d):
        return [
            oracle.log_uniform_expected_count(ids, N_TOKENS, self.n_tries[d])
            for ids in (self.targets[d], self.samples[d])
        ]

    def layer(self, **options):
        layer = Softmax(N_TOKENS, DIM, **options)
        layer.W.assign(self.W)
        layer.b.assign(self.b)
        return layer

    def negatives(self):
        given = []
        for ids, n in zip(self.samples, self.n_tries, strict=True):
            given.append(Negatives(tf.constant(ids), tf.constant(n)))
        return tuple(given)

    def tensorflows_losses(self, hidden, W, b):
        """tf.nn.sampled_softmax_loss of each direction."""
        losses = []
        for d in range(2):
            of_targets, of_samples = self.counts(d)
            sampled = (
                tf.constant(self.samples[d], tf.int64),
                tf.constant(of_targets[:, np.newaxis], tf.float32),
                tf.constant(of_samples, tf.float32),
            )
            labels = tf.constant(self.targets[d][:, np.newaxis], tf.int64)
            losses.append(
                tf.nn.sampled_softmax_loss(
                    W, b, labels, hidden[d], N_SAMPLES, N_TOKENS, sampled_values=sampled
                )
            )
        return losses


def sampled_losses_and_gradients(case, layer):
    hidden = tf.constant(case.hidden)
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        losses = layer.sampled_losses(
            tuple(tf.unstack(hidden)), tuple(tf.unstack(case.targets)), case.negatives()
        )
        value = tf.reduce_sum(tf.stack(losses) * case.factors)
    gradients = tape.gradient(value, [hidden, layer.W.value, layer.b.value])
    return losses, gradients


@pytest.mark.parametrize("rows_at_once", [320, 13])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_sampled_softmax_is_tensorflows(rows_at_once, graph):
    case = Case()
    layer = case.layer(rows_at_once=rows_at_once)
    run = tf.function(lambda: sampled_losses_and_gradients(case, layer), autograph=False)
    losses, gradients = run() if graph else sampled_losses_and_gradients(case, layer)
    expected_of = [tf.constant(x) for x in (case.hidden, case.W, case.b)]
    with tf.GradientTape() as tape:
        tape.watch(expected_of)
        expected = case.tensorflows_losses(*expected_of)
        value = tf.reduce_sum(tf.stack(expected) * case.factors)
    np.testing.assert_allclose(losses, expected, 2e-5, 1e-5)
    for ours, theirs in zip(gradients, tape.gradient(value, expected_of), strict=True):
        np.testing.assert_allclose(
            tf.convert_to_tensor(ours), tf.convert_to_tensor(theirs), 1e-4, 1e-5
        )


def test_sampled_softmax_of_unknown_numbers_of_rows():
    case = Case(8)
    layer = case.layer(rows_at_once=7)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, DIM))] * 2)
    def run(*hidden):
        return layer.sampled_losses(hidden, tuple(tf.unstack(case.targets)), case.negatives())

    losses = run(*tf.unstack(case.hidden))
    expected = case.tensorflows_losses(case.hidden, case.W, case.b)
    np.testing.assert_allclose(losses, expected, 2e-5, 1e-5)


def test_the_gradient_of_W_is_sparse_and_has_each_row_once():
    case = Case(2)
    _, (_, of_W, of_b) = sampled_losses_and_gradients(case, case.layer())
    needed = np.union1d(case.targets, np.concatenate(case.samples))
    for gradient in (of_W, of_b):
        assert isinstance(gradient, tf.IndexedSlices)
        assert sorted(gradient.indices.numpy()) == needed.tolist()


@pytest.mark.parametrize("hit", [True, False])
def test_every_target_hit_and_no_target_hit(hit):
    case = Case(3)
    for d in range(2):
        outside = np.setdiff1d(np.arange(N_TOKENS), case.samples[d])
        case.targets[d] = np.resize(case.samples[d] if hit else outside, ROWS)
    losses, gradients = sampled_losses_and_gradients(case, case.layer())
    expected = case.tensorflows_losses(case.hidden, case.W, case.b)
    np.testing.assert_allclose(losses, expected, 2e-5, 1e-5)
    for gradient in gradients:
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


def test_very_large_logits_stay_finite():
    case = Case(4)
    case.W *= 1e4
    losses, gradients = sampled_losses_and_gradients(case, case.layer())
    expected = case.tensorflows_losses(case.hidden, case.W, case.b)
    np.testing.assert_allclose(losses, expected, 1e-4, 1e-2)
    for gradient in gradients:
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


def test_members_of_a_rising_list():
    ordered = tf.constant([2, 3, 7, 11])
    ids = tf.constant([0, 2, 3, 4, 11, 12])
    expected = [False, True, True, False, True, False]
    assert is_member(ids, ordered).numpy().tolist() == expected


N_CLASSES = 500


def dense_losses(hidden, W, b, targets):
    logits = tf.matmul(hidden, W, transpose_b=True) + b
    return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)


def full_arguments(rows, scale=1.0):
    random = np.random.default_rng(rows)
    arrays = [random.normal(size=shape) for shape in ((rows, DIM), (N_CLASSES, DIM), (N_CLASSES,))]
    tensors = [tf.constant(scale * array, tf.float32) for array in arrays]
    # Some targets repeat or are at the borders of blocks.
    targets = np.resize([0, 127, 128, 499, 499, 200, 399, 400], rows).astype(np.int32)
    return tensors, tf.constant(targets), tf.constant(random.uniform(size=rows), tf.float32)


def losses_and_gradients(function, tensors, targets, factors):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        losses = function(*tensors, targets)
        value = tf.reduce_sum(losses * factors)
    return losses, [tf.convert_to_tensor(g) for g in tape.gradient(value, tensors)]


@pytest.mark.parametrize("block", [128, 250, 100_000])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_full_softmax_in_blocks_is_the_dense_one(block, graph):
    rows = 9
    arguments = full_arguments(rows)
    in_blocks = functools.partial(full_cross_entropy, block_bytes=4 * rows * block)

    def ours():
        return losses_and_gradients(in_blocks, *arguments)

    losses, gradients = tf.function(ours, autograph=False)() if graph else ours()
    expected, expected_gradients = losses_and_gradients(dense_losses, *arguments)
    np.testing.assert_allclose(losses, expected, 1e-5, 1e-5)
    for one, other in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-6)


@pytest.mark.parametrize("scale", [30.0, 1e4])
def test_full_softmax_of_large_logits(scale):
    arguments = full_arguments(6, scale)
    in_blocks = functools.partial(full_cross_entropy, block_bytes=1)
    losses, gradients = losses_and_gradients(in_blocks, *arguments)
    expected, _ = losses_and_gradients(dense_losses, *arguments)
    np.testing.assert_allclose(losses, expected, 1e-4, 1e-3)
    for gradient in gradients:
        assert np.isfinite(gradient).all()


def test_full_softmax_of_no_rows():
    tensors, _, _ = full_arguments(1)
    losses = full_cross_entropy(tf.zeros((0, DIM)), *tensors[1:], tf.zeros((0,), tf.int32))
    assert losses.shape == (0,)


@pytest.mark.parametrize("shift", [0, -200, 200])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_log_probabilities_in_blocks(precision, shift):
    """Several blocks of rows and classes, and incomplete ones; also of logits whose exponentials
    are beyond float32."""
    random = np.random.default_rng(1)
    hidden, W = (random.normal(size=(n, 16)).astype(np.float32) for n in (600, 9000))
    W, b = W / 4, random.normal(shift, size=9000).astype(np.float32)
    index, targets = random.integers(0, 600, 900), random.integers(0, 9000, 900)
    index, targets = index.astype(np.int32), targets.astype(np.int32)
    arguments = map(tf.constant, (hidden, W, b, index, targets))
    found = log_probabilities(*arguments, precision=precision)
    logits = hidden.astype(np.float64) @ W.T + b
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    tolerance = (1e-5 if precision == "float32" else 0.05) * (10 if shift else 1)
    np.testing.assert_allclose(found, expected[index, targets], atol=tolerance, rtol=1e-5)


def test_full_losses_of_the_layer():
    case = Case(6)
    losses = case.layer().full_losses(tf.constant(case.hidden[0]), tf.constant(case.targets[0]))
    expected = oracle.full_softmax(case.hidden[0], case.targets[0], case.W, case.b)
    np.testing.assert_allclose(losses, expected, 1e-5, 1e-5)


def test_a_tied_softmax_has_no_W_of_its_own():
    case = Case(7)
    table = case.layer().W
    tied = Softmax(N_TOKENS, DIM, tied=table)
    assert tied.is_tied and tied.W is table
    assert {variable.path for variable in tied.weights} == {table.path, tied.b.path}


def test_initial_values():
    layer = Softmax(4000, 25, seed=3)
    assert not layer.b.numpy().any()
    values = layer.W.numpy()
    assert abs(values.std() - 1 / 5) < 0.002 and abs(values.mean()) < 0.002
    np.testing.assert_array_equal(values, Softmax(4000, 25, seed=3).W.numpy())
    assert (values != Softmax(4000, 25, seed=4).W.numpy()).any()
    assert not Softmax(10, 3, seed=None).W.numpy().any()
