"""The trainable mix of a token's layers: Peters et al. (2018), section 3.2, equation (1).

    ELMo_k = gamma * sum over layers j of s_j h_k,j        with s = softmax(W)

`ScalarMix` holds W and gamma; `weight_layers` is the original program's function for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bilm.core.errors import InputError, integer, real, require, shown
from bilm.core.keras_backend import keras, require_eager

# Far above the number of layers of any model.
_MOST_LAYERS = 1000


def weight_layers(
    name: str,
    bilm_ops: Mapping[str, Any],
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
    *,
    mix: ScalarMix | None = None,
) -> dict[str, Any]:
    """Mix the layers of a language model with trainable weights.

    Args:
        name: prefix of the variables `{name}_ELMo_W` (n_layers,) and `{name}_ELMo_gamma` (1,).
        bilm_ops: the result of `BidirectionalLanguageModel`: tensors, or Keras tensors.
        l2_coef: regularisation l2_coef * sum(W ** 2).
        use_top_only: gamma times the top layer, without W.
        do_layer_norm: normalise each layer before the sum, over the unmasked values of the batch.
        mix: the 'mix' of an earlier call, to share its variables; `name` and the options are then
            ignored. Required inside `tf.function`, where no variable can be created.

    Returns a dict of
        weighted_op: float32 (batch, time, dim), gamma times the sum weighted by softmax(W).
        regularization_op: float32 scalar, l2_coef * sum(W ** 2): add it to your loss. For Keras
            inputs, the model's losses already include it.
        mix: the `ScalarMix` that holds the variables.

    Raises:
        InputError: `bilm_ops` lacks 'lm_embeddings' or 'mask', or `mix` has another number of
            layers or is missing inside `tf.function`.
    """
    if not isinstance(bilm_ops, Mapping) or not {"lm_embeddings", "mask"} <= set(bilm_ops):
        raise InputError(
            "weight_layers: bilm_ops must be the result of BidirectionalLanguageModel, with "
            f"'lm_embeddings' and 'mask', got {shown(bilm_ops)}."
        )
    lm_embeddings, mask = bilm_ops["lm_embeddings"], bilm_ops["mask"]
    if mix is None:
        if tf.inside_function():
            raise InputError(
                "weight_layers: mix must be given inside tf.function or a Keras layer's call: the "
                "'mix' of a call outside, or a ScalarMix created there."
            )
        mix = ScalarMix(
            lm_embeddings.shape[1],
            l2_coef=l2_coef,
            use_top_only=use_top_only,
            do_layer_norm=do_layer_norm,
            return_regularization=True,
            name=name,
        )
    if not isinstance(mix, ScalarMix):
        raise InputError(f"weight_layers: mix must be a ScalarMix, got {shown(mix)}.")
    mixed = mix(lm_embeddings, mask)
    weighted, l2_loss = mixed if mix.return_regularization else (mixed, mix.regularization())
    return {"weighted_op": weighted, "regularization_op": l2_loss, "mix": mix}


@keras.saving.register_keras_serializable(package="bilm")
class ScalarMix(keras.layers.Layer):
    """gamma * sum over layers k of softmax(W)_k * layer_k, with W and gamma trained.

    Call arguments:
        lm_embeddings: float32 (batch, n_layers, time, dim).
        mask: bool (batch, time), False at padding.

    Output: float32 (batch, time, dim), with the mask as its Keras mask. Padding is mixed as well:
    multiply by the mask where that matters.

    Args:
        n_layers: layers to mix, including the token layer.
        l2_coef: adds l2_coef * sum(W ** 2) once to the losses of the model that holds the layer.
        use_top_only: gamma * top layer, without W and normalisation.
        do_layer_norm: normalise each layer first, with one mean and one variance over all
            unmasked values of the batch.
        return_regularization: return (mix, l2_coef * sum(W ** 2)) instead of the mix alone.

    W starts at zeros (equal weights) and gamma at 1. Example: `ScalarMix(3)(lm_embeddings, mask)`.
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
        # Independent of the global policy: W and gamma are multiplied with float32 layers.
        super().__init__(name=name, autocast=False, **({"dtype": "float32"} | kwargs))
        require_eager()
        require(integer(1, _MOST_LAYERS), n_layers=n_layers)
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
                # The same as `regularization`, among the losses of a Keras model.
                regularizer=None if l2_coef is None else keras.regularizers.L2(float(l2_coef)),
            )
        self.gamma = self.add_weight(name=f"{name}_ELMo_gamma", shape=(1,), initializer="ones")
        self.built = True

    def __call__(self, lm_embeddings: Any, mask: Any = None, *args: Any, **kwargs: Any) -> Any:
        self._check(lm_embeddings, mask)  # here: Keras would add to an error raised in `call`
        return super().__call__(lm_embeddings, mask, *args, **kwargs)

    def call(self, lm_embeddings: tf.Tensor, mask: tf.Tensor) -> Any:
        mixed = self.mixed(lm_embeddings, mask)
        mixed._keras_mask = mask
        return (mixed, self.regularization()) if self.return_regularization else mixed

    def mixed(self, lm_embeddings: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """The mix alone, outside of Keras."""
        lm_embeddings = tf.cast(lm_embeddings, tf.float32)
        gamma = tf.convert_to_tensor(self.gamma)
        if self.use_top_only:
            return gamma * lm_embeddings[:, -1]
        if self.do_layer_norm:
            lm_embeddings = _normed(lm_embeddings, mask)
        weights = tf.nn.softmax(tf.convert_to_tensor(self.W))
        # (layers,) x (batch, layers, time, dim) -> (batch, time, dim)
        return gamma * tf.einsum("k,bktd->btd", weights, lm_embeddings)

    def regularization(self) -> tf.Tensor:
        """The penalty of section 3.3: l2_coef * sum(W ** 2), a scalar; 0 without `l2_coef` or W."""
        if self.W is None or self.l2_coef is None:
            return tf.zeros(())
        return self.l2_coef * tf.reduce_sum(tf.square(tf.convert_to_tensor(self.W)))

    def compute_mask(self, lm_embeddings: Any, previous_mask: Any = None) -> None:
        """None: `call` sets the mask, which is an argument of its own."""

    def _check(self, lm_embeddings: Any, mask: Any) -> None:
        shape = tf.TensorShape(lm_embeddings.shape)
        if shape.rank != 4 or shape[1] != self.n_layers:
            raise InputError(
                f"lm_embeddings must be (batch, layers, time, dim) with {self.n_layers} layers for "
                f"the ScalarMix {self.name!r}, got the shape {shape}."
            )
        expected = tf.TensorShape([shape[0], shape[2]])
        of_mask = getattr(mask, "shape", None)
        if of_mask is None or not expected.is_compatible_with(of_mask):
            raise InputError(
                f"mask must be bool (batch, time), here {expected}, got "
                f"{shown(mask) if of_mask is None else f'the shape {tuple(of_mask)}'}."
            )

    def get_config(self) -> dict[str, Any]:
        names = ("n_layers", "l2_coef", "use_top_only", "do_layer_norm", "return_regularization")
        return super().get_config() | {name: getattr(self, name) for name in names}


def _normed(layers: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """(layer - mean) / sqrt(variance + 1e-12), over the unmasked values of each layer."""
    # (batch, time) -> (batch, 1, time, 1), as layers (batch, n_layers, time, dim)
    mask = tf.cast(mask, layers.dtype)[:, tf.newaxis, :, tf.newaxis]
    count = tf.maximum(tf.reduce_sum(mask), 1) * layers.shape[-1]
    axes = [0, 2, 3]
    mean = tf.reduce_sum(layers * mask, axes, keepdims=True) / count
    variance = tf.reduce_sum(tf.square((layers - mean) * mask), axes, keepdims=True) / count
    return (layers - mean) * tf.math.rsqrt(variance + 1e-12)
