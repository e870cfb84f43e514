"""Weights from HDF5 files and from TF1 checkpoints, both by HDF5 name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from tests.oracle.encoder import Options, Weights


class Checkpoint(NamedTuple):
    weights: Weights  # by HDF5 name, including softmax/W and softmax/b
    accumulators: Weights  # Adagrad's, by the same names
    step: int


def read_hdf5(path: Path | str) -> Weights:
    """Read every dataset of a file."""
    found: Weights = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    return found


def write_hdf5(path: Path | str, weights: Weights) -> None:
    with h5py.File(path, "w") as file:
        for name, value in weights.items():
            file.create_dataset(name, data=np.asarray(value, np.float32))


def write_model(folder: Path, options: Options, weights: Weights) -> tuple[str, str]:
    """Write options.json and weights.hdf5; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    write_hdf5(folder / "weights.hdf5", weights)
    return str(folder / "options.json"), str(folder / "weights.hdf5")


_CELL = re.compile(
    r"(?:RNN_(?P<direction>\d)/)?rnn/(?:multi_rnn_cell/cell_(?P<layer>\d+)/)?lstm_cell/(?P<part>.*)"
)
_PARTS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}


def hdf5_name(variable: str) -> str:
    """The HDF5 name of a TF1 variable, whose name omits a single layer or direction."""
    name = variable.removeprefix("lm/")
    cell = _CELL.fullmatch(name)
    if cell is None:
        return name
    direction, layer = cell["direction"] or 0, cell["layer"] or 0
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{_PARTS[cell['part']]}"


def read_checkpoint(prefix: Path | str) -> Checkpoint:
    """Read a TF1 checkpoint, given its path up to model.ckpt-N."""
    # Imported here, so that tests of plain NumPy code do not wait for TensorFlow.
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    weights, accumulators = {}, {}
    for name in reader.get_variable_to_shape_map():
        if not name.startswith("lm/"):
            continue
        into = accumulators if name.endswith("/Adagrad") else weights
        into[hdf5_name(name.removesuffix("/Adagrad"))] = reader.get_tensor(name)
    return Checkpoint(weights, accumulators, int(reader.get_tensor("global_step")))
