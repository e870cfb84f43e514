"""The compiled loop against the loop of steps, which is tested against an oracle in NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bilm.core.lstm import LSTMStack, Mode, compiled_loop_is_fastest
from bilm.core.options import LSTMOptions, Options, preset
from bilm.core.recurrence import Boundaries
from bilm.core.xla_lstm import ProductLookup

CASES = {
    "clipped": {"cell_clip": 0.3, "proj_clip": 0.2},
    "not_clipped": {},
    "not_projected": {"dim": 4, "cell_clip": 0.3, "proj_clip": 0.2},
    "three_layers_skipped": {"n_layers": 3, "use_skip_connections": True},
    "one_layer": {"n_layers": 1, "proj_clip": 0.2},
}


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [3, 33])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_layers_are_those_of_the_recurrence(case, n_rows):
    """With few rows, the inputs of eight steps are multiplied in one matmul."""
    options = LSTMOptions(**({"dim": 7, "projection_dim": 4, "n_layers": 2} | case))
    draw = np.random.default_rng(2)
    stack = LSTMStack(options, seed=1)
    for weights in stack.layer_weights:
        weights.bias.assign(draw.normal(size=weights.bias.shape))
    vectors = draw.normal(size=(6, 4)).astype(np.float32)
    words = draw.integers(0, 6, (21, n_rows)).astype(np.int32)
    resets = draw.random((21, n_rows)) < 0.2
    states = tuple(
        type(state)(*(tf.constant(draw.normal(size=x.shape) * 0.2, tf.float32) for x in state))
        for state in stack.zero_states(1)
    )
    words, resets = tf.constant(words), tf.constant(resets)

    lookup = ProductLookup(stack.word_products(vectors), words, tf.constant(19))
    boundaries = Boundaries(resets=resets, initial=states)
    received, after = stack(lookup, states, boundaries, mode=Mode.COMPILED_LOOP)

    inputs = tf.gather(vectors, words[:19])
    boundaries = Boundaries(resets=resets[:19], initial=states)
    expected, expected_after = stack(inputs, states, boundaries)
    for one, other in zip(tf.nest.flatten(after), tf.nest.flatten(expected_after), strict=True):
        np.testing.assert_allclose(one, other, 2e-6, 2e-6)
    assert len(received) == options.n_layers
    for one, other in zip(received, expected, strict=True):
        assert one.shape == (21, n_rows, 4)
        np.testing.assert_allclose(one[:19], other, 2e-6, 2e-6)


def test_steps_that_do_not_count_are_zeros():
    options = LSTMOptions(dim=5, projection_dim=4, n_layers=1)
    stack = LSTMStack(options, seed=1)
    products = stack.word_products(np.ones((1, 4), "f"))
    words = ProductLookup(products, np.zeros((5, 2), "i"), tf.constant(3))
    zeros = stack.zero_states(1)
    boundaries = Boundaries(resets=tf.zeros((5, 2), bool), initial=zeros)
    (layer,), _ = stack(words, zeros, boundaries, mode=Mode.COMPILED_LOOP)
    assert np.all(layer[:3] != 0) and not np.any(layer[3:])


def test_small_layers_alone_are_computed_so():
    sizes = {
        name: Options.from_dict(preset(name), training=True).lstm for name in ("small", "original")
    }
    assert compiled_loop_is_fastest(sizes["small"], "float32")
    assert not compiled_loop_is_fastest(sizes["small"], "bfloat16")
    assert not compiled_loop_is_fastest(sizes["original"], "float32")
    assert not compiled_loop_is_fastest(dataclasses.replace(sizes["small"], dim=2048), "float32")
