"""`weight_layers`: results, shared mixes, and use inside and outside a graph."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from bilm import ScalarMix, weight_layers
from bilm.core.errors import InputError
from tests import oracle


@pytest.fixture(scope="module")
def ops():
    """A language model's output: float32 layers (3, 2, 4, 6) and a mask."""
    random = np.random.default_rng(1)
    mask = np.arange(4) < np.array([4, 0, 2])[:, np.newaxis]
    layers = random.normal(1, 2, size=(3, 2, 4, 6)).astype(np.float32)
    layers *= mask[:, np.newaxis, :, np.newaxis]
    return {"lm_embeddings": tf.constant(layers), "mask": tf.constant(mask), "lengths": [4, 0, 2]}


def set_weights(mix, W, gamma):
    mix.gamma.assign([gamma])
    if mix.W is not None:
        mix.W.assign(W)


def test_a_mix_of_ones_own_is_shared_and_its_options_are_its_own(ops):
    mix = ScalarMix(2, l2_coef=0.5, name="shared")
    set_weights(mix, [1.0, 2.0], 3.0)
    one = weight_layers("other", ops, l2_coef=7.0, do_layer_norm=True, mix=mix)
    assert one["mix"] is mix
    expected, _ = oracle.weight_layers(ops["lm_embeddings"], ops["mask"], [1.0, 2.0], 3.0)
    np.testing.assert_allclose(one["weighted_op"], expected, 1e-5, 1e-5)
    np.testing.assert_allclose(one["regularization_op"], 0.5 * 5.0, 1e-6)


def test_a_graph_trains_a_mix_that_is_handed_in(ops):
    mix = weight_layers("elmo", ops, l2_coef=0.1)["mix"]
    target = np.random.default_rng(2).normal(size=(3, 4, 6)).astype(np.float32)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            mixed = weight_layers("elmo", ops, l2_coef=0.1, mix=mix)
            error = tf.reduce_mean((mixed["weighted_op"] - target) ** 2)
            loss = error + mixed["regularization_op"]
        variables = [variable.value for variable in mix.trainable_variables]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.5 * gradient)
        return loss

    losses = [float(step()) for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]
    assert mix.gamma.numpy() != 1 and mix.W.numpy().all()
    assert step.experimental_get_tracing_count() == 1


def test_inside_a_graph_no_mix_is_made_anew(ops):
    @tf.function(autograph=False)
    def traced():
        return weight_layers("elmo", ops)["weighted_op"]

    with pytest.raises(InputError, match=r"mix must be given inside tf\.function"):
        traced()


def test_arrays_serve_as_tensors_do(ops):
    """A Keras model's `predict` returns arrays."""
    arrays = {name: np.asarray(value) for name, value in ops.items()}
    expected = weight_layers("elmo", ops)["weighted_op"]
    np.testing.assert_array_equal(weight_layers("elmo", arrays)["weighted_op"], expected)
