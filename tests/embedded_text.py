"""Shared by the tests of `bilm embed`: a model, a text, and its vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import h5py
import numpy as np

from bilm.cli import main
from bilm.data.sentences import TextTokens, read_sentences
from bilm.files.reading import open_text

if TYPE_CHECKING:
    from bilm import ELMo

LINES = ["the cat sees a bird .", "", " a  dog ", "the cat sees a bird .", "猫 / dog", "bird"]


class Embedded(NamedTuple):
    """A model folder, the loaded model, and all layers of `LINES`, each (layers, tokens, dim)."""

    folder: Path
    model: ELMo
    expected: list[np.ndarray]


def write_lines(lines, path="text.txt"):
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def embed(*more, text="text.txt", out="out.hdf5"):
    assert main(["embed", text, out, "--model", "elmo", *more]) == 0


def read(path="out.hdf5"):
    """Arrays by key, including those in groups, and the index of sentences."""
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


def sentences_of(source, tokens=None):
    """The sentences of a file, or of a stream called "input", as they are or split by `tokens`."""
    tokens = tokens or TextTokens(choice="spaces")
    name = source if isinstance(source, str) else "input"
    with open_text(source, name, column=tokens.column) as text:
        yield from read_sentences(text, tokens)
