"""`ELMoEmbedding`: vectors of text and ids, all sources of word vectors, masks, training, and
saving and loading models.
"""

from __future__ import annotations

import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm import (
    Batcher,
    CharacterIds,
    ELMo,
    ELMoEmbedding,
    InputError,
    ScalarMix,
    TokenBatcher,
    dump_token_embeddings,
)
from tests import oracle
from tests.compare import close
from tests.small_models import write_small_model

TEXT = ["the cat sees a bird .", "", "a dog", "the the </S> the", "ünïcödé 猫 ."]
TOKENS = [line.split() for line in TEXT]
WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "dog", "a", "."]


@pytest.fixture(scope="module")
def characters(tmp_path_factory):
    return write_small_model(tmp_path_factory.mktemp("characters"), "as_published", WORDS)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return write_small_model(
        tmp_path_factory.mktemp("words"), "one_direction_one_layer_words", WORDS
    )


@pytest.fixture(scope="module")
def cached(characters, tmp_path_factory):
    """A model, and a token cache with different vectors, so that tests can tell which were used."""
    folder = tmp_path_factory.mktemp("cached")
    other = write_small_model(folder, "as_published", WORDS).weights
    other = {name: value * 1.5 for name, value in other.items()}
    oracle.write_model(folder, oracle.MODELS["as_published"], other)
    files = (folder / "vocab.txt", folder / "options.json", folder / "weights.hdf5")
    dump_token_embeddings(*files, folder / "tokens.hdf5")
    with h5py.File(folder / "tokens.hdf5", "r+") as cache:
        del cache.attrs["model"]  # its vectors are of another model
    return characters.folder, folder / "tokens.hdf5"


@pytest.fixture(scope="module")
def elmo(characters):
    layer = ELMoEmbedding.from_pretrained(characters.folder, l2_coef=0.1)
    layer.mix.W.assign([0.3, -0.5, 0.1])
    layer.mix.gamma.assign([1.5])
    return layer


def mask_of(sentences):
    lengths = np.array([len(s) for s in sentences])
    return np.arange(lengths.max()) < lengths[:, np.newaxis]


@pytest.fixture(scope="module")
def expected(characters):
    """The mix, computed by the NumPy formulas."""
    options, weights, _ = characters
    layers = oracle.embed(weights, options, oracle.character_ids(TOKENS, 50)).lm_embeddings
    mask = mask_of(TOKENS)
    mixed, _ = oracle.weight_layers(layers, mask, np.array([0.3, -0.5, 0.1]), 1.5, 0.0, False)
    return mixed * mask[..., np.newaxis]


# Vectors


def test_text_and_ids_give_the_mix_of_the_formulas(elmo, expected):
    ids = Batcher(None, 50).batch_sentences(TOKENS)
    padded = tf.ragged.constant(TOKENS).to_tensor("")
    for text in (TEXT, np.array(TEXT), padded, tf.ragged.constant(TOKENS), ids, ids.tolist()):
        vectors = elmo(text)
        assert vectors.dtype == tf.float32
        close(vectors, expected)
        np.testing.assert_array_equal(vectors._keras_mask, mask_of(TOKENS))
        assert not vectors.numpy()[~mask_of(TOKENS)].any()


@pytest.mark.slow
def test_in_a_graph_of_any_shape(elmo, expected):
    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
    def traced(text):
        return elmo(text)

    close(traced(TEXT), expected)
    close(traced(TEXT[2:3]), expected[2:3, :2])
    assert traced([]).shape == (0, 0, 16)
    assert traced(["", ""]).shape == (2, 0, 16)


LAYERS = {
    "average": ("average", [0.5, 0.5]),
    "top": ("top", [0, 1]),
    "number": (0, [1, 0]),
    "negative": (-1, [0, 1]),
    "weights": ((0.5, 2), [0.5, 2]),
}


@pytest.mark.eager
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_that_stay_as_they_are(words, kind):
    layers, factors = LAYERS[kind]
    layer = ELMoEmbedding.from_pretrained(words.folder, layers=layers)
    every = ELMo.from_pretrained(words.folder).encode(TEXT, "all", output="padded").vectors
    wanted = np.einsum("k,bktd->btd", factors, every)
    close(layer(TEXT), wanted)
    assert layer.trainable_variables == []
    copy = ELMoEmbedding.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(copy(TEXT), layer(TEXT))


def test_a_mix_that_normalises_is_zero_at_padding(characters):
    options, weights, folder = characters
    layer = ELMoEmbedding.from_pretrained(folder, do_layer_norm=True)
    layers = oracle.embed(weights, options, oracle.character_ids(TOKENS, 50)).lm_embeddings
    mask = mask_of(TOKENS)
    mixed, _ = oracle.weight_layers(layers, mask, np.zeros(3), 1.0, 0.0, True)
    np.testing.assert_allclose(layer(TEXT), mixed * mask[..., None], 1e-4, 1e-4)


@pytest.mark.eager
def test_a_model_of_words(words):
    """A word outside the vocabulary gets the trained vector of <UNK>."""
    layer = ELMoEmbedding.from_pretrained(words.folder, layers="top")
    ids = TokenBatcher(words.vocab_file).batch_sentences(TOKENS)
    wanted = ELMo.from_pretrained(words.folder).encode(TEXT, "top", output="padded").vectors
    for text in (TEXT, TOKENS, ids):
        close(layer(text), wanted)


def test_a_model_of_words_without_its_vocabulary_takes_ids(words):
    pair = words.files
    layer = ELMoEmbedding(*pair, layers="top")
    ids = TokenBatcher(words.vocab_file).batch_sentences(TOKENS)
    close(layer(ids), ELMoEmbedding.from_pretrained(words.folder, layers="top")(TEXT))
    for text in (TEXT, keras.Input((), dtype="string")):
        with pytest.raises(InputError, match="a word-level model needs the vocabulary"):
            layer(text)
    copy = ELMoEmbedding.from_config(layer.get_config())
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(copy(ids), layer(ids))


@pytest.mark.slow
def test_a_cache_with_the_characters_beside_it(cached):
    folder, cache = cached
    layer = ELMoEmbedding.from_pretrained(folder, embedding_weight_file=cache, layers="average")
    model = ELMo.from_pretrained(folder, embedding_weight_file=cache)
    wanted = model.encode(TEXT, output="padded").vectors
    close(layer(TEXT), wanted)
    plain = ELMoEmbedding.from_pretrained(folder, layers="average")
    assert np.abs(layer(TEXT) - plain(TEXT)).max() > 0.01
    # None of these words is in the cache.
    strange = ["ünïcödé 猫 sees", "bird"]
    close(layer(strange)[:, :1], ELMo.from_pretrained(
        folder, embedding_weight_file=cache).encode(strange, output="padded").vectors[:, :1],
    )  # fmt: skip


@pytest.fixture(scope="module")
def lstms_alone(cached, tmp_path_factory):
    """A model whose weights have no character encoder, and its cache."""
    folder, cache = tmp_path_factory.mktemp("lstms"), cached[1]
    options, weights, _ = write_small_model(folder, "as_published", WORDS)
    kept = {name: value for name, value in weights.items() if name.startswith("RNN")}
    oracle.write_model(folder, options, kept)
    return folder, cache


@pytest.mark.eager
def test_a_cache_alone_refuses_words_that_it_does_not_have(lstms_alone):
    folder, cache = lstms_alone
    layer = ELMoEmbedding.from_pretrained(folder, embedding_weight_file=cache, layers=0)
    known = ["the cat . a", "", "<UNK> dog"]
    model = ELMo.from_pretrained(folder, embedding_weight_file=cache)
    close(layer(known), model.encode(known, 0, output="padded").vectors)
    with pytest.raises(InputError, match=r"without a vector.*'sees', .*'bird'"):
        layer(TEXT)


# Masks and training


@pytest.mark.slow
def test_layers_after_it_see_the_mask(elmo):
    """The padding after a sentence does not change its results."""
    text = keras.Input((), dtype="string")
    vectors = elmo(text)
    outputs = [
        keras.layers.LSTM(3)(vectors),
        keras.layers.GlobalAveragePooling1D()(vectors),
        keras.layers.Bidirectional(keras.layers.GRU(2))(vectors),
        keras.layers.GlobalAveragePooling1D()(keras.layers.Attention()([vectors, vectors])),
    ]
    model = keras.Model(text, outputs)
    together = model(tf.constant(TEXT))
    for row in (0, 2, 3, 4):
        for alone, all_of_it in zip(model(tf.constant(TEXT[row : row + 1])), together, strict=True):
            close(alone[0], all_of_it[row])
    close(together[1][2], elmo(TEXT).numpy()[2, :2].mean(axis=0))


def build_tagger(elmo, axes):
    text = keras.Input(axes, dtype="string")
    tags = keras.layers.Dense(2, kernel_initializer=keras.initializers.GlorotNormal(1))(elmo(text))
    model = keras.Model(text, tags)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.05), loss, weighted_metrics=["accuracy"])
    return model


def test_the_loss_counts_tokens_only(words):
    elmo = ELMoEmbedding.from_pretrained(words.folder, l2_coef=0.1)
    elmo.mix.W.assign([0.3, -0.5])
    model = build_tagger(elmo, (None,))
    tokens = tf.ragged.constant(TOKENS).to_tensor("")
    tags = np.zeros(tokens.shape, int)
    logits = model(tokens).numpy()[mask_of(TOKENS)].astype(float)
    expected = np.log(np.exp(logits).sum(-1)) - logits[:, 0]
    W = elmo.mix.W.numpy()
    measured = model.evaluate(tokens, tags, batch_size=len(TEXT), return_dict=True, verbose=0)
    np.testing.assert_allclose(measured["loss"], expected.mean() + 0.1 * (W**2).sum(), 1e-5)
    np.testing.assert_allclose(measured["accuracy"], (logits[:, 0] > logits[:, 1]).mean(), 1e-5)


@pytest.mark.parametrize(
    "axes, trained",
    [
        ((), False),
        pytest.param((None,), False, marks=pytest.mark.slow),
        pytest.param((None,), True, marks=pytest.mark.slow),
    ],
)
def test_fit_trains_the_mix_and_the_model_if_wanted(words, axes, trained):
    elmo = ELMoEmbedding.from_pretrained(words.folder, train_language_model=trained)
    model = build_tagger(elmo, axes)
    before = [variable.numpy().copy() for variable in elmo.weights]
    # The initial states are variables that are never trained.
    n_initial = sum("initial" in variable.name for variable in elmo.weights)
    assert len(elmo.trainable_variables) == (len(before) - n_initial if trained else 2)
    text = np.array(TEXT, object) if axes == () else tf.ragged.constant(TOKENS).to_tensor("")
    tags = np.arange(len(TEXT) * 6).reshape(-1, 6) % 2
    model.fit(text, tags, batch_size=len(TEXT), epochs=2, verbose=0)
    moved = {v.name for v, b in zip(elmo.weights, before, strict=True) if (v != b).numpy().any()}
    assert {"elmo_ELMo_W", "elmo_ELMo_gamma"} <= moved
    names = {v.name for v in elmo.weights if "initial" not in v.name}
    assert len(moved) == (len(names) if trained else 2)


def trained_names(model, inputs):
    """Names of the variables that one training step changes."""
    before = [variable.numpy().copy() for variable in model.weights]
    model.compile("sgd", "mse")
    model.fit(inputs, np.ones((len(inputs), 2)), verbose=0)
    pairs = zip(model.weights, before, strict=True)
    return {v.name for v, old in pairs if (v.numpy() != old).any() and "seed" not in v.name}


def pooled_model(elmo):
    sentences = keras.Input((), dtype="string")
    pooled = keras.layers.GlobalAveragePooling1D()(elmo(sentences))
    return keras.Model(sentences, keras.layers.Dense(2, name="head")(pooled))


MIX = {"elmo_ELMo_W", "elmo_ELMo_gamma"}
HEAD = {"kernel", "bias"}


@pytest.mark.parametrize("saved", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_frozen_layer_trains_nothing(words, saved, tmp_path):
    model = pooled_model(ELMoEmbedding.from_pretrained(words.folder, trainable=False))
    if saved:
        model.save(tmp_path / "m.keras")
        model = keras.models.load_model(tmp_path / "m.keras")
    assert not model.get_layer("elmo").trainable
    assert trained_names(model, tf.constant(TEXT)) == HEAD


@pytest.mark.slow
@pytest.mark.parametrize("trained", [False, True])
def test_freezing_and_unfreezing_a_model(words, trained):
    elmo = ELMoEmbedding.from_pretrained(words.folder, train_language_model=trained)
    model = pooled_model(elmo)
    model.trainable = False
    assert trained_names(model, tf.constant(TEXT)) == set()
    # The configuration keeps the constructor's value while the model is frozen.
    assert elmo.get_config()["train_language_model"] is trained
    model.trainable = True
    moved = trained_names(model, tf.constant(TEXT))
    assert moved >= MIX | HEAD
    assert (moved == MIX | HEAD) is not trained


def test_unfreezing_a_model_unfreezes_a_mix_that_was_frozen_alone(words):
    """As in Keras, setting `trainable` of a layer also sets it for all layers inside."""
    elmo = ELMoEmbedding.from_pretrained(words.folder)
    model = pooled_model(elmo)
    elmo.mix.trainable = False
    assert {variable.name for variable in model.trainable_variables} == HEAD
    model.trainable = False
    model.trainable = True
    assert {variable.name for variable in model.trainable_variables} == MIX | HEAD


@pytest.mark.slow
def test_first_in_a_sequential_model(words, elmo):
    """Keras takes the dtype of the inputs from the first layer."""
    # Keras's average over the tokens of an empty sentence is NaN.
    text = tf.constant([line for line in TEXT if line])
    layers = [keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(2)]
    model = keras.Sequential([ELMoEmbedding.from_pretrained(words.folder), *layers])
    assert model(text).shape == (4, 2)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    history = model.fit(text, np.zeros((4, 2)), verbose=0).history
    np.testing.assert_allclose(history["loss"], np.mean(np.square(model(text))), 1e-5)
    close(model.layers[0](text), ELMoEmbedding.from_pretrained(words.folder)(text))
    ids = keras.Sequential([CharacterIds(50)])(tf.constant(TEXT))
    np.testing.assert_array_equal(ids, CharacterIds(50)(TEXT))


def test_it_stays_float32_in_a_model_of_mixed_precision(words):
    wanted = ELMoEmbedding.from_pretrained(words.folder)(TEXT)
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        text = keras.Input((), dtype="string")
        elmo = ELMoEmbedding.from_pretrained(words.folder)
        model = keras.Model(text, [elmo(text), keras.layers.LSTM(2)(elmo(text))])
        vectors, hidden = model(tf.constant(TEXT))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    close(vectors, wanted)
    assert (vectors.dtype, hidden.dtype) == (tf.float32, tf.bfloat16)


# Save and load

LOADER = """
import sys
import {first}
import {second}
import numpy as np, tensorflow as tf
model = keras.models.load_model(sys.argv[1])
lines = open(sys.argv[2], encoding="utf-8").read().split("\\n")
np.save(sys.argv[3], model.predict(tf.constant(lines), verbose=0))
"""


def in_another_process(tmp_path, model, first="bilm", second="keras"):
    """Predictions for TEXT of the saved model, loaded in a process that imports bilm and Keras."""
    model.save(tmp_path / "model.keras")
    (tmp_path / "text.txt").write_text("\n".join(TEXT), encoding="utf-8")
    arguments = [str(tmp_path / name) for name in ("model.keras", "text.txt", "out.npy")]
    program = LOADER.format(first=first, second=second)
    subprocess.run([sys.executable, "-c", program, *arguments], check=True)
    return np.load(tmp_path / "out.npy")


def sentence_model(elmo):
    text = keras.Input((), dtype="string")
    return keras.Model(text, keras.layers.LSTM(3)(elmo(text)))


@pytest.mark.slow
def test_saved_and_loaded_when_keras_was_there_before(tmp_path, elmo):
    model = sentence_model(elmo)
    close(in_another_process(tmp_path, model, "keras", "bilm"), model(tf.constant(TEXT)))


@pytest.mark.slow
def test_each_layer_is_found_by_its_name(tmp_path, characters):
    """A model built from the separate layers, with a vocabulary in one of them."""
    from bilm import BidirectionalLanguageModel, CharacterIds, WordIds, weight_layers

    text = keras.Input((), dtype="string")
    pair = characters.files
    layers = BidirectionalLanguageModel(*pair)(CharacterIds(50)(text))
    mixed = weight_layers("parts", layers)["weighted_op"]
    known = keras.layers.Embedding(20, 4, mask_zero=True)(WordIds(WORDS)(text))
    outputs = keras.layers.concatenate([keras.layers.LSTM(2)(x) for x in (mixed, known)])
    model = keras.Model(text, outputs)
    close(in_another_process(tmp_path, model), model(tf.constant(TEXT)))


@pytest.mark.parametrize("kind", ["words", "cached", "lstms_alone"])
def test_all_kinds_of_words_are_saved_whole(request, tmp_path, kind):
    made = request.getfixturevalue(kind)
    if kind == "words":
        elmo = ELMoEmbedding.from_pretrained(made[2], l2_coef=0.5)
        elmo.mix.W.assign([0.2, 0.4])
    else:
        elmo = ELMoEmbedding.from_pretrained(made[0], embedding_weight_file=made[1])
    text = keras.Input((), dtype="string")
    model = keras.Model(text, elmo(text))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    known = tf.constant(["the cat . a", "", "dog"] if kind == "lstms_alone" else TEXT)
    np.testing.assert_array_equal(loaded(known), model(known))
    assert loaded.get_layer("elmo").get_config() == elmo.get_config()
    assert [float(loss) for loss in loaded.losses] == [float(loss) for loss in model.losses]


def test_saved_in_a_subclass_of_a_model(words, tmp_path):
    """Keras cannot build a subclass from the shape of its text: `build_from_config` does."""

    class Classifier(keras.Model):
        def __init__(self, **settings):
            super().__init__(**settings)
            self.elmo = ELMoEmbedding.from_pretrained(words.folder)
            self.tags = keras.layers.Dense(2)

        def call(self, text):
            return self.tags(self.elmo(text))

        def build_from_config(self, config):
            self(tf.constant(["a"]))

    text = tf.constant(["the cat"])
    model = Classifier()
    expected = model(text)
    model.elmo.mix.gamma.assign([3.0])
    assert np.abs(model(text) - expected).max() > 1e-3
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", {"Classifier": Classifier})
    np.testing.assert_array_equal(loaded(text), model(text))


@pytest.mark.slow
def test_a_model_of_keras_exports_with_its_words(tmp_path, words):
    model = sentence_model(ELMoEmbedding.from_pretrained(words.folder))
    model.export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    close(loaded.serve(tf.constant(TEXT)), model(tf.constant(TEXT)))


# Errors


def test_files_that_are_refused(characters, words, cached):
    options = characters.folder / "options.json"
    with pytest.raises(InputError, match="weight_file or words must be given, got neither"):
        ELMoEmbedding(options, None)
    cache = cached[1]
    with pytest.raises(InputError, match="train_language_model must be False"):
        ELMoEmbedding.from_pretrained(
            characters.folder, embedding_weight_file=cache, train_language_model=True
        )
    with pytest.raises(InputError, match=r"must have the 8 words of the vocabulary in .*tok"):
        ELMoEmbedding.from_pretrained(
            characters.folder, embedding_weight_file=cache, vocab_file=words.vocab_file
        )


@pytest.mark.eager
def test_boundaries_and_groups_of_ids(characters):
    elmo = ELMo.from_pretrained(characters.folder)
    layer = ELMoEmbedding.from_pretrained(characters.folder, layers="sum", boundaries=True)
    wanted, mask = elmo.encode(TOKENS, "sum", boundaries=True, output="padded")
    found = layer(TOKENS)
    close(found, wanted)
    np.testing.assert_array_equal(found._keras_mask, mask)
    copy = ELMoEmbedding.from_config(layer.get_config())
    copy.set_weights(layer.get_weights())
    close(copy(TOKENS), wanted)
    # AllenNLP's ids (batch, n, time, characters)
    ids = Batcher(None, 50).batch_sentences([*TOKENS, []])[: len(TOKENS) // 2 * 2]
    groups = ids.reshape(2, -1, *ids.shape[1:])
    close(layer(groups), np.reshape(layer(ids), (*groups.shape[:3], elmo.dim)))
    assert layer(groups)._keras_mask.shape == groups.shape[:3]
    inputs = keras.Input((None, None, 50), dtype="int32")
    assert layer(inputs).shape == (None, None, None, elmo.dim)


@pytest.mark.eager
def test_a_mix_that_is_given(characters):
    """The layer's own mix starts with its values and settings."""
    mix = ScalarMix(weights=[0.5, -1, 2], gamma=3, l2_coef=0.5)
    layer = ELMoEmbedding.from_pretrained(characters.folder, layers=mix)
    wanted, _ = ELMo.from_pretrained(characters.folder).encode(TOKENS, mix, output="padded")
    close(layer(TOKENS), wanted)
    assert layer.mix is not mix and layer.get_config()["l2_coef"] == 0.5
