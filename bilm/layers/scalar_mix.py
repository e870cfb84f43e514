"""The layer mix of ELMo: Peters et al. (2018), section 3.2, equation 1."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from bilm.errors import InputError


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
        if not isinstance(n_layers, int) or n_layers < 1:
            raise InputError(f"n_layers: a whole number from 1 is expected, not {n_layers!r}.")
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
                regularizer=None if l2_coef is None else keras.regularizers.L2(l2_coef),
            )
        self.gamma = self.add_weight(name=f"{name}_ELMo_gamma", shape=(1,), initializer="ones")
        self.built = True

    def call(self, lm_embeddings: tf.Tensor, mask: tf.Tensor) -> Any:
        """Mix the layers."""
        mixed = self._mix(lm_embeddings, mask)
        mixed._keras_mask = mask
        return (mixed, self.regularization()) if self.return_regularization else mixed

    def _mix(self, lm_embeddings: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        if lm_embeddings.shape[1] != self.n_layers:
            raise InputError(
                f"ScalarMix {self.name!r} mixes {self.n_layers} layers; lm_embeddings has "
                f"{lm_embeddings.shape[1]}, its shape is {tuple(lm_embeddings.shape)}."
            )
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
