"""One vector of a token's layers: the mix that trains, and choices that stay as they are.

Source: Peters et al. (2018), section 3.2, equation 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, real, require, require_count, shown
from bilm.core.keras_backend import keras, require_eager

# Far above any model's: as many weights are made at once.
_MOST_LAYERS = 1000


@keras.saving.register_keras_serializable(package="bilm")
class ScalarMix(keras.layers.Layer):
    """gamma * sum over layers k of softmax(W)_k * layer_k, with W and gamma trained.

    Call arguments:
        lm_embeddings: float32 (batch, n_layers, time, dim).
        mask: bool (batch, time), False at padding.

    Output: float32 (batch, time, dim), with the mask as its Keras mask, which Keras layers and
    losses after it see. Padding is mixed like the rest: multiply by the mask where that matters.

    Args:
        n_layers: layers to mix, the token layer among them.
        l2_coef: adds l2_coef * sum(W ** 2) to the losses of the model that holds the layer, once
            however often it is called.
        use_top_only: gamma * top layer; there is no W and nothing is normalised.
        do_layer_norm: normalise each layer first, with one mean and one variance over all
            unmasked values of the batch.
        return_regularization: return (mix, l2_coef * sum(W ** 2)) instead of the mix alone.

    W starts at zeros (all layers alike) and gamma at 1.

    Example: `ScalarMix(3)(lm_embeddings, mask)`.
    """

    def __init__(
        self,
        n_layers: int,
        *,
        l2_coef: float | None = None,
        use_top_only: bool = False,
        do_layer_norm: bool = False,
        return_regularization: bool = False,
        name: str = "mix",
        **kwargs: Any,
    ) -> None:
        # Not the global policy: W and gamma are multiplied with float32 layers.
        super().__init__(name=name, autocast=False, **({"dtype": "float32"} | kwargs))
        require_eager()
        require_count(_MOST_LAYERS, n_layers=n_layers)
        if l2_coef is not None:
            require(real(0, 3e38), l2_coef=l2_coef)
        self.supports_masking = True
        self.n_layers = n_layers
        self.l2_coef = l2_coef
        self.use_top_only = use_top_only
        self.do_layer_norm = do_layer_norm
        self.return_regularization = return_regularization
        self.W = None
        if not use_top_only:
            self.W = self.add_weight(
                name=f"{name}_ELMo_W",
                shape=(n_layers,),
                initializer="zeros",
                regularizer=None if l2_coef is None else keras.regularizers.L2(float(l2_coef)),
            )
        self.gamma = self.add_weight(name=f"{name}_ELMo_gamma", shape=(1,), initializer="ones")
        self.built = True

    def __call__(self, lm_embeddings: Any, mask: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Check the arguments, then call as any Keras layer is called."""
        if not hasattr(lm_embeddings, "dtype"):
            lm_embeddings = np.asarray(lm_embeddings)
        mask = np.asarray(mask) if isinstance(mask, list | tuple | bool) else mask
        self._check(lm_embeddings, mask)
        return super().__call__(lm_embeddings, mask, *args, **kwargs)

    def _check(self, lm_embeddings: Any, mask: Any) -> None:
        kind = getattr(lm_embeddings.dtype, "name", lm_embeddings.dtype)
        shape = tf.TensorShape(lm_embeddings.shape)
        if shape.rank != 4 or "float" not in kind:
            raise InputError(
                "lm_embeddings: floating-point numbers (batch, layers, time, dim) are expected, "
                f"not {kind} of shape {shape}."
            )
        if shape[1] != self.n_layers:
            raise InputError(
                f"ScalarMix {self.name!r} mixes {self.n_layers} layers; lm_embeddings has "
                f"{shape[1]}, its shape is {tuple(shape)}."
            )
        of_mask = getattr(mask, "shape", None)
        expected = tf.TensorShape([shape[0], shape[2]])
        if of_mask is None or not expected.is_compatible_with(of_mask):
            found = "an array of another kind" if of_mask is None else f"shape {tuple(of_mask)}"
            raise InputError(
                f"mask: bool (batch, time), here {tuple(expected)}, is expected, not "
                f"{'None' if mask is None else found}."
            )

    def call(self, lm_embeddings: tf.Tensor, mask: tf.Tensor) -> Any:
        """Mix the layers."""
        mixed = self.mixed(lm_embeddings, mask)
        mixed._keras_mask = mask
        return (mixed, self.regularization()) if self.return_regularization else mixed

    def mixed(self, lm_embeddings: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """The mix alone, outside of Keras."""
        lm_embeddings = tf.cast(lm_embeddings, tf.float32)
        gamma = tf.convert_to_tensor(self.gamma)
        if self.use_top_only:
            return gamma * lm_embeddings[:, -1]
        weights = tf.nn.softmax(tf.convert_to_tensor(self.W))
        # (layers,) x (batch, layers, time, dim) -> (batch, time, dim)
        return gamma * tf.einsum("k,bktd->btd", weights, self._normed(lm_embeddings, mask))

    def compute_mask(self, lm_embeddings: Any, previous_mask: Any = None) -> None:
        """None: `call` sets the mask, which is an argument of its own."""

    def regularization(self) -> tf.Tensor:
        """l2_coef * sum(W ** 2), a scalar; 0 without an `l2_coef` or a W."""
        if self.W is None or self.l2_coef is None:
            return tf.zeros(())
        return self.l2_coef * tf.reduce_sum(tf.square(tf.convert_to_tensor(self.W)))

    def _normed(self, layers: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """(layer - mean) / sqrt(variance + 1e-12), over the unmasked values of each layer."""
        if not self.do_layer_norm:
            return layers
        # (batch, time) -> (batch, 1, time, 1), as layers (batch, n_layers, time, dim)
        mask = tf.cast(mask, layers.dtype)[:, tf.newaxis, :, tf.newaxis]
        count = tf.maximum(tf.reduce_sum(mask), 1) * layers.shape[-1]
        axes = [0, 2, 3]
        mean = tf.reduce_sum(layers * mask, axes, keepdims=True) / count
        variance = tf.reduce_sum(tf.square((layers - mean) * mask), axes, keepdims=True) / count
        return (layers - mean) * tf.math.rsqrt(variance + 1e-12)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return super().get_config() | {
            "n_layers": self.n_layers,
            "l2_coef": self.l2_coef,
            "use_top_only": self.use_top_only,
            "do_layer_norm": self.do_layer_norm,
            "return_regularization": self.return_regularization,
        }


Layers = str | int | ScalarMix | Sequence[float] | np.ndarray


class LayerChoice:
    """Takes the wanted vectors out of all layers.

    Args:
        layers: "average" or "sum" of all layers, the token layer included; "top"; "all"; the number
            of one layer, 0 for the token layer, -1 for the top; a `ScalarMix`; or one weight per
            layer, which are used as they are.
        n_layers: layers that there are, the token layer among them.

    Attributes:
        weights: the sum that the vectors are: float32 (n_layers,), a factor for each layer; None
            where they are not a sum with fixed factors.
        keeps_layers: whether the vectors keep the axis of layers.
        normalises: whether a token's vector depends on the other tokens, by the mix.

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
                    f"layers: the model's layers are 0 (tokens) to {n_layers - 1} (top), "
                    f"not {shown(layers)}."
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
                f"layers: the mix {mix.name!r} is for {mix.n_layers} layers, the model has "
                f"{n_layers}."
            )
        if not all(np.isfinite(variable.numpy()).all() for variable in mix.weights):
            raise InputError(f"layers: the mix {mix.name!r} holds numbers that are not finite.")
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
        """The wanted vectors.

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
        # One layer after the other: each value depends on its own token only, to the last bit.
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
            f"layers: 'average', 'top', 'all', a number, a ScalarMix, or {n_layers} finite weights "
            f"are expected, not {shown(weights)}."
        )
    return values
