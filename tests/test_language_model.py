"""The language model in training: initial values, dropout, shared weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from bilm import LanguageModel, Options
from bilm.core.lstm import Dropout
from bilm.files.weights import weight_table
from bilm.training.inputs import make_feed
from tests.small_runs import N_TOKENS, ROWS, STEPS, random_batch, small_options


def feed_of(options, seed=0):
    batch = random_batch(seed)
    batch |= {f"{name}_reverse": value for name, value in random_batch(seed + 50).items()}
    return make_feed(batch, Options.from_dict(options, training=True))


def losses_of(model, feed, dropout_seed=None):
    dropout = None
    if dropout_seed is not None:
        dropout = Dropout(model.options.dropout, tf.constant(dropout_seed, tf.int64))
    return model.losses(feed, model.network.zero_states(ROWS), dropout=dropout)


def test_a_new_model_knows_nothing():
    """With small initial values, the losses are close to the log of the vocabulary size."""
    options = small_options("words", lstm={"dim": 30, "projection_dim": 20, "n_layers": 2})
    (forward, backward), after = losses_of(LanguageModel(options, seed=1), feed_of(options))
    assert forward.shape == backward.shape == (STEPS * ROWS,)
    for losses in (forward, backward):
        np.testing.assert_allclose(np.mean(losses), math.log(N_TOKENS), rtol=0.05)
    assert [len(states) for states in after] == [2, 2]
    assert after[1][0].c.shape == (ROWS, 30) and after[1][0].h.shape == (ROWS, 20)


def test_the_seed_makes_the_initial_values():
    options = small_options("words")
    one, same, other = (LanguageModel(options, seed=seed) for seed in (1, 1, 2))
    for a, b, c in zip(one.weights, same.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)
        zeros = not a.numpy().any()
        assert zeros == (a.name.endswith(("bias", "b")) or "initial" in a.name)
        assert zeros or (a.numpy() != c.numpy()).any()
    assert not any(w.numpy().any() for w in LanguageModel(options, seed=None).weights)


def test_directions_share_the_encoder_and_the_softmax():
    names = [w.checkpoint for w in weight_table(LanguageModel(small_options("words"), seed=None))]
    assert [name for name in names if "RNN_" not in name] == [
        "lm/embedding",
        "lm/softmax/W",
        "lm/softmax/b",
    ]
    of_direction = [[n for n in names if f"RNN_{d}" in n] for d in range(2)]
    assert len(of_direction[0]) == len(of_direction[1]) == 6


def test_a_tied_softmax_trains_the_table_once():
    options = small_options("words", share_embedding_softmax=True)
    model = LanguageModel(options)
    assert model.softmax.W is model.encoder.embedding
    assert len(model.trainable_variables) == len(weight_table(model)) == 1 + 12 + 1


def test_dropout_of_both_directions_and_of_each_step():
    """Both directions have the same weights and words, so only dropout masks make them differ."""
    options = small_options("words", dropout=0.5)
    model = LanguageModel(options, seed=1)
    for ours, theirs in zip(*(stack.weights for stack in model.stacks), strict=True):
        ours.assign(theirs)
    batch = random_batch()
    batch |= {f"{name}_reverse": value for name, value in batch.items()}
    feed = make_feed(batch, model.options)
    (forward, backward), _ = losses_of(model, feed)
    np.testing.assert_array_equal(forward, backward)
    drawn = [losses_of(model, feed, seed)[0] for seed in ((3, 0), (3, 1), (4, 0), (3, 0))]
    np.testing.assert_array_equal(drawn[0], drawn[3])
    flat = [losses.numpy().tobytes() for pair in drawn[:3] for losses in pair]
    assert len(set(flat)) == 6


def test_without_training_there_is_no_sampling():
    options = small_options("words", sample_softmax=True)
    training, using = LanguageModel(options), LanguageModel(options, is_training=False)
    assert training.samples and not using.samples
    # If nothing is sampled, there may be more samples than words.
    LanguageModel(options | {"n_negative_samples_batch": 500}, is_training=False)


def test_states_carry_no_gradient_to_the_batch_before():
    options = small_options("words")
    model = LanguageModel(options, seed=1)
    feed = feed_of(options)
    with tf.GradientTape() as tape:
        _, after = losses_of(model, feed)
        value = tf.add_n([tf.reduce_sum(x) for x in tf.nest.flatten(after)])
    variables = [variable.value for variable in model.trainable_variables]
    assert tape.gradient(value, variables) == [None] * len(variables)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_precisions(precision):
    options = small_options("words")
    feed = feed_of(options)
    exact, _ = losses_of(LanguageModel(options, seed=1), feed)
    losses, after = losses_of(LanguageModel(options, seed=1, precision=precision), feed)
    assert {x.dtype for x in tf.nest.flatten((losses, after))} == {tf.float32}
    np.testing.assert_allclose(losses, exact, 0 if precision == "float32" else 0.03)
