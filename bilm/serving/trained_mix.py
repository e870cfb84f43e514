"""The mix of layers that was trained within a Keras model, from the model's file."""

from __future__ import annotations

from typing import Any

import keras

from bilm.errors import InputError
from bilm.files import PathLike, require_file
from bilm.layers import ScalarMix


def read_mix(keras_file: PathLike, name: str | None = None) -> ScalarMix:
    """The trained mix of a model that Keras saved.

    Args:
        keras_file: a `.keras` file.
        name: of the mix, when there are several: that of the `ELMoEmbedding`, or what
            `weight_layers` was called with.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: Keras cannot load it, or it does not hold one mix of that name.
    """
    path = require_file(keras_file, "Keras model")
    try:
        model = keras.saving.load_model(path, compile=False)
    except (ValueError, TypeError, KeyError, OSError) as error:
        first = str(error).strip().partition("\n")[0]
        raise InputError(f"{path}: Keras cannot load it: {first}") from error
    mixes = _mixes(model)
    found = [mix for mix in mixes if name in (None, mix.name)]
    if len(found) != 1:
        wanted = (
            "is expected, or the name of one" if name is None else f"called {name!r} is expected"
        )
        names = ", ".join(repr(mix.name) for mix in mixes) or "none"
        raise InputError(f"mix: one mix of layers {wanted}; {path} has {names}.")
    return found[0]


def _mixes(model: Any) -> list[ScalarMix]:
    layers = model._flatten_layers()
    return [layer for layer in layers if isinstance(layer, ScalarMix)]
