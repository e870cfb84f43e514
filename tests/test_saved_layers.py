"""Saved Keras models whose configuration names files: no such file is opened."""

from __future__ import annotations

import json
import os
import zipfile

import keras
import pytest

from bilm import BidirectionalLanguageModel, ELMoEmbedding
from bilm.core.errors import InputError
from bilm.use.text_layers import CharacterIds, WordIds
from tests.small_models import write_small_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a model, and with a saved Keras model for each layer of this package."""
    folder = tmp_path_factory.mktemp("saved")
    model = write_small_model(folder, "as_published")
    text, ids = keras.Input((), dtype="string"), keras.Input((None, 50), dtype="int32")
    layers = {
        "elmo": (text, ELMoEmbedding(*model.files)(text)),
        "bilm": (ids, BidirectionalLanguageModel(*model.files)(ids)["token_embeddings"]),
        "character_ids": (text, CharacterIds(50)(text)),
        "word_ids": (text, WordIds(["<S>", "</S>", "<UNK>"])(text)),
    }
    for name, (inputs, outputs) in layers.items():
        keras.Model(inputs, outputs).save(folder / f"{name}.keras")
    return folder


def with_changes(path, changed, name, changes):
    """A copy of the Keras model with changes to the configuration of a layer."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member == "config.json":
                config = json.loads(content)
                [layer] = [x for x in config["config"]["layers"] if x["config"]["name"] == name]
                layer["config"] |= changes
                content = json.dumps(config)
            new.writestr(member, content)
    return changed


@pytest.mark.parametrize("name", ["elmo", "bilm", "character_ids", "word_ids"])
def test_a_model_as_it_was_saved_is_loaded(saved, name, tmp_path):
    path = with_changes(saved / f"{name}.keras", tmp_path / "same.keras", name, {})
    assert keras.models.load_model(path).get_layer(name).name == name


@pytest.mark.parametrize("name", ["elmo", "bilm"])
@pytest.mark.parametrize(
    "key", ["options_file", "weight_file", "embedding_weight_file", "vocab_file"]
)
def test_a_path_in_the_configuration(saved, name, key, tmp_path):
    """SECURITY.md: Keras configurations with paths are an error."""
    os.mkfifo(tmp_path / "secret")  # opening it would hang
    path = with_changes(
        saved / f"{name}.keras", tmp_path / "a.keras", name, {key: str(tmp_path / "secret")}
    )
    rule = "a JSON object" if key == "options_file" else "None"
    with pytest.raises(InputError, match=rf"{key} must be {rule}, got '.*secret'"):
        keras.models.load_model(path)


@pytest.mark.parametrize(
    "name, key, message",
    [
        ("word_ids", "vocabulary", "vocabulary must be a list of words,"),
        (
            "character_ids",
            "max_characters_per_token",
            "must be an integer from 3 .*, got '/etc/passwd'",
        ),
    ],
)
def test_a_path_in_the_place_of_words_or_numbers(saved, name, key, message, tmp_path):
    path = saved / f"{name}.keras"
    changed = with_changes(path, tmp_path / "a.keras", name, {key: "/etc/passwd"})
    with pytest.raises(InputError, match=message):
        keras.models.load_model(changed)


def test_code_in_a_keras_file_is_not_run(saved, tmp_path):
    """SECURITY.md: Keras files with Lambda layers are not loaded."""
    ran = str(tmp_path / "ran")
    text = keras.Input((), dtype="string")
    vectors = ELMoEmbedding(*(saved / name for name in ("options.json", "weights.hdf5")))(text)
    harm = keras.layers.Lambda(lambda x: (open(ran, "w").close(), x)[1])
    keras.Model(text, harm(vectors)).save(tmp_path / "a.keras")
    os.remove(ran)
    with pytest.raises(ValueError, match="Lambda"):
        keras.models.load_model(tmp_path / "a.keras")
    assert not os.path.exists(ran)
