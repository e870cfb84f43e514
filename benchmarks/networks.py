"""Networks of the published sizes with random weights, in the published files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import h5py
import numpy as np

from bilm import Options, preset


def network_options(name: str) -> Options:
    """Options of a preset of bilm, or of "minimal", which does next to nothing.

    With the minimal network, what surrounds the network is what takes time and memory.
    """
    if name != "minimal":
        return Options.from_dict(preset(name), training=True)
    options = preset("tiny")
    options["lstm"] |= {"dim": 32, "projection_dim": 8, "n_layers": 1}
    options["char_cnn"] |= {"filters": [[1, 8], [2, 8]], "n_highway": 0}
    return Options.from_dict(options, training=True)


def weight_shapes(options: Options) -> dict[str, tuple[int, ...]]:
    """Dataset names and shapes of the weights of a model with character input, two directions."""
    cnn, lstm = options.char_cnn, options.lstm
    if cnn is None:
        raise ValueError("the options have no char_cnn")
    size = cnn.n_filters
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, cnn.embedding_dim)}
    for i, (width, number) in enumerate(cnn.filters):
        shapes[f"CNN/W_cnn_{i}"] = (1, width, cnn.embedding_dim, number)
        shapes[f"CNN/b_cnn_{i}"] = (number,)
    for k in range(cnn.n_highway):
        for gate in ("carry", "transform"):
            shapes[f"CNN_high_{k}/W_{gate}"] = (size, size)
            shapes[f"CNN_high_{k}/b_{gate}"] = (size,)
    if size != lstm.projection_dim:
        shapes["CNN_proj/W_proj"] = (size, lstm.projection_dim)
        shapes["CNN_proj/b_proj"] = (lstm.projection_dim,)
    for direction in range(options.n_directions):
        for layer in range(lstm.n_layers):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            shapes[f"{cell}/W_0"] = (2 * lstm.projection_dim, 4 * lstm.dim)
            shapes[f"{cell}/B"] = (4 * lstm.dim,)
            if lstm.has_projection:
                shapes[f"{cell}/W_P_0"] = (lstm.dim, lstm.projection_dim)
    return shapes


def write_network(options: Options, options_file: Path, weight_file: Path) -> None:
    """Write options.json and HDF5 weights, normal numbers that keep the size of what they see."""
    options_file.write_text(json.dumps(options.inference_dict()), encoding="utf-8")
    generator = np.random.default_rng(0)
    with h5py.File(weight_file, "w") as file:
        for name, shape in weight_shapes(options).items():
            inputs = math.prod(shape[:-1])
            if name == "char_embed":
                inputs = 1
            values = generator.standard_normal(shape, np.float32)
            file[name] = values / np.float32(math.sqrt(inputs)) if len(shape) > 1 else 0 * values
