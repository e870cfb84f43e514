"""Ids to token vectors: character convolutions, or a word table (section 3 of the paper).

The table of vectors is an argument: training uses the table as it is in the file, inference one
with a row of zeros added at the front.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Weights = dict[str, np.ndarray]
Options = dict[str, Any]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


# Each activation: the function, and its derivative in terms of the function's value.
ACTIVATIONS = {
    "relu": (lambda x: np.maximum(x, 0), lambda y: y > 0),
    "tanh": (np.tanh, lambda y: 1 - y**2),
}


def table_with_padding(table: np.ndarray) -> np.ndarray:
    """The table for inference, with a row of zeros for id 0 (padding)."""
    return np.concatenate([np.zeros_like(table[:1]), table])


def convolve(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Convolve (words, characters, dim) with kernel (1, width, dim, n): (words, positions, n)."""
    windows = sliding_window_view(x, kernel.shape[1], axis=1)  # (words, positions, dim, width)
    return np.einsum("npdw,wdf->npf", windows, kernel[0], optimize=True) + bias


def highway(x: np.ndarray, p: Weights) -> np.ndarray:
    """The files call g `carry`, although it is the gate of the transformation."""
    g = sigmoid(x @ p["W_carry"] + p["b_carry"])
    return g * np.maximum(x @ p["W_transform"] + p["b_transform"], 0) + (1 - g) * x


def highway_gradient(x: np.ndarray, p: Weights, dy: np.ndarray) -> tuple[np.ndarray, Weights]:
    g = sigmoid(x @ p["W_carry"] + p["b_carry"])
    t = np.maximum(x @ p["W_transform"] + p["b_transform"], 0)
    d_carry = dy * (t - x) * g * (1 - g)
    d_transform = dy * g * (t > 0)
    gradients = {
        "W_carry": x.T @ d_carry,
        "b_carry": d_carry.sum(axis=0),
        "W_transform": x.T @ d_transform,
        "b_transform": d_transform.sum(axis=0),
    }
    dx = dy * (1 - g) + d_carry @ p["W_carry"].T + d_transform @ p["W_transform"].T
    return dx, gradients


def group(weights: Weights, prefix: str) -> Weights:
    """The weights in a group of the file, by their names within the group."""
    return {k[len(prefix) :]: v for k, v in weights.items() if k.startswith(prefix)}


def has_projection(options: Options) -> bool:
    n_filters = sum(n for _, n in options["char_cnn"]["filters"])
    return n_filters != options["lstm"]["projection_dim"]


def _stages(weights: Weights, options: Options, characters: np.ndarray) -> list[np.ndarray]:
    """The output of the convolutions (words, F), then the output of each highway layer."""
    cnn = options["char_cnn"]
    pooled = [
        convolve(characters, weights[f"CNN/W_cnn_{i}"], weights[f"CNN/b_cnn_{i}"]).max(axis=1)
        for i in range(len(cnn["filters"]))
    ]
    x = np.concatenate(pooled, axis=-1)
    stages = [ACTIVATIONS[cnn["activation"]][0](x)]
    for k in range(cnn.get("n_highway", 0)):
        stages.append(highway(stages[-1], group(weights, f"CNN_high_{k}/")))
    return stages


def encode(weights: Weights, options: Options, table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Token vectors (..., projection_dim) of ids (..., characters), or (...) with word input."""
    if "char_cnn" not in options:
        return table[ids]
    x = _stages(weights, options, table[ids.reshape(-1, ids.shape[-1])])[-1]
    if has_projection(options):
        x = x @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]
    return x.reshape(*ids.shape[:-1], x.shape[-1])


def encode_gradient(
    weights: Weights, options: Options, table: np.ndarray, ids: np.ndarray, d: np.ndarray
) -> Weights:
    """Gradients of the encoder's weights, given the gradient `d` of its output."""
    if "char_cnn" not in options:
        gradient = np.zeros_like(table)
        np.add.at(gradient, ids, d)
        return {"embedding": gradient}
    ids, d = ids.reshape(-1, ids.shape[-1]), d.reshape(-1, d.shape[-1])
    *inputs, last = _stages(weights, options, table[ids])
    gradients: Weights = {}
    if has_projection(options):
        gradients["CNN_proj/W_proj"] = last.T @ d
        gradients["CNN_proj/b_proj"] = d.sum(axis=0)
        d = d @ weights["CNN_proj/W_proj"].T
    for k in reversed(range(len(inputs))):
        prefix = f"CNN_high_{k}/"
        d, inner = highway_gradient(inputs[k], group(weights, prefix), d)
        gradients |= {prefix + name: value for name, value in inner.items()}
    y = [*inputs, last][0]
    d = d * ACTIVATIONS[options["char_cnn"]["activation"]][1](y)
    return gradients | _convolution_gradients(weights, options, table, ids, d)


def _convolution_gradients(
    weights: Weights, options: Options, table: np.ndarray, ids: np.ndarray, d: np.ndarray
) -> Weights:
    """Gradients through max-pooling, which go to the window with the maximum only."""
    gradients: Weights = {}
    characters = table[ids]
    d_characters = np.zeros_like(characters)
    word = np.arange(len(ids))[:, None, None]
    offset = 0
    for i, (width, n) in enumerate(options["char_cnn"]["filters"]):
        kernel, bias = weights[f"CNN/W_cnn_{i}"], weights[f"CNN/b_cnn_{i}"]
        best = convolve(characters, kernel, bias).argmax(axis=1)
        place = best[:, :, None] + np.arange(width)  # (words, n, width)
        part = d[:, offset : offset + n]
        window = characters[word, place]  # (words, n, width, dim)
        gradients[f"CNN/W_cnn_{i}"] = np.einsum("nf,nfwd->wdf", part, window)[None]
        gradients[f"CNN/b_cnn_{i}"] = part.sum(axis=0)
        np.add.at(d_characters, (word, place), np.einsum("nf,wdf->nfwd", part, kernel[0]))
        offset += n
    gradients["char_embed"] = np.zeros_like(table)
    np.add.at(gradients["char_embed"], ids, d_characters)
    return gradients
