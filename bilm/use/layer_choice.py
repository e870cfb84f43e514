"""The choice of layers: one vector per token from all layers of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, shown
from bilm.core.scalar_mix import ScalarMix

Layers = str | int | ScalarMix | Sequence[float] | np.ndarray


class LayerChoice:
    """Selects or sums the layers of a token.

    Args:
        layers: "average" or "sum" of all layers, including the token layer; "top"; "all"; a layer
            number, 0 for the token layer, -1 for the top; a `ScalarMix`; or one weight per layer.
        n_layers: number of layers, including the token layer.

    Attributes:
        weights: float32 (n_layers,), the factors of the sum; None if they are not fixed.
        keeps_layers: whether the vectors keep the layer axis.
        normalises: whether a token's vector depends on the other tokens, through layer
            normalisation.

    Raises:
        InputError: `layers` is none of these, does not fit `n_layers`, or is not finite.
    """

    def __init__(self, layers: Layers, n_layers: int) -> None:
        self.weights: np.ndarray | None = None
        self.keeps_layers = isinstance(layers, str) and layers == "all"
        self._mix: ScalarMix | None = None
        self._number: int | None = None
        if isinstance(layers, ScalarMix):
            self._choose_mix(layers, n_layers)
        elif isinstance(layers, str):
            if layers not in ("average", "sum", "top", "all"):
                raise InputError(
                    f"layers must be one of average, sum, top, all, got {shown(layers)}."
                )
            if layers == "average":
                self.weights = np.full(n_layers, 1 / n_layers, np.float32)
            elif layers == "sum":
                self.weights = np.ones(n_layers, np.float32)
            elif layers == "top":
                self._number = n_layers - 1
        elif isinstance(layers, int | np.integer) and not isinstance(layers, bool):
            if not -n_layers <= layers < n_layers:
                raise InputError(
                    f"layers must be a layer from 0 (tokens) to {n_layers - 1} (top), got "
                    f"{shown(layers)}."
                )
            self._number = int(layers) % n_layers
        else:
            self.weights = _as_weights(layers, n_layers)
        if self._number is not None:
            self.weights = np.eye(n_layers, dtype=np.float32)[self._number]
        self.normalises = self._mix is not None

    def _choose_mix(self, mix: ScalarMix, n_layers: int) -> None:
        if mix.n_layers != n_layers:
            raise InputError(
                f"layers: the mix {mix.name!r} must have {n_layers} layers like the model, got "
                f"{mix.n_layers}."
            )
        if not all(np.isfinite(variable.numpy()).all() for variable in mix.weights):
            raise InputError(f"layers: the weights of the mix {mix.name!r} must be finite.")
        gamma = float(mix.gamma.numpy()[0])
        if mix.W is None:
            self.weights = np.zeros(n_layers, np.float32)
            self.weights[-1] = gamma
        elif mix.do_layer_norm:
            self._mix = mix
        else:
            W = mix.W.numpy().astype(np.float64)
            raised = np.exp(W - W.max())
            self.weights = (gamma * raised / raised.sum()).astype(np.float32)

    def __call__(self, layers: np.ndarray) -> np.ndarray:
        """The vectors of the chosen layers.

        Args:
            layers: float32 (n_layers, tokens, dim).

        Returns:
            float32 (tokens, dim), or (n_layers, tokens, dim) for "all"; not a view.
        """
        if self._number is not None:
            return layers[self._number].copy()
        if self._mix is not None:
            mask = np.ones((1, layers.shape[1]), bool)
            return self._mix.mixed(tf.constant(layers[np.newaxis]), tf.constant(mask))[0].numpy()
        if self.weights is None:
            return layers
        # Layer by layer, so that a token's vector is bit-identical in every batch.
        result = layers[0] * self.weights[0]
        for layer, weight in zip(layers[1:], self.weights[1:], strict=True):
            result += weight * layer
        return result


def _as_weights(weights: Any, n_layers: int) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):
            values = np.asarray(weights, np.float32)
    except (TypeError, ValueError, OverflowError):
        values = np.empty(0, np.float32)
    if values.shape != (n_layers,) or not np.isfinite(values).all():
        raise InputError(
            f"layers must be 'average', 'top', 'all', a number, a ScalarMix, or {n_layers} finite "
            f"weights, got {shown(weights)}."
        )
    return values
