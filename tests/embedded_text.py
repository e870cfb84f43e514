"""What the tests of `bilm embed` share: a model that is loaded once, a text, and its vectors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import h5py

from bilm import ELMo
from bilm.cli import main
from tests import oracle

LINES = ["the cat sees a bird .", "", " a  dog ", "the cat sees a bird .", "猫 / dog", "bird"]


def make_model(folder):
    """A model folder, and the model, which is loaded once."""
    options = oracle.MODELS["as_published"]
    oracle.write_model(folder, options, oracle.random_weights(options, seed=7))
    return folder, ELMo.from_pretrained(folder)


def make_place(made, tmp_path, monkeypatch):
    """A folder with a text, a model that does not load again, and what `encode` gives."""
    folder, model = made
    monkeypatch.setattr("bilm.elmo.ELMo.from_pretrained", lambda *_, **__: model)
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    shutil.copytree(folder, "elmo")
    return SimpleNamespace(model=model, expected=model.encode(LINES, "all"))


def embed(*more):
    assert main(["embed", "text.txt", "out.hdf5", "--model", "elmo", *more]) == 0


def read(path="out.hdf5"):
    """Arrays by key, through groups, and the index of sentences."""
    arrays, index = {}, None
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: (
                arrays.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
            )
        )
    if "sentence_to_index" in arrays:
        index = json.loads(arrays.pop("sentence_to_index")[0])
    return arrays, index
