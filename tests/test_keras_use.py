"""The language model and its mix as layers of a user's own Keras model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm import BidirectionalLanguageModel, weight_layers
from bilm.files.weights import weight_table
from tests import oracle
from tests.small_models import write_small_model

N_TAGS, L2 = 3, 0.05


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """The model that is fastest to trace: words, one direction, one layer."""
    return write_small_model(
        tmp_path_factory.mktemp("words"), "one_direction_one_layer_words", seed=6
    )


def build_tagger(files, trainable=False, n_uses=1, **mix_options):
    """ids -> language model -> mix -> a tag for every token; the mix is used `n_uses` times."""
    options = json.loads(Path(files[0]).read_text(encoding="utf-8"))
    characters = "char_cnn" in options
    shape = (None, options["char_cnn"]["max_characters_per_token"]) if characters else (None,)
    ids = keras.Input(shape, dtype="int32")
    bilm = BidirectionalLanguageModel(*files, use_character_inputs=characters, trainable=trainable)
    ops = bilm(ids)
    mixed = weight_layers("tagger", ops, **mix_options)
    vectors = [mixed["weighted_op"]]
    for _ in range(n_uses - 1):
        vectors.append(weight_layers("tagger", ops, mix=mixed["mix"])["weighted_op"])
    x = keras.layers.concatenate(vectors) if n_uses > 1 else vectors[0]
    tags = keras.layers.Dense(N_TAGS, kernel_initializer=keras.initializers.GlorotNormal(1))(x)
    return keras.Model(ids, tags), bilm, mixed["mix"]


def compiled(model, **settings):
    model.compile(
        keras.optimizers.Adam(0.05),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **settings,
    )
    return model


@pytest.fixture(scope="module")
def examples(words):
    ids = oracle.random_characters(words.options, [3, 5, 1, 4, 2, 5, 5, 3], seed=1)
    return ids, ids[:, 1:-1] % N_TAGS


def copies(variables):
    return [variable.numpy().copy() for variable in variables]


def differ(variables, before):
    return [not np.array_equal(v.numpy(), b) for v, b in zip(variables, before, strict=True)]


@pytest.fixture(scope="module")
def fitted(words, examples):
    """A trained tagger, with copies of its weights from before training."""
    model, bilm, mix = build_tagger(words.files, l2_coef=L2, do_layer_norm=True)
    before = copies(bilm.weights), copies(mix.trainable_variables)
    history = compiled(model).fit(*examples, batch_size=4, epochs=3, verbose=0)
    return model, bilm, mix, before, history.history["loss"]


def test_fit_trains_the_mix_and_leaves_the_language_model(fitted):
    model, bilm, mix, (of_bilm, of_mix), losses = fitted
    assert [variable.name for variable in mix.trainable_variables] == [
        "tagger_ELMo_W",
        "tagger_ELMo_gamma",
    ]
    assert all(differ(mix.trainable_variables, of_mix))
    assert not any(differ(bilm.weights, of_bilm))
    assert bilm.trainable_variables == []
    assert len(model.trainable_variables) == 4
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_fit_trains_a_language_model_that_is_trainable(words, examples):
    model, bilm, mix = build_tagger(words.files, trainable=True)
    before, of_mix = copies(bilm.trainable_variables), copies(mix.trainable_variables)
    assert len(before) == 4
    compiled(model).fit(*examples, batch_size=4, epochs=1, verbose=0)
    assert all(differ(bilm.trainable_variables, before))
    assert all(differ(mix.trainable_variables, of_mix))


def test_training_can_be_switched_on_and_off(words, examples):
    model, bilm, _ = build_tagger(words.files)
    ids, _ = examples
    for trainable in (True, False):
        bilm.trainable = trainable
        assert len(bilm.trainable_variables) == (4 if trainable else 0)
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(bilm(ids)["lm_embeddings"])
        weights = [weight.variable for weight in weight_table(bilm.network)]
        gradients = tape.gradient(value, [variable.value for variable in weights])
        assert [g is not None for g in gradients] == [trainable] * 4
    assert model.trainable_variables


@pytest.mark.parametrize("n_uses", [1, 2])
def test_the_regularisation_is_among_the_losses_once(words, examples, n_uses):
    model, _, mix = build_tagger(words.files, l2_coef=L2, n_uses=n_uses)
    mix.W.assign([1.0, -2.0])
    assert len(model.losses) == 1
    np.testing.assert_allclose(model.losses[0], L2 * 5.0, 1e-6)
    ids, tags = examples
    expected = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(tags, model(ids))
    total = compiled(model).evaluate(ids, tags, batch_size=len(ids), verbose=0)
    np.testing.assert_allclose(total, float(expected) + L2 * 5.0, 1e-5)


def test_the_mix_brings_the_mask_of_keras(words, examples):
    """The next layer, here a pooling layer, ignores the padding."""
    model, bilm, _ = build_tagger(words.files)
    ids, _ = examples
    mask = bilm(ids)["mask"].numpy()
    mixed = weight_layers("tagger", bilm(ids))["weighted_op"]
    np.testing.assert_array_equal(mixed._keras_mask, mask)
    np.testing.assert_array_equal(model(ids)._keras_mask, mask)
    pooled = keras.layers.GlobalAveragePooling1D()(mixed)
    expected = mixed.numpy().sum(axis=1) / mask.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(pooled, expected, 1e-5, 1e-6)
    # `fit` on a GPU checks this before compiling with XLA, which does not support the layer.
    assert not bilm.supports_jit


def test_two_mixes_over_one_language_model(words, examples):
    ids = keras.Input((None,), dtype="int32")
    ops = BidirectionalLanguageModel(*words.files, use_character_inputs=False)(ids)
    mixed = [weight_layers(name, ops) for name in ("input", "output")]
    model = keras.Model(ids, [m["weighted_op"] for m in mixed])
    assert sorted(variable.name for variable in model.trainable_variables) == [
        "input_ELMo_W",
        "input_ELMo_gamma",
        "output_ELMo_W",
        "output_ELMo_gamma",
    ]
    mixed[1]["mix"].gamma.assign([2.0])
    first, second = model(examples[0])
    np.testing.assert_allclose(2 * first, second, 1e-6, 1e-6)


def test_saved_and_loaded_gives_the_same_and_trains_on(fitted, examples, tmp_path):
    model, _, mix, _, _ = fitted
    model.save(tmp_path / "tagger.keras")
    loaded = keras.models.load_model(tmp_path / "tagger.keras")
    np.testing.assert_array_equal(loaded.predict(examples[0]), model.predict(examples[0]))
    assert len(loaded.trainable_variables) == 4
    layers = {layer.name: layer for layer in loaded.layers}
    np.testing.assert_array_equal(layers["tagger"].W, mix.W)
    np.testing.assert_allclose(loaded.losses[0], model.losses[0])
    losses = [m.evaluate(*examples, batch_size=8, verbose=0) for m in (loaded, model)]
    np.testing.assert_allclose(*losses, 1e-6)
    for ours, theirs in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    before = copies(loaded.weights)
    loaded.fit(*examples, batch_size=4, epochs=1, verbose=0)
    assert sum(differ(loaded.weights, before)) == 4


def test_weights_alone_are_saved_and_loaded(fitted, words, examples, tmp_path):
    model = fitted[0]
    model.save_weights(tmp_path / "tagger.weights.h5")
    other, _, _ = build_tagger(words.files, l2_coef=L2, do_layer_norm=True)
    other.load_weights(tmp_path / "tagger.weights.h5")
    np.testing.assert_array_equal(other(examples[0]), model(examples[0]))


@pytest.mark.slow
def test_a_model_of_mixed_precision(words, examples):
    """The language model and the mix stay float32 in a mixed-precision model."""
    ids, tags = examples
    expected = BidirectionalLanguageModel(*words.files, use_character_inputs=False)(ids)
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model, bilm, mix = build_tagger(words.files)
        ours = bilm(ids)["lm_embeddings"]
        compiled(model).fit(ids, tags, batch_size=8, epochs=1, verbose=0)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    np.testing.assert_array_equal(ours, expected["lm_embeddings"])
    assert {variable.dtype for variable in mix.weights} == {"float32"}
    assert mix.W.numpy().all() and model(ids).dtype == tf.bfloat16


LOADER = """
import sys
import numpy as np
import keras
import bilm
model = keras.models.load_model(sys.argv[1])
np.save(sys.argv[3], model.predict(np.load(sys.argv[2]), verbose=0))
"""


@pytest.mark.slow
def test_loaded_in_another_process(tmp_path):
    """Loading does not need the original model files."""
    made = write_small_model(tmp_path / "model", "short_words_261", seed=6)
    options, files = made.options, made.files
    ids = oracle.random_characters(options, [3, 5, 1], seed=1)
    model, _, mix = build_tagger(files)
    mix.W.assign([0.3, 0.1, -0.4])
    model.save(tmp_path / "tagger.keras")
    for file in files:
        Path(file).unlink()
    np.save(tmp_path / "ids.npy", ids)
    arguments = [str(tmp_path / name) for name in ("tagger.keras", "ids.npy", "out.npy")]
    subprocess.run([sys.executable, "-c", LOADER, *arguments], check=True)
    np.testing.assert_allclose(np.load(arguments[2]), model.predict(ids), 1e-6, 1e-6)
