"""Which layers of a sentence become its vectors, and how many vectors become one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.errors import InputError
from bilm.layers import ScalarMix

Layers = str | int | ScalarMix | Sequence[float] | np.ndarray

NAMES = ("average", "top", "all")
POOLINGS = ("mean", "max")


class LayerChoice:
    """Takes the wanted vectors out of all layers.

    Args:
        layers: "average" of all layers, the token layer among them; "top"; "all"; the number of
            one layer, 0 for the token layer, -1 for the top; a `ScalarMix`; or a weight for each
            layer, which are used as they are.
        n_layers: layers that there are, the token layer among them.

    Raises:
        InputError: `layers` is none of these, or does not fit `n_layers`.
    """

    def __init__(self, layers: Layers, n_layers: int) -> None:
        self._n_layers = n_layers
        self._mix: ScalarMix | None = None
        self._number: int | None = None
        self._weights: np.ndarray | None = None
        self.keeps_layers = False
        if isinstance(layers, str):
            self._choose_name(layers)
        elif isinstance(layers, ScalarMix):
            self._choose_mix(layers)
        elif isinstance(layers, int | np.integer) and not isinstance(layers, bool):
            self._choose_number(int(layers))
        else:
            self._choose_weights(layers)

    @property
    def needs_whole_sentence(self) -> bool:
        """Whether a token's vector depends on the other tokens: the mix normalises layers."""
        return self._mix is not None

    @property
    def weights(self) -> np.ndarray | None:
        """The sum that the vectors are: float32 (n_layers,), a factor for each layer; None where
        they are not a sum with fixed factors."""
        if self._number is not None:
            return np.eye(self._n_layers, dtype=np.float32)[self._number]
        return self._weights

    def __call__(self, layers: np.ndarray) -> np.ndarray:
        """The wanted vectors.

        Args:
            layers: float32 (n_layers, tokens, dim).

        Returns:
            float32 (tokens, dim), or (n_layers, tokens, dim) for "all"; not a view.
        """
        if self.keeps_layers:
            return layers
        if self._number is not None:
            return layers[self._number].copy()
        if self._mix is not None:
            mask = np.ones((1, layers.shape[1]), bool)
            mixed = self._mix(tf.constant(layers[np.newaxis]), tf.constant(mask))
            mixed = mixed[0] if self._mix.return_regularization else mixed
            return mixed[0].numpy()
        # One layer after the other: each value depends on its own token only, to the last bit.
        result = layers[0] * self._weights[0]  # type: ignore[index]
        for layer, weight in zip(layers[1:], self._weights[1:], strict=True):  # type: ignore[index]
            result += weight * layer
        return result

    def _choose_name(self, name: str) -> None:
        if name not in NAMES:
            raise InputError(f"layers: one of {', '.join(NAMES)} is expected, not {name!r}.")
        if name == "average":
            self._weights = np.full(self._n_layers, 1 / self._n_layers, np.float32)
        elif name == "top":
            self._number = self._n_layers - 1
        else:
            self.keeps_layers = True

    def _choose_number(self, number: int) -> None:
        if not -self._n_layers <= number < self._n_layers:
            raise InputError(
                f"layers: the model's layers are 0 (tokens) to {self._n_layers - 1} (top), "
                f"not {number}."
            )
        self._number = number % self._n_layers

    def _choose_mix(self, mix: ScalarMix) -> None:
        if mix.n_layers != self._n_layers:
            raise InputError(
                f"layers: the mix {mix.name!r} is for {mix.n_layers} layers, the model has "
                f"{self._n_layers}."
            )
        gamma = float(mix.gamma.numpy()[0])
        if mix.use_top_only:
            self._weights = np.zeros(self._n_layers, np.float32)
            self._weights[-1] = gamma
        elif mix.do_layer_norm:
            self._mix = mix
        elif mix.W is not None:
            raised = np.exp(mix.W.numpy().astype(np.float64))
            self._weights = (gamma * raised / raised.sum()).astype(np.float32)

    def _choose_weights(self, weights: Any) -> None:
        try:
            values = np.asarray(weights, np.float32)
        except (TypeError, ValueError):
            values = np.empty(0, np.float32)
        if values.shape != (self._n_layers,) or not np.isfinite(values).all():
            raise InputError(
                f"layers: 'average', 'top', 'all', a number, a ScalarMix, or {self._n_layers} "
                f"finite weights are expected, not {weights!r}."
            )
        self._weights = values


def check_pooling(pooling: str | None) -> str | None:
    """`pooling`, once it is known to be None, "mean" or "max".

    Raises:
        InputError: it is something else.
    """
    if pooling is not None and pooling not in POOLINGS:
        raise InputError(f"pooling: None, 'mean' or 'max' is expected, not {pooling!r}.")
    return pooling


class Pool:
    """One vector of many, which are given in parts.

    Args:
        pooling: "mean" or "max", over the tokens.
    """

    def __init__(self, pooling: str) -> None:
        self._pooling = pooling
        self._value: np.ndarray | None = None
        self._n = 0

    def add(self, vectors: np.ndarray) -> None:
        """Take in vectors, float32 (..., tokens, dim); there may be none."""
        n = vectors.shape[-2]
        if not n:
            return
        if self._pooling == "max":
            new = vectors.max(axis=-2)
            self._value = new if self._value is None else np.maximum(self._value, new)
        else:
            # In float64, so that a million tokens add up.
            new = vectors.sum(axis=-2, dtype=np.float64)
            self._value = new if self._value is None else self._value + new
        self._n += n

    def result(self, shape: tuple[int, ...]) -> np.ndarray:
        """The one vector, float32 of `shape` (..., dim); zeros if there were no tokens."""
        if self._value is None:
            return np.zeros(shape, np.float32)
        value = self._value / self._n if self._pooling == "mean" else self._value
        return value.astype(np.float32)
