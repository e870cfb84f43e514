"""Inference agrees with the original program's recorded results and with the NumPy formulas."""

from __future__ import annotations

import json

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm import BidirectionalLanguageModel, dump_token_embeddings, weight_layers
from tests import oracle
from tests.compare import close
from tests.recorded import INFERENCE_CASES

KEYS = ("lm_embeddings", "lengths", "token_embeddings", "mask")


def assert_result(result, expected):
    """Compare a model's result with another one, or with the tuple of the NumPy formulas."""
    expected = expected._asdict() if hasattr(expected, "_asdict") else expected
    assert set(result) == set(KEYS)
    np.testing.assert_array_equal(result["lengths"], expected["lengths"])
    np.testing.assert_array_equal(result["mask"], expected["mask"])
    close(result["token_embeddings"], expected["token_embeddings"])
    close(result["lm_embeddings"], expected["lm_embeddings"])


@pytest.fixture(scope="module", params=INFERENCE_CASES)
def replayed(golden, request):
    """A recorded case, with pairs of the recorded and the computed results: of both passes over
    the text for the base model, otherwise of the first pass."""
    folder = golden / "inference" / request.param
    bilm = BidirectionalLanguageModel(
        str(folder / "options.json"), str(folder / "weights.hdf5"), max_batch_size=16, stateful=True
    )
    with h5py.File(folder / "expected.hdf5") as file:
        mix = {name: value[()] for name, value in file["mix_variables"].items()}
        pairs = []
        for number in range(8 if request.param == "base" else 4):
            group = file[f"pass{number // 4}/batch{number % 4}"]
            record = {name: value[()] for name, value in group.items()}
            record["char_ids"] = file[f"pass0/batch{number % 4}/char_ids"][()].astype(np.int32)
            pairs.append((record, bilm(record["char_ids"])))
    return bilm, pairs, mix


def test_carried_states(replayed):
    _, pairs, _ = replayed
    for record, result in pairs:
        present = record["char_ids"].any(axis=-1)
        np.testing.assert_array_equal(result["lengths"], record["lengths"])
        np.testing.assert_array_equal(result["mask"], record["mask"])
        # The original did not zero the padding of layer 0 and of the token embeddings.
        tokens = record["token_embeddings"] * present[..., None]
        close(result["token_embeddings"], tokens)
        layers = record["lm_embeddings"] * record["mask"][:, None, :, None]
        close(result["lm_embeddings"], layers)


def test_types_of_the_result(replayed):
    _, pairs, _ = replayed
    for name in KEYS:
        kinds = {"lengths": np.int32, "mask": np.bool_}
        assert np.asarray(pairs[0][1][name]).dtype == kinds.get(name, np.float32)


def test_reset_states_gives_the_first_result_again(replayed):
    bilm, pairs, _ = replayed
    bilm.reset_states()
    record, result = pairs[0]
    again = bilm(record["char_ids"])
    np.testing.assert_array_equal(again["lm_embeddings"], result["lm_embeddings"])


def assign(mix, values, name):
    """Set a mix's variables to the recorded ones, found by their names."""
    found = {variable.name: variable for variable in mix.weights}
    wanted = {key: value for key, value in values.items() if key.startswith(f"{name}_")}
    assert set(found) == set(wanted)
    for key, value in wanted.items():
        assert tuple(found[key].shape) == value.shape
        found[key].assign(value)


@pytest.mark.parametrize(
    "name, options",
    [
        ("plain", {}),
        ("top", {"use_top_only": True}),
        ("norm", {"do_layer_norm": True, "l2_coef": 1.0}),
    ],
)
def test_weight_layers(replayed, name, options):
    _, pairs, values = replayed
    mix = weight_layers(name, pairs[0][1], **options)["mix"]
    assign(mix, values, name)
    for record, result in pairs:
        mixed = weight_layers(name, result, **options, mix=mix)
        mask = record["mask"]
        weighted = np.asarray(mixed["weighted_op"])
        close(weighted[mask], record[f"weighted_{name}"][mask], atol=1e-5)
        close(mixed["regularization_op"], record.get(f"regularization_{name}", 0.0))


@pytest.fixture(scope="module")
def base(golden):
    """Options, weights and a stateless model of the recorded base case."""
    folder = golden / "inference" / "base"
    bilm = BidirectionalLanguageModel(str(folder / "options.json"), str(folder / "weights.hdf5"))
    options = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    return options, oracle.read_hdf5(folder / "weights.hdf5"), bilm


@pytest.fixture(scope="module")
def sentences(golden):
    return json.loads((golden / "sentences.json").read_text(encoding="utf-8"))


def test_token_cache(golden, tmp_path):
    folder = golden / "inference" / "base"
    options, weights = str(folder / "options.json"), str(folder / "weights.hdf5")
    cache = tmp_path / "cache.hdf5"
    dump_token_embeddings(str(golden / "vocab.txt"), options, weights, str(cache))
    dumped = oracle.read_hdf5(cache)["embedding"]
    recorded = oracle.read_hdf5(folder / "token_embeddings.hdf5")["embedding"]
    assert dumped.dtype == np.float32
    close(dumped, recorded)
    with h5py.File(folder / "expected_tokens.hdf5") as file:
        ids, expected = file["token_ids"][()], file["lm_embeddings"][()]
    for path in (cache, folder / "token_embeddings.hdf5"):
        bilm = BidirectionalLanguageModel(
            options, weights, use_character_inputs=False, embedding_weight_file=str(path)
        )
        result = bilm(ids)
        mask = np.asarray(result["mask"])[:, None, :, None]
        close(result["lm_embeddings"], expected * mask)


def test_stateless_sentences_are_alone(base, sentences):
    options, weights, bilm = base
    ids = oracle.character_ids(sentences, 50)
    together = bilm(ids)
    assert_result(together, oracle.embed(weights, options, ids))
    again = bilm(ids)
    np.testing.assert_array_equal(again["lm_embeddings"], together["lm_embeddings"])
    for row in (0, 3, 16, 36):
        alone = bilm(oracle.character_ids([sentences[row]], 50))
        length = len(sentences[row])
        np.testing.assert_allclose(
            alone["lm_embeddings"][0], together["lm_embeddings"][row, :, :length], atol=1e-6
        )
    backwards = bilm(oracle.character_ids(sentences[::-1], 50))
    np.testing.assert_allclose(
        backwards["lm_embeddings"][::-1], together["lm_embeddings"], atol=1e-6
    )


def test_an_empty_sentence_has_no_vectors(base):
    options, weights, bilm = base
    ids = oracle.character_ids([["one"], [], ["two", "words"]], 50)
    result = bilm(ids)
    assert_result(result, oracle.embed(weights, options, ids))
    assert np.asarray(result["lengths"]).tolist() == [1, 0, 2]
    only_empty = bilm(oracle.character_ids([[]], 50))
    assert only_empty["lm_embeddings"].shape == (1, 3, 0, 24)


@pytest.fixture(scope="module")
def one_layer(golden):
    """Options and weights of the recorded model that is fastest to trace."""
    folder = golden / "inference" / "one_layer"
    return str(folder / "options.json"), str(folder / "weights.hdf5")


def test_every_way_to_call_gives_the_same(one_layer, sentences):
    bilm = BidirectionalLanguageModel(*one_layer)
    ids = oracle.character_ids(sentences[:9], 50)
    expected = bilm(ids)
    symbolic = keras.Input((None, 50), dtype="int32")
    model = keras.Model(symbolic, bilm(symbolic))
    for result in (
        bilm(ids.astype(np.int64)),
        bilm(tf.constant(ids)),
        model(ids),
        model.predict(ids, verbose=0),
    ):
        assert_result(result, expected)


def test_carried_state_inside_a_graph(one_layer, sentences):
    eager = BidirectionalLanguageModel(*one_layer, max_batch_size=9, stateful=True)
    other = BidirectionalLanguageModel(*one_layer, max_batch_size=9, stateful=True)
    traced = tf.function(other, input_signature=[tf.TensorSpec((None, None, 50), tf.int32)])
    for part in (slice(0, 9), slice(9, 13), slice(13, 22)):
        ids = oracle.character_ids(sentences[part], 50)
        assert_result(traced(tf.constant(ids)), eager(ids))


@pytest.mark.parametrize("kind", oracle.MODELS)
def test_models_of_every_kind(tmp_path, kind):
    options = oracle.MODELS[kind]
    weights = oracle.random_weights(options, seed=11)
    files = oracle.write_model(tmp_path, options, weights)
    characters = "char_cnn" in options
    bilm = BidirectionalLanguageModel(
        *files, use_character_inputs=characters, max_batch_size=6, stateful=True
    )
    states = oracle.zero_states(options, 6)
    for seed, lengths in enumerate(([3, 6, 1, 5, 0, 2], [4, 5])):
        ids = oracle.random_characters(options, lengths, seed)
        assert_result(bilm(ids), oracle.embed(weights, options, ids, states))


@pytest.mark.parametrize("kind", ["short_words_261", "no_lstm_projection_tight_clips"])
def test_261_and_262_characters_are_the_same_model(tmp_path, kind):
    options = oracle.MODELS[kind]
    weights = oracle.random_weights(options, seed=3)
    ids = oracle.random_characters(options, [4, 2], seed=3)
    results = []
    for n_characters in (261, 262):
        changed = options | {"char_cnn": options["char_cnn"] | {"n_characters": n_characters}}
        files = oracle.write_model(tmp_path / str(n_characters), changed, weights)
        results.append(BidirectionalLanguageModel(*files)(ids))
    np.testing.assert_array_equal(results[0]["lm_embeddings"], results[1]["lm_embeddings"])


@pytest.mark.parametrize(
    "kind",
    [
        "short_words_261",
        "one_direction",
        pytest.param("four_layers_tight_clips", marks=pytest.mark.slow),
        pytest.param("neither_projection", marks=pytest.mark.slow),
    ],
)
def test_gradients_into_a_trainable_model(tmp_path, kind):
    """Each weight's derivative along a random direction, against a difference quotient."""
    options = oracle.MODELS[kind]
    weights = oracle.random_weights(options, seed=5)
    ids = oracle.random_characters(options, [4, 1, 6], seed=5)
    files = oracle.write_model(tmp_path, options, weights)
    bilm = BidirectionalLanguageModel(*files, trainable=True)
    random = np.random.default_rng(6)
    factors = random.normal(size=bilm(ids)["lm_embeddings"].shape)
    variables = bilm.trainable_variables
    assert len(variables) == len(weights)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(bilm(ids)["lm_embeddings"] * factors.astype(np.float32))
    gradients = tape.gradient(value, [variable.value for variable in variables])
    for variable, gradient in zip(variables, gradients, strict=True):
        # All weights are random, so a variable is identified by its values.
        name = next(n for n, w in weights.items() if np.array_equal(w, variable.numpy()))
        direction = random.normal(size=variable.shape)
        values = []
        for size in (1e-6, -1e-6):
            moved = weights | {name: weights[name].astype(float) + size * direction}
            values.append(np.sum(oracle.embed(moved, options, ids).lm_embeddings * factors))
        along = np.sum(tf.convert_to_tensor(gradient).numpy() * direction)
        np.testing.assert_allclose(along, (values[0] - values[1]) / 2e-6, 1e-3, 1e-3, err_msg=name)
