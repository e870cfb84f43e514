"""Model sources: folders, ZIP files, pairs, checkpoints; and errors for anything else."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zipfile

import numpy as np
import pytest

from bilm import ELMo, InputError
from bilm.files.model_files import ModelFiles, open_model
from tests import oracle

pytestmark = pytest.mark.eager

WORDS = ["<S>", "</S>", "<UNK>", *(f"w{n}" for n in range(34))]


def write(folder, kind="as_published", weights="model.hdf5", options="options.json"):
    """Write a model folder; return the fingerprint of a character model, "" for a word model."""
    values = oracle.random_weights(oracle.MODELS[kind], seed=5)
    made = oracle.write_model(folder, oracle.MODELS[kind], values)
    for old, new in zip(made, (options, weights), strict=True):
        os.rename(old, folder / new)
    if "char_cnn" not in oracle.MODELS[kind]:
        return ""
    return ELMo.from_pretrained((folder / options, folder / weights)).fingerprint()


def assert_same(source, expected):
    assert ELMo.from_pretrained(source).fingerprint() == expected


def zipped(folder, target, inside=""):
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(os.listdir(folder)):
            archive.write(folder / name, f"{inside}{name}")
    return target


@pytest.mark.parametrize(
    ("weights", "options"),
    [
        ("model.hdf5", "options.json"),
        ("weights.hdf5", "options.json"),
        ("weights.hdf5", "weights.options.json"),
        ("elmo_2x16_weights.hdf5", "elmo_2x16_options.json"),
        ("anything.hdf5", "some_options.json"),
    ],
)
def test_folders_with_files_under_the_known_names(tmp_path, weights, options):
    expected = write(tmp_path / "m", weights=weights, options=options)
    assert_same(tmp_path / "m", expected)
    assert_same(str(tmp_path / "m"), expected)
    assert_same([str(tmp_path / "m" / options), str(tmp_path / "m" / weights)], expected)


@pytest.mark.parametrize("inside", ["", "144/"])
def test_zip_file_is_read_without_leaving_files(tmp_path, monkeypatch, inside):
    expected = write(tmp_path / "m")
    (tmp_path / "m" / "meta.json").write_text("{}", encoding="utf-8")
    target = zipped(tmp_path / "m", tmp_path / "model.zip", inside)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    assert_same(target, expected)
    assert os.listdir(tmp_path / "scratch") == []
    assert sorted(os.listdir(tmp_path)) == ["m", "model.zip", "scratch"]


def test_a_folder_within_the_folder(tmp_path):
    expected = write(tmp_path / "outer" / "inner")
    assert_same(tmp_path / "outer", expected)


def test_options_of_the_dump_stand_above_those_of_the_training(tmp_path):
    write(tmp_path, weights="weights.hdf5", options="weights.options.json")
    (tmp_path / "options.json").write_text("{}", encoding="utf-8")
    assert ELMo.from_pretrained(tmp_path).n_layers == 3
    # Without weights.options.json, options.json is used, which is empty.
    os.remove(tmp_path / "weights.options.json")
    assert "options.json: lstm is missing; it must be" in message_of(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["vocab.txt", "vocab.txt.gz"])
def test_a_model_of_words_finds_its_vocabulary(tmp_path, name, packed):
    write(tmp_path / "m", "words")
    text = "\n".join(WORDS) + "\n"
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / "m" / name, "wt", encoding="utf-8") as file:
        file.write(text)
    source = zipped(tmp_path / "m", tmp_path / "m.zip") if packed else tmp_path / "m"
    elmo = ELMo.from_pretrained(source)
    assert elmo.vocabulary.size == 37
    table = oracle.read_hdf5(tmp_path / "m" / "model.hdf5")["embedding"]
    if not packed:
        np.testing.assert_array_equal(elmo.encode(["w0 w1"], 0)[0][:, 8:], table[3:5])


def test_an_hdf5_file_has_its_options_beside_it(tmp_path):
    expected = write(tmp_path, weights="a.hdf5", options="a.options.json")
    assert_same(tmp_path / "a.hdf5", expected)
    # a.options.json belongs to the other file.
    shutil.copy(tmp_path / "a.hdf5", tmp_path / "b.hdf5")
    assert "options.json must be next to b.hdf5" in message_of(tmp_path / "b.hdf5")
    os.rename(tmp_path / "a.options.json", tmp_path / "options.json")
    os.rename(tmp_path / "b.hdf5", tmp_path / "weights-of-2018")
    assert_same(tmp_path / "weights-of-2018", expected)


# Checkpoints


def copy_checkpoint(golden, folder):
    source = golden / "training" / "words" / "end"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.hdf5"), dirs_exist_ok=True)


def test_a_training_folder_and_its_checkpoint(golden, tmp_path):
    copy_checkpoint(golden, tmp_path / "run")
    (tmp_path / "run" / "vocab.txt").touch()
    for source in (tmp_path / "run", str(tmp_path / "run" / "model.ckpt-10")):
        with open_model(source) as files:
            assert files == ModelFiles(
                options=str(tmp_path / "run" / "options.json"),
                weights=str(tmp_path / "run" / "model.ckpt-10"),
                vocabulary=str(tmp_path / "run" / "vocab.txt"),
                source=str(source),
                is_checkpoint=True,
            )
            assert files.read_options().n_epochs > 0
        command = f"`bilm dump --save_dir {tmp_path / 'run'} --model_dir FOLDER` writes a model"
        assert command in message_of(source)


def test_a_folder_with_weights_and_checkpoints(golden, tmp_path):
    expected = write(tmp_path / "run", weights="weights.hdf5", options="weights.options.json")
    copy_checkpoint(golden, tmp_path / "run")
    with open_model(tmp_path / "run") as files:
        assert files.is_checkpoint
    assert_same(tmp_path / "run", expected)


# Not a model


def message_of(source):
    with pytest.raises(InputError) as caught:
        ELMo.from_pretrained(source)
    return str(caught.value)


def test_what_archivers_add_is_passed_over(tmp_path):
    expected = write(tmp_path / "m")
    target = zipped(tmp_path / "m", tmp_path / "m.zip", "m/")
    with zipfile.ZipFile(target, "a") as archive:
        for name in ("__MACOSX/m/._model.hdf5", "__MACOSX/model.hdf5", "m/._a.hdf5"):
            archive.writestr(name, b"")
    assert_same(target, expected)


def test_errors_in_a_zip_file_name_the_zip_file(tmp_path):
    write(tmp_path / "m")
    (tmp_path / "m" / "options.json").write_text("[]", encoding="utf-8")
    target = zipped(tmp_path / "m", tmp_path / "m.zip")
    assert f"{target}: options.json must be" in message_of(target)


def test_options_that_are_nested_too_deeply(tmp_path):
    write(tmp_path)
    for text in ("[" * 100_000, '{"lstm": ' * 100_000):
        (tmp_path / "options.json").write_text(text, encoding="utf-8")
        assert "options.json: must be JSON in UTF-8" in message_of(tmp_path)


def test_damaged_zip_file(tmp_path):
    write(tmp_path / "m")
    target = zipped(tmp_path / "m", tmp_path / "m.zip")
    content = bytearray(target.read_bytes())
    middle = content.index(b"model.hdf5") + 200
    content[middle : middle + 50] = bytes(50)
    target.write_bytes(content)
    assert f"{target}: the ZIP file cannot be read" in message_of(target)


def test_the_files_of_a_zip_file_are_there_within_the_block(tmp_path):
    write(tmp_path / "m")
    shutil.copy(tmp_path / "m" / "options.json", tmp_path / "m" / "vocab.txt")
    target = zipped(tmp_path / "m", tmp_path / "m.zip")
    with open_model(target) as files:
        assert all(os.path.isfile(path) for path in files[:3])
        assert files.source == str(target)
    assert not any(os.path.exists(path) for path in files[:3])
