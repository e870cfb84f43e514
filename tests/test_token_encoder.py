"""Vectors of words from characters or from a table, against the NumPy formulas."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from bilm.core import options, token_encoder
from bilm.core.options import CharCNNOptions
from bilm.core.token_encoder import CharacterEncoder, WordEmbedding
from tests import oracle
from tests.oracle import encoder as numpy_encoder

SIZE = 6
ENCODERS = {
    "published": {"activation": "relu", "n_highway": 2},
    "no_projection": {"activation": "relu", "n_highway": 1, "filters": ((2, 2), (4, 4))},
    "wide_filter": {"activation": "tanh", "n_highway": 0, "filters": ((1, 3), (9, 4))},
    "narrow_words": {
        "activation": "relu",
        "n_highway": 1,
        "filters": ((7, 5),),
        "max_characters_per_token": 7,
    },
}
LETTERS = "abcdefgh éßж字😀"


def words_of_every_length(width, seed=0):
    """Inference ids of words from no bytes to more than fit, and of BOS and EOS."""
    random = np.random.default_rng(seed)
    words = ["".join(random.choice(list(LETTERS), n)) for n in range(width + 2)]
    words += ["<S>", "</S>", "aaaa", "\u00ff" * width]
    return np.stack([oracle.word_characters(word, width) for word in words]).astype(np.int32) + 1


class EncoderCase:
    """An encoder with random weights, and the same weights for the formulas."""

    def __init__(self, kind, precision="float32"):
        given = {"filters": ((1, 4), (2, 5), (4, 8)), "max_characters_per_token": 20}
        cnn = CharCNNOptions(embedding_dim=3, **(given | ENCODERS[kind]))
        self.width = cnn.max_characters_per_token
        self.options = {
            "lstm": {"dim": 4, "projection_dim": SIZE},
            "char_cnn": {
                "activation": cnn.activation,
                "filters": [list(pair) for pair in cnn.filters],
                "embedding": {"dim": 3},
                "n_highway": cnn.n_highway,
                "max_characters_per_token": self.width,
            },
        }
        self.weights = oracle.random_weights(self.options, seed=4)
        self.layer = CharacterEncoder(cnn, SIZE, precision=precision)
        self.variables = {"char_embed": self.layer.char_embed}
        for i, (kernel, bias) in enumerate(self.layer.convolutions):
            self.variables |= {f"CNN/W_cnn_{i}": kernel, f"CNN/b_cnn_{i}": bias}
        for k, highway in enumerate(self.layer.highways):
            self.variables |= {f"CNN_high_{k}/{name}": v for name, v in highway.items()}
        if self.layer.projection is not None:
            kernel, bias = self.layer.projection
            self.variables |= {"CNN_proj/W_proj": kernel, "CNN_proj/b_proj": bias}
        for name, variable in self.variables.items():
            variable.assign(self.weights[name])
        ids = tf.TensorSpec((None, self.width), tf.int32)
        self.encode = tf.function(self.layer, input_signature=[ids], autograph=False)

    def expected(self, ids):
        weights = {name: value.astype(float) for name, value in self.weights.items()}
        table = oracle.table_with_padding(weights["char_embed"])
        return oracle.encode(weights, self.options, table, ids)


@pytest.fixture(scope="module", params=ENCODERS)
def encoder(request):
    return EncoderCase(request.param)


@pytest.mark.slow
def test_words_of_every_length(encoder):
    ids = words_of_every_length(encoder.width)
    np.testing.assert_allclose(encoder.encode(ids), encoder.expected(ids), 1e-5, 2e-6)


@pytest.mark.slow
def test_a_word_is_the_same_whatever_words_are_beside_it(encoder):
    """Padding columns after the longest word are cut, which must not change the max-pooling."""
    ids = words_of_every_length(encoder.width)
    together = encoder.encode(ids).numpy()
    for k in range(len(ids)):
        np.testing.assert_allclose(encoder.encode(ids[k : k + 1])[0], together[k], 1e-6, 1e-6)
    for n in (2, 5, 12):
        np.testing.assert_allclose(encoder.encode(ids[:n]), together[:n], 1e-6, 1e-6)


def test_places_without_a_word(encoder):
    """Rows of zeros are encoded as in the formulas, and an empty batch is not an error."""
    ids = np.zeros((2, encoder.width), np.int32)
    np.testing.assert_allclose(encoder.encode(ids), encoder.expected(ids), 1e-5, 2e-6)
    mixed = np.concatenate([ids, words_of_every_length(encoder.width)[3:5]])
    np.testing.assert_allclose(encoder.encode(mixed), encoder.expected(mixed), 1e-5, 2e-6)
    assert encoder.encode(ids[:0]).shape == (0, SIZE)


def test_gradients_of_an_encoder(encoder):
    ids = words_of_every_length(encoder.width)
    factors = np.random.default_rng(1).normal(size=(len(ids), SIZE))
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(encoder.layer(ids) * factors.astype(np.float32))
    names = list(encoder.variables)
    gradients = tape.gradient(value, [encoder.variables[name].value for name in names])
    # In training, the ids are not shifted by 1 for the mask.
    weights = {name: value.astype(float) for name, value in encoder.weights.items()}
    table = weights["char_embed"]
    expected = oracle.encode_gradient(weights, encoder.options, table, ids - 1, factors)
    for name, gradient in zip(names, gradients, strict=True):
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), expected[name], 1e-4, 1e-4, err_msg=name
        )


def test_initial_values_of_an_encoder():
    cnn = CharCNNOptions(((2, 300), (5, 200)), "relu", embedding_dim=16, n_highway=1)
    layer = CharacterEncoder(cnn, 400, seed=1)
    table = layer.char_embed.numpy()
    assert table.min() < -0.99 and table.max() > 0.99 and np.abs(table).max() <= 1
    kernel, bias = layer.convolutions[1]
    assert kernel.shape == (1, 5, 16, 200) and not bias.numpy().any()
    assert 0.0499 < np.abs(kernel.numpy()).max() <= 0.05
    assert abs(kernel.numpy().std() - 0.05 / np.sqrt(3)) < 0.001
    for name in ("W_carry", "W_transform"):
        assert abs(layer.highways[0][name].numpy().std() * np.sqrt(500) - 1) < 0.01
    assert (layer.highways[0]["b_carry"].numpy() == -2).all()
    assert not layer.highways[0]["b_transform"].numpy().any()
    assert abs(layer.projection[0].numpy().std() * np.sqrt(500) - 1) < 0.01
    assert not layer.projection[1].numpy().any()
    again, other = CharacterEncoder(cnn, 400, seed=1), CharacterEncoder(cnn, 400, seed=2)
    for one, same, different in zip(layer.weights, again.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one, same)
        assert "bias" in one.name or (one.numpy() != different.numpy()).any()
    tanh = CharCNNOptions(((2, 300),), "tanh", embedding_dim=16)
    kernel, _ = CharacterEncoder(tanh, 300, seed=1).convolutions[0]
    assert abs(kernel.numpy().std() * np.sqrt(2 * 16) - 1) < 0.02


def test_word_embedding():
    layer = WordEmbedding(5, 3)
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    layer.embedding.assign(table)
    ids = np.array([[1, 5, 0], [3, 0, 0]])
    expected = [[table[0], table[4], np.zeros(3)], [table[2], np.zeros(3), np.zeros(3)]]
    np.testing.assert_array_equal(layer(ids), expected)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layer(ids))
    gradient = tape.gradient(value, layer.embedding.value)
    assert isinstance(gradient, tf.IndexedSlices)
    assert tf.convert_to_tensor(gradient).numpy()[:, 0].tolist() == [1, 0, 1, 0, 1]


def test_activations_have_a_function_here_and_in_the_oracle():
    tables = (token_encoder.ACTIVATIONS, numpy_encoder.ACTIVATIONS)
    assert all(sorted(table) == sorted(options.ACTIVATIONS) for table in tables)
