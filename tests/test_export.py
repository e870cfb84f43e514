"""SavedModels: signatures, results without bilm installed, the mix, and the output folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm import (
    Batcher,
    BidirectionalLanguageModel,
    ELMo,
    ELMoEmbedding,
    InputError,
    ScalarMix,
    dump_token_embeddings,
    export_saved_model,
    weight_layers,
)
from bilm.cli import main
from tests.command_line import input_error
from tests.compare import close, contents
from tests.small_models import write_small_model

TEXT = ["the cat sees a bird .", "", "a dog", "the the </S> the", "ünïcödé\u3000猫 ."]
TOKENS = [line.split() for line in TEXT]
WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "dog", "a", "."]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The folder of the model that is fastest to export: words, one direction, one layer."""
    folder = tmp_path_factory.mktemp("small")
    return write_small_model(folder, "one_direction_one_layer_words", WORDS, seed=8).folder


@pytest.fixture(scope="module")
def served_folder(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "words" / "1"
    assert export_saved_model(small, folder) == str(folder)
    return str(folder)


@pytest.fixture(scope="module")
def served(served_folder):
    return tf.saved_model.load(served_folder)


def padded_tokens(extra=0):
    """TOKENS padded with words after each sentence's end, which must be ignored."""
    longest = max(map(len, TOKENS))
    rows = [[*s, *["junk"] * (longest - len(s)), *[""] * extra] for s in TOKENS]
    return tf.constant(rows), tf.constant([len(s) for s in TOKENS])


def expected_outputs(elmo, factors):
    """The outputs for TEXT, computed by `ELMo.encode`."""
    every, mask = elmo.encode(TEXT, "all", output="padded")
    mixed = np.einsum("k,bktd->btd", factors, every)
    outputs = {f"lstm_outputs{k}": every[:, k] for k in range(1, elmo.n_layers)}
    outputs["word_emb"] = every[:, 0, :, : elmo.options.lstm.projection_dim]
    outputs["elmo"] = mixed
    outputs["default"] = mixed.sum(axis=1) / np.maximum(mask.sum(axis=1, keepdims=True), 1)
    return outputs


def compare(loaded, expected):
    """Compare the results of both signatures."""
    tokens, lengths = padded_tokens(extra=2)
    by_text = loaded.signatures["default"](tf.constant(TEXT))
    by_token = loaded.signatures["tokens"](tokens=tokens, sequence_len=lengths)
    assert by_text.keys() == by_token.keys() == expected.keys()
    for name, value in expected.items():
        close(by_text[name], value)
        longest = value.shape[1]
        close(by_token[name] if name == "default" else by_token[name][:, :longest], value)
        assert name == "default" or not by_token[name].numpy()[:, longest:].any()


# Vectors


def test_signatures_and_outputs_of_a_small_model(small, served):
    assert set(served.signatures) == {"default", "tokens"}
    default, tokens = (served.signatures[name] for name in ("default", "tokens"))
    assert default.structured_input_signature[1] == {
        "strings": tf.TensorSpec((None,), tf.string, name="strings")
    }
    assert tokens.structured_input_signature[1] == {
        "tokens": tf.TensorSpec((None, None), tf.string, name="tokens"),
        "sequence_len": tf.TensorSpec((None,), tf.int32, name="sequence_len"),
    }
    shapes = {name: spec.shape.as_list() for name, spec in default.structured_outputs.items()}
    assert shapes == {
        "word_emb": [None, None, 8],
        "lstm_outputs1": [None, None, 8],
        "elmo": [None, None, 8],
        "default": [None, 8],
    }
    compare(served, expected_outputs(ELMo.from_pretrained(small), [0.5, 0.5]))


def test_batches_without_a_token(served):
    for text in ([], [""], ["", " "]):
        found = served.signatures["default"](tf.constant(text, tf.string))
        assert found["elmo"].shape == (len(text), 0, 8)
        np.testing.assert_array_equal(found["default"], np.zeros((len(text), 8)))
    none = tf.zeros((3, 0), tf.string)
    found = served.signatures["tokens"](tokens=none, sequence_len=tf.zeros(3, tf.int32))
    assert found["lstm_outputs1"].shape == (3, 0, 8)


@pytest.mark.parametrize(
    "lengths, message",
    [
        ([1, 3], "sequence_len must hold the length of each"),
        ([1], "sequence_len must hold the length of each"),
    ],
)
def test_lengths_that_do_not_fit(served, lengths, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        served.signatures["tokens"](
            tokens=tf.constant([["a", "b"]] * 2), sequence_len=tf.constant(lengths)
        )


WITHOUT_BILM = """
import sys

class NoBilm:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "bilm":
            raise ImportError(f"{name} is not to be imported")

sys.meta_path.insert(0, NoBilm())
import numpy as np
import tensorflow as tf

loaded = tf.saved_model.load(sys.argv[1])
text = open(sys.argv[2], encoding="utf-8").read().split("\\n")
found = loaded.signatures["default"](tf.constant(text))
np.savez(sys.argv[3], **{name: value.numpy() for name, value in found.items()})
assert not [name for name in sys.modules if name.partition(".")[0] == "bilm"]
"""


def in_a_process_without_bilm(tmp_path, folder):
    (tmp_path / "text.txt").write_text("\n".join(TEXT), encoding="utf-8")
    arguments = [str(folder), str(tmp_path / "text.txt"), str(tmp_path / "found.npz")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, "-c", WITHOUT_BILM, *arguments], cwd=tmp_path, env=environment, check=True
    )
    return dict(np.load(tmp_path / "found.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["as_published", "one_direction", "words"])
def test_in_a_process_that_cannot_import_bilm(tmp_path, kind):
    """A model exported by the command works without its original files."""
    folder = write_small_model(tmp_path / "model", kind, WORDS, seed=8).folder
    elmo = ELMo.from_pretrained(folder)
    expected = expected_outputs(elmo, [1 / elmo.n_layers] * elmo.n_layers)
    assert main(["export", str(folder), str(tmp_path / "served")]) == 0
    folder.rename(tmp_path / "gone")
    found = in_a_process_without_bilm(tmp_path, tmp_path / "served")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        close(found[name], value)


def test_no_python_is_needed_to_run_it(small, served, tmp_path):
    """The graph has no op that calls Python."""
    graphs = [f.graph.as_graph_def() for f in (served.default, served.tokens)
              for f in f.concrete_functions]  # fmt: skip
    ops = {node.op for graph in graphs for node in graph.node}
    ops |= {n.op for graph in graphs for f in graph.library.function for n in f.node_def}
    assert "StringSplitV2" in ops and not [op for op in ops if "Py" in op]


@pytest.fixture(scope="module")
def cache(small, tmp_path_factory):
    """A character model and its token cache, with doubled vectors to tell them apart."""
    import h5py

    folder = tmp_path_factory.mktemp("cached")
    write_small_model(folder, "short_words_261", WORDS, seed=8)
    files = (folder / "vocab.txt", folder / "options.json", folder / "weights.hdf5")
    dump_token_embeddings(*files, folder / "tokens.cache")
    with h5py.File(folder / "tokens.cache", "r+") as file:
        file["embedding"][...] *= 2
    return folder, folder / "tokens.cache"


@pytest.mark.slow
def test_a_token_cache_is_served(cache, tmp_path):
    folder, file = cache
    export_saved_model(folder, tmp_path / "served", embedding_weight_file=file)
    elmo = ELMo.from_pretrained(folder, embedding_weight_file=file)
    compare(tf.saved_model.load(str(tmp_path / "served")), expected_outputs(elmo, [1 / 3] * 3))


# The mix


@pytest.mark.slow
def test_weights_of_the_layers(small, tmp_path, capsys):
    arguments = ["export", str(small), str(tmp_path / "served"), "--layer-weights", "0.25,-2"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'served'}\n"
    expected = expected_outputs(ELMo.from_pretrained(small), [0.25, -2])
    compare(tf.saved_model.load(str(tmp_path / "served")), expected)


@pytest.fixture(scope="module")
def trained(small, tmp_path_factory):
    """A Keras model with two mixes: `elmo` from ELMoEmbedding, `parts` from weight_layers."""
    text, ids = keras.Input((), dtype="string"), keras.Input((None,), dtype="int32")
    elmo = ELMoEmbedding.from_pretrained(small)
    pair = (small / "options.json", small / "weights.hdf5")
    layers = BidirectionalLanguageModel(*pair, use_character_inputs=False)(ids)
    parts = weight_layers("parts", layers, do_layer_norm=True)
    elmo.mix.W.assign([0.5, -1])
    elmo.mix.gamma.assign([3.0])
    parts["mix"].W.assign([0.25, 1])
    path = tmp_path_factory.mktemp("trained") / "model.keras"
    keras.Model([text, ids], [elmo(text), parts["weighted_op"]]).save(path)
    return path


def test_a_trained_mix(small, trained, tmp_path):
    mix = keras.models.load_model(trained).get_layer("elmo").mix
    export_saved_model(small, tmp_path / "served", mix=mix)
    softmax = np.exp([0.5, -1]) / np.exp([0.5, -1]).sum()
    expected = expected_outputs(ELMo.from_pretrained(small), 3 * softmax)
    compare(tf.saved_model.load(str(tmp_path / "served")), expected)


@pytest.mark.slow
def test_a_mix_that_normalises_does_so_within_each_sentence(small, trained, tmp_path):
    mix = keras.models.load_model(trained).get_layer("parts")
    export_saved_model(small, tmp_path / "served", mix=mix)
    elmo = ELMo.from_pretrained(small)
    expected = expected_outputs(elmo, [0.5, 0.5])
    vectors, mask = elmo.encode(TEXT, mix, output="padded")
    expected["elmo"] = vectors
    n_tokens = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    expected["default"] = vectors.sum(axis=1) / n_tokens
    compare(tf.saved_model.load(str(tmp_path / "served")), expected)


@pytest.mark.parametrize(
    "mix, message",
    [
        (ScalarMix(3, name="m"), "the mix 'm' must have 2 layers like"),
        ("top", "mix must be a ScalarMix or one weight per"),
    ],
)
def test_mixes_that_do_not_fit(small, tmp_path, mix, message):
    with pytest.raises(InputError, match=message):
        export_saved_model(small, tmp_path / "served", mix=mix)
    assert os.listdir(tmp_path) == []


def test_the_object_itself(small, served):
    """As TF-Hub's Keras layer uses it: callable, with the mix as its trainable variables."""
    expected = ELMo.from_pretrained(small).encode(TEXT, pooling="mean")
    close(served(tf.constant(TEXT)), np.stack(expected))
    W, gamma = served.trainable_variables
    assert (W.shape, gamma.shape) == ((2,), (1,)) and len(served.variables) > 2
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(served(tf.constant(TEXT)) ** 2)
    assert all(np.abs(gradient).max() > 0 for gradient in tape.gradient(total, [W, gamma]))
    before = served.signatures["default"](tf.constant(TEXT))["elmo"]
    gamma.assign([2.0])
    close(served(tf.constant(TEXT)), 2 * np.stack(expected))
    np.testing.assert_array_equal(served.signatures["default"](tf.constant(TEXT))["elmo"], before)
    gamma.assign([1.0])


def test_in_a_keras_model_that_is_trained(served_folder):
    layer = keras.layers.TFSMLayer(served_folder, call_endpoint="default")
    text = keras.Input((), dtype="string")
    model = keras.Model(text, keras.layers.Dense(2, activation="softmax")(layer(text)["default"]))
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(tf.constant(TEXT), np.array([0, 1, 0, 1, 0]), verbose=0)
    assert len(model.trainable_weights) == 2


# The folder


def test_a_saved_model_is_replaced_if_that_is_wanted(small, tmp_path, capsys):
    out = tmp_path / "served"
    (out / "variables").mkdir(parents=True)
    (out / "saved_model.pb").write_bytes(b"old")
    arguments = ["export", str(small), f"{out}{os.sep}"]
    assert "would be overwritten" in input_error(arguments, capsys)
    assert main([*arguments, "--force"]) == 0
    assert len(contents(out)["saved_model.pb"]) > 1000 and os.listdir(tmp_path) == ["served"]


def test_a_folder_with_other_files_is_not_replaced(small, tmp_path, capsys):
    out = tmp_path / "served"
    again = ["export", str(small), str(out), "--force"]
    assert main(again) == 0
    for mine in (
        "notes.txt",
        "variables/notes",
        "variables/variables.old",
        "assets/words.txt",
        "1/model",
    ):
        (out / mine).parent.mkdir(exist_ok=True)
        (out / mine).write_text("mine", encoding="utf-8")
        before = contents(out)
        assert f"got {mine}" in input_error(again, capsys)
        assert contents(out) == before and os.listdir(tmp_path) == ["served"]
        (out / mine).unlink()
    (out / "link").symlink_to(tmp_path, target_is_directory=True)
    assert "got link: choose" in input_error(again, capsys)
    (out / "link").unlink()
    assert main(again) == 0


def test_what_tensorflow_says_of_a_full_disk(small, tmp_path, monkeypatch):
    def save(module, folder, **settings):
        raise tf.errors.ResourceExhaustedError(None, None, "no room")

    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(OSError, match=r"served: cannot be written: no room"):
        export_saved_model(small, tmp_path / "served")
    assert os.listdir(tmp_path) == []


# Errors


def test_a_model_of_words_needs_its_vocabulary(small, tmp_path, capsys):
    shutil.copytree(small, tmp_path / "model", ignore=shutil.ignore_patterns("vocab.txt"))
    message = input_error(["export", str(tmp_path / "model"), str(tmp_path / "served")], capsys)
    assert "a word-level model needs the vocabulary of its training" in message
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.slow
def test_onnx(tmp_path):
    """A Keras model from ids, with batches of other sizes."""
    pytest.importorskip("tf2onnx")
    runtime = pytest.importorskip("onnxruntime")
    folder = write_small_model(tmp_path / "model", "as_published").folder
    ids = keras.Input((None, 50), dtype="int32")
    model = keras.Model(ids, ELMoEmbedding.from_pretrained(folder)(ids))
    batches = [Batcher(None, 50).batch_sentences(tokens) for tokens in (TOKENS, TOKENS[:1])]
    expected = [model(batch) for batch in batches]
    model.export(tmp_path / "elmo.onnx", format="onnx", verbose=False)
    session = runtime.InferenceSession(tmp_path / "elmo.onnx")
    for batch, vectors in zip(batches, expected, strict=True):
        (found,) = session.run(None, {session.get_inputs()[0].name: batch})
        np.testing.assert_allclose(found, vectors, 1e-5, 1e-5)
