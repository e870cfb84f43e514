"""The choice of a token's layers: one of them, all, or their weighted sum.

This module does not import TensorFlow, so that choices are checked before it is loaded.
"""

import contextlib
from typing import Any

import numpy as np

from bilm.core.errors import InputError, integer, shown

LAYER_NAMES = ("average", "sum", "top", "all")


def layer_number(layer: Any, n_layers: int, *others: str, name: str = "layer") -> int:
    """The number of a layer given as "top", or as a number, negative from the top. Errors call it
    `name`, and list `others` as further values."""
    number = _number(layer, n_layers)
    if number is None:
        names = ", ".join(map(repr, ("top", *others)))
        raise InputError(
            f"{name} must be {names} or a layer from 0 (tokens) to {n_layers - 1} (top), got "
            f"{shown(layer)}."
        )
    return number


def _number(layer: Any, n_layers: int) -> int | None:
    if isinstance(layer, str):
        return n_layers - 1 if layer == "top" else None
    return int(layer) % n_layers if integer(-n_layers, n_layers - 1).holds(layer) else None


def plain_layers(layers: Any) -> str | int | list[float]:
    """Layers as JSON has them: one of `LAYER_NAMES`, a number, or a list of weights."""
    if isinstance(layers, str) and layers in LAYER_NAMES:
        return layers
    with contextlib.suppress(TypeError, ValueError):
        numbers = np.asarray(layers)
        if numbers.dtype.kind in ("iu" if numbers.ndim == 0 else "iuf") and numbers.ndim <= 1:
            return numbers.tolist()
    names = ", ".join(map(repr, LAYER_NAMES))
    raise InputError(
        f"layers must be {names}, a layer number or a list of weights, got {shown(layers)}."
    )


class LayerChoice:
    """Selects or sums the layers of a token; `layers` is the argument of `ELMo.encode`.

    Attributes:
        weights: float32 (n_layers,), the factors of the sum; None if they are not fixed.
        keeps_layers: whether the vectors keep the layer axis.
        mix: a `ScalarMix` that normalises, so that a token's vector depends on the other tokens;
            None for other choices.
    """

    def __init__(self, layers: Any, n_layers: int) -> None:
        self.weights: np.ndarray | None = None
        self.keeps_layers = isinstance(layers, str) and layers == "all"
        self.mix: Any = None
        self._number = _number(layers, n_layers)
        weights = layers
        if self._number is not None:
            weights = np.eye(n_layers)[self._number]
        elif isinstance(layers, str):
            weights = {"average": np.full(n_layers, 1 / n_layers), "sum": np.ones(n_layers)}.get(
                layers
            )
        elif hasattr(layers, "layer_weights"):
            weights = layers.layer_weights(n_layers)
            self.mix = layers if layers.normalises else None
        if self.keeps_layers or self.mix is not None:
            return
        if isinstance(layers, list | tuple) and layers and all(map(integer(-9).holds, layers)):
            raise InputError(
                f"layers must be 'all' for all layers, or weights as floats, got {shown(layers)}."
            )
        factors = np.empty(0, np.float32)
        with contextlib.suppress(TypeError, ValueError, OverflowError), np.errstate(over="ignore"):
            factors = np.asarray(weights, np.float32)
        if factors.shape != (n_layers,) or not np.isfinite(factors).all():
            raise InputError(
                "layers must be 'average', 'sum', 'top', 'all', a layer from 0 (tokens) to "
                f"{n_layers - 1} (top), a ScalarMix, or {n_layers} finite weights, got "
                f"{shown(layers)}."
            )
        self.weights = factors

    def __call__(self, layers: np.ndarray) -> np.ndarray:
        """The vectors float32 (tokens, dim), or for "all" (n_layers, tokens, dim), from all layers
        (n_layers, tokens, dim); not a view."""
        if self._number is not None:
            return layers[self._number].copy()
        if self.mix is not None:
            return self.mix.mixed(layers[np.newaxis])[0].numpy()
        if self.weights is None:
            return layers
        # Layer by layer, so that a token's vector is bit-identical in every batch.
        result = layers[0] * self.weights[0]
        for layer, weight in zip(layers[1:], self.weights[1:], strict=True):
            result += weight * layer
        return result
