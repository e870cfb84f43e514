"""The pretrained model: errors, unusual inputs, models of one direction, stateful models."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm import BidirectionalLanguageModel, ELMoEmbedding, Options, ScalarMix
from bilm.core.errors import InputError
from tests import oracle
from tests.small_models import write_small_model


@pytest.fixture(scope="module")
def characters(tmp_path_factory):
    return write_small_model(tmp_path_factory.mktemp("characters"), "short_words_261", seed=6)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return write_small_model(tmp_path_factory.mktemp("words"), "words", seed=6)


@pytest.fixture(scope="module")
def of_characters(characters):
    return BidirectionalLanguageModel(*characters.files)


@pytest.fixture(scope="module")
def of_words(words):
    return BidirectionalLanguageModel(*words.files, use_character_inputs=False)


WIDTH = 7


def test_ids_out_of_range_within_a_graph_are_an_error_too(of_words):
    traced = tf.function(of_words, input_signature=[tf.TensorSpec((None, None), tf.int32)])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[.* is not in \[0, 37\)"):
        traced(tf.constant([[1, 38, 2]]))


@pytest.mark.parametrize("dtype", ["uint8", "int64", "uint64"])
def test_integers_of_every_size(of_words, words, dtype):
    ids = oracle.random_characters(words.options, [3, 1], seed=1)
    np.testing.assert_array_equal(
        of_words(ids.astype(dtype))["lm_embeddings"], of_words(ids)["lm_embeddings"]
    )


def test_lists_are_taken_as_they_are(of_words, words):
    ids = oracle.random_characters(words.options, [3, 1], seed=1)
    np.testing.assert_array_equal(
        of_words(ids.tolist())["lm_embeddings"], of_words(ids)["lm_embeddings"]
    )


def test_ragged_ids_are_an_error(of_words):
    with pytest.raises(InputError, match="sentences must have the same length"):
        of_words(tf.ragged.constant([[1, 4, 5, 2], [1, 4, 2]]))


def test_ids_whose_number_of_axes_is_unknown(of_words, of_characters):
    """As after `tf.py_function`."""
    unknown = tf.TensorSpec(None, tf.int32)
    message = r"ids must have a known number of axes: .* call ids\.set_shape\(\(None, None{}\)\)"
    for model, last in ((of_words, ""), (of_characters, f", {WIDTH}")):
        with pytest.raises(InputError, match=message.format(last)):
            tf.function(model, autograph=False).get_concrete_function(unknown)


@pytest.mark.parametrize("time", [2, 5])
def test_an_empty_batch(of_characters, of_words, time):
    for model, shape in ((of_characters, (0, time, WIDTH)), (of_words, (0, time))):
        result = model(np.zeros(shape, np.int32))
        assert result["lm_embeddings"].shape == (0, 3, time - 2, 16)
        assert result["token_embeddings"].shape == (0, time, 8)
        assert result["lengths"].shape == (0,)
        assert result["mask"].shape == (0, time - 2)


def test_rows_without_any_token(of_characters):
    """Rows without even BOS and EOS have no tokens and give zeros."""
    result = of_characters(np.zeros((2, 4, WIDTH), np.int32))
    assert result["lengths"].numpy().tolist() == [0, 0]
    assert not result["mask"].numpy().any()
    assert not result["lm_embeddings"].numpy().any()
    assert not result["token_embeddings"].numpy().any()


def test_options_as_a_dict_or_read(characters, of_characters):
    options, weight_file = characters.options, characters.files[1]
    ids = oracle.random_characters(options, [2], seed=1)
    expected = of_characters(ids)["lm_embeddings"]
    for given in (options, Options.from_dict(options, training=False)):
        result = BidirectionalLanguageModel(given, weight_file)(ids)
        np.testing.assert_array_equal(result["lm_embeddings"], expected)


@pytest.mark.parametrize("kind", ["one_direction", "one_direction_one_layer_words"])
def test_one_direction(tmp_path, kind):
    """The last axis holds only the forward direction; later words do not change earlier vectors."""
    made = write_small_model(tmp_path, kind, seed=6)
    options, weights, files = made.options, made.weights, made.files
    is_words = "char_cnn" not in options
    model = BidirectionalLanguageModel(*files, use_character_inputs=not is_words)
    ids = oracle.random_characters(options, [4, 0, 6, 1], seed=2)
    result, expected = model(ids), oracle.embed(weights, options, ids)
    assert result["lm_embeddings"].shape == (4, options["lstm"]["n_layers"] + 1, 6, 8)
    np.testing.assert_allclose(result["lm_embeddings"], expected.lm_embeddings, 1e-5, 5e-6)
    shorter = model(ids[:, :5])["lm_embeddings"]
    np.testing.assert_allclose(shorter[2], result["lm_embeddings"][2, :, :3], 1e-6, 1e-6)


def test_products_in_bfloat16_are_near(words, of_words):
    ids = oracle.random_characters(words.options, [5, 3, 4], seed=1)
    near = BidirectionalLanguageModel(*words.files, False, precision="bfloat16")(ids)[
        "lm_embeddings"
    ]
    exact = of_words(ids)["lm_embeddings"]
    assert near.dtype == tf.float32
    assert 0 < np.linalg.norm(near - exact) < 0.03 * np.linalg.norm(exact)


@pytest.fixture
def stateful(words):
    return BidirectionalLanguageModel(*words.files, False, max_batch_size=3, stateful=True)


def test_two_inputs_would_share_the_states(stateful):
    paragraph, question = (keras.Input((None,), dtype="int32") for _ in range(2))
    stateful(paragraph)
    with pytest.raises(InputError, match=r"a second keras\.Input would continue from the states"):
        stateful(question)


def test_a_batch_over_max_batch_size(stateful, words):
    ids = oracle.random_characters(words.options, [2, 5, 1, 1], seed=1)
    with pytest.raises(InputError, match="ids must have at most max_batch_size = 3"):
        stateful(ids)


def test_a_batch_over_max_batch_size_within_a_graph(stateful, words):
    traced = tf.function(stateful, input_signature=[tf.TensorSpec((None, None), tf.int32)])
    ids = oracle.random_characters(words.options, [2, 5, 1, 1], seed=1)
    traced(tf.constant(ids[:2]))
    before = [variable.numpy() for variable in stateful.weights]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="ids must have at most max_batch_size = 3 sentences"
    ):
        traced(tf.constant(ids))
    for variable, value in zip(stateful.weights, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_a_model_from_its_configuration(words, of_words):
    """The configuration does not contain the weights; they are set separately."""
    config = of_words.get_config()
    assert json.loads(json.dumps(config["options_file"])) == of_words.options.inference_dict()
    copy = BidirectionalLanguageModel.from_config(config)
    assert copy.get_config() == config
    assert [v.shape for v in copy.weights] == [v.shape for v in of_words.weights]
    copy.set_weights(of_words.get_weights())
    ids = oracle.random_characters(words.options, [2, 5], seed=1)
    np.testing.assert_array_equal(copy(ids)["lm_embeddings"], of_words(ids)["lm_embeddings"])


def test_in_a_graph_of_tensorflow_1(tmp_path):
    model = write_small_model(tmp_path, "as_published")
    bilm, elmo = BidirectionalLanguageModel(*model.files), ELMoEmbedding(*model.files)
    calls = (
        lambda: BidirectionalLanguageModel(*model.files),
        lambda: ScalarMix(3),
        lambda: bilm(tf.compat.v1.placeholder(tf.int32, (None, None, 50))),
        lambda: elmo(tf.compat.v1.placeholder(tf.string, (None,))),
    )
    for call in calls:
        with tf.Graph().as_default(), pytest.raises(InputError, match="eager execution"):
            call()
