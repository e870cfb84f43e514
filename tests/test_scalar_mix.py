"""The layer mix alone, against the NumPy formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bilm.core.errors import InputError
from bilm.core.scalar_mix import ScalarMix
from bilm.inference.layers import LayerChoice
from tests import oracle

MIXES: dict[str, dict[str, Any]] = {
    "plain": {},
    "regularised": {"l2_coef": 0.5},
    "top": {"use_top_only": True},
    "normed": {"do_layer_norm": True, "l2_coef": 0.1},
}


def mix_case(seed=0):
    random = np.random.default_rng(seed)
    layers = random.normal(2, 3, size=(4, 3, 6, 5)).astype(np.float32)
    mask = np.arange(6) < np.array([6, 1, 0, 4])[:, np.newaxis]
    return layers, mask, random.normal(size=3).astype(np.float32)


@pytest.mark.parametrize("kind", MIXES)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_a_mix_equals_the_formula(kind, graph):
    layers, mask, W = mix_case()
    mix = ScalarMix(3, **MIXES[kind])
    mix.gamma.assign([1.7])
    if mix.W is not None:
        mix.W.assign(W)
    run = tf.function(mix, autograph=False) if graph else mix
    result = run(tf.constant(layers), tf.constant(mask))
    expected, regularization = oracle.weight_layers(
        layers,
        mask,
        None if kind == "top" else W,
        1.7,
        MIXES[kind].get("l2_coef", 0.0),
        MIXES[kind].get("do_layer_norm", False),
    )
    np.testing.assert_allclose(result, expected, 1e-5, 1e-5)
    np.testing.assert_allclose(mix.regularization(), regularization, 1e-6)
    losses = [float(loss) for loss in mix.losses]
    np.testing.assert_allclose(losses, [regularization] if "l2_coef" in MIXES[kind] else [])


def test_a_new_mix_weighs_all_layers_alike():
    layers, mask, _ = mix_case()
    mix = ScalarMix(3, name="new")
    np.testing.assert_allclose(mix(layers, mask), layers.mean(axis=1), 1e-5, 1e-5)
    shapes = {variable.name: variable.shape for variable in mix.weights}
    assert shapes == {"new_ELMo_W": (3,), "new_ELMo_gamma": (1,)}
    assert [v.name for v in ScalarMix(3, use_top_only=True, name="t").weights] == ["t_ELMo_gamma"]


def test_a_mix_over_a_batch_without_a_token():
    layers, mask, _ = mix_case()
    result = ScalarMix(3, do_layer_norm=True)(layers * 0, np.zeros_like(mask))
    np.testing.assert_array_equal(result, np.zeros((4, 6, 5)))


@pytest.mark.parametrize("kind", MIXES)
def test_a_mix_from_its_configuration(kind):
    mix = ScalarMix(3, return_regularization=True, name="mine", **MIXES[kind])
    copy = ScalarMix.from_config(mix.get_config())
    assert copy.get_config() == mix.get_config()
    layers, mask, _ = mix_case()
    for ours, theirs in zip(copy(layers, mask), mix(layers, mask), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_gradients_of_a_mix():
    layers, mask, W = mix_case()
    mix = ScalarMix(3, do_layer_norm=True)
    factors = np.random.default_rng(4).normal(size=(4, 6, 5))
    mix.W.assign(W)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(mix(layers, mask) * factors.astype(np.float32))
    of_W, of_gamma = tape.gradient(value, [mix.W.value, mix.gamma.value])

    def value_at(W, gamma):
        return np.sum(oracle.weight_layers(layers, mask, W, gamma, 0.0, True)[0] * factors)

    e = 1e-5
    for k in range(3):
        step = e * np.eye(3)[k]
        expected = (value_at(W + step, 1) - value_at(W - step, 1)) / (2 * e)
        np.testing.assert_allclose(of_W[k], expected, 1e-3, 1e-3)
    np.testing.assert_allclose(of_gamma, [value_at(W, 1)], 1e-4, 1e-4)


def test_a_mix_for_another_number_of_layers():
    layers, mask, _ = mix_case()
    with pytest.raises(InputError, match="with 4 layers for the ScalarMix 'm',"):
        ScalarMix(4, name="m")(layers, mask)
    for n_layers in (0, 2.0):
        with pytest.raises(InputError, match=r"n_layers must be an integer from 1 to"):
            ScalarMix(n_layers)


def test_a_mix_of_extreme_numbers_is_finite_or_refused():
    layers = np.ones((3, 2, 4), np.float32) * np.array([1, 2, 3], np.float32)[:, None, None]
    mix = ScalarMix(3, name="m")
    mix.W.assign([-1000, 1000, 0])
    np.testing.assert_allclose(LayerChoice(mix, 3)(layers), np.full((2, 4), 2))
    for variable in mix.weights:
        value = variable.numpy()
        for special in (np.nan, np.inf):
            variable.assign(np.full(variable.shape, special))
            with pytest.raises(InputError, match="the weights of the mix 'm' must be finite"):
                LayerChoice(mix, 3)
        variable.assign(value)


def test_layers_and_masks_of_other_kinds():
    layers, mask, _ = mix_case()  # (4, 3, 6, 5), (4, 6)
    mix = ScalarMix(3, do_layer_norm=True)
    for dtype in (np.float64, np.float16):
        np.testing.assert_allclose(mix(layers.astype(dtype), mask), mix(layers, mask), 0.01, 0.01)
    np.testing.assert_array_equal(mix(layers, mask.astype(int)), mix(layers, mask))
    with pytest.raises(InputError, match=r"^lm_embeddings must be .batch, .* with 3"):
        mix(layers[0], mask)
    for other in (mask[:3], mask[:, :5], mask[0], True, "mask"):
        with pytest.raises(InputError, match=r"^mask must be bool \(batch, time\), here"):
            mix(layers, other)
    for l2_coef in (-1, np.nan, np.inf, "x"):
        with pytest.raises(InputError, match=r"l2_coef must be a finite number from 0 to"):
            ScalarMix(3, l2_coef=l2_coef)


def test_values_at_the_start():
    """AllenNLP's scalar_mix_parameters, which its softmax turns into factors, and gamma."""
    W, gamma = [0.5, -1.0, 2.0], 0.7
    mix = ScalarMix(weights=W, gamma=gamma)
    factors = gamma * np.exp(W) / np.exp(W).sum()
    np.testing.assert_allclose(mix.layer_weights(3), factors, 1e-6)
    layers = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_allclose(mix(layers), np.einsum("k,bktd->btd", factors, layers), 1e-4, 1e-5)
    copy = ScalarMix.from_config(mix.get_config())
    np.testing.assert_array_equal(copy.layer_weights(3), mix.layer_weights(3))
    # As a checkpoint of bilm-tf and AllenNLP's parameters have them.
    same = ScalarMix(weights=[np.array([w]) for w in W], gamma=tf.constant([gamma]))
    np.testing.assert_allclose(same.layer_weights(3), factors, 1e-6)
    for wrong in ([1.0, float("nan")], "a", [], [[1.0]]):
        with pytest.raises(InputError, match="weights must be"):
            ScalarMix(weights=wrong)
    with pytest.raises(InputError, match="weights must be 2 finite numbers"):
        ScalarMix(2, weights=W)


def test_without_a_mask_all_positions_count():
    layers = np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)
    for do_layer_norm in (False, True):
        mix = ScalarMix(3, do_layer_norm=do_layer_norm)
        np.testing.assert_array_equal(mix(layers), mix(layers, np.ones((2, 4), bool)))
