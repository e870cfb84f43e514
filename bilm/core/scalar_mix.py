"""The trainable mix of a token's layers: Peters et al. (2018), section 3.2, equation (1).

    ELMo_k = gamma * sum over layers j of s_j h_k,j        with s = softmax(W)

`ScalarMix` holds W and gamma; `weight_layers` is the original program's function for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
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


def sum_layers(weights: Any, layers: tf.Tensor) -> tf.Tensor:
    """The weighted sum of layers (batch, n_layers, time, dim): float32 (batch, time, dim)."""
    # (layers,) x (batch, layers, time, dim) -> (batch, time, dim)
    return tf.einsum("k,bktd->btd", tf.convert_to_tensor(weights), layers)


@keras.saving.register_keras_serializable(package="bilm")
class ScalarMix(keras.layers.Layer):
    """gamma * sum over layers k of softmax(W)_k * layer_k, with W and gamma trained.

    Call arguments:
        lm_embeddings: float32 (batch, n_layers, time, dim).
        mask: bool (batch, time), False at padding. None: no padding.

    Output: float32 (batch, time, dim), with the mask as its Keras mask. Padding is mixed as well:
    multiply by the mask where that matters.

    Args:
        n_layers: layers to mix, including the token layer; by default as many as `weights`.
        weights: initial values of W, (n_layers,), which a softmax turns into the factors of the
            layers: AllenNLP's `scalar_mix_parameters`. None: zeros, for equal factors.
        gamma: initial value of gamma.
        l2_coef: adds l2_coef * sum(W ** 2) once to the losses of the model that holds the layer.
        use_top_only: gamma * top layer, without W and normalisation.
        do_layer_norm: normalise each layer first, with one mean and one variance over all
            unmasked values of the batch.
        return_regularization: return (mix, l2_coef * sum(W ** 2)) instead of the mix alone.

    Raises:
        InputError: an argument has a wrong value; the inputs have a wrong shape.

    Example: `ScalarMix(3)(lm_embeddings, mask)`.
    """

    def __init__(
        self,
        n_layers: int | None = None,
        *,
        weights: Sequence[float] | None = None,
        gamma: float = 1.0,
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
        values = None if weights is None else _finite_weights(weights, n_layers)
        n_layers = n_layers if values is None else len(values)
        require(integer(1, _MOST_LAYERS), n_layers=n_layers)
        gamma = _number(gamma)
        require(real(), gamma=gamma)
        if use_top_only and values is not None:
            raise InputError("weights must be None with use_top_only, which mixes one layer.")
        if l2_coef is not None:
            require(real(0, 3e38), l2_coef=l2_coef)
        self.supports_masking = True
        self.n_layers = n_layers
        self.l2_coef = l2_coef
        self.use_top_only = use_top_only
        self.do_layer_norm = do_layer_norm
        self.return_regularization = return_regularization
        self._start_W, self._start_gamma = values, gamma
        self.W = None
        if not use_top_only:
            self.W = self.add_weight(
                name=f"{name}_ELMo_W",
                shape=(n_layers,),
                initializer="zeros" if values is None else lambda shape, dtype: values,
                # Adds `regularization` to the losses of a Keras model.
                regularizer=None if l2_coef is None else keras.regularizers.L2(float(l2_coef)),
            )
        start = keras.initializers.Constant(gamma)
        self.gamma = self.add_weight(name=f"{name}_ELMo_gamma", shape=(1,), initializer=start)
        self.built = True

    def __call__(self, lm_embeddings: Any, mask: Any = None, *args: Any, **kwargs: Any) -> Any:
        self._check(lm_embeddings, mask)  # here: Keras would add to an error raised in `call`
        masks = () if mask is None else (mask,)  # Keras would replace None by the inputs' mask
        return super().__call__(lm_embeddings, *masks, *args, **kwargs)

    def call(self, lm_embeddings: tf.Tensor, mask: tf.Tensor | None = None) -> Any:
        mixed = self.mixed(lm_embeddings, mask)
        if mask is not None:
            mixed._keras_mask = mask
        return (mixed, self.regularization()) if self.return_regularization else mixed

    @property
    def normalises(self) -> bool:
        """Whether a token's vector depends on the other tokens, through layer normalisation."""
        return self.do_layer_norm and self.W is not None

    def layer_weights(self, n_layers: int) -> np.ndarray:
        """The factors of the layers of a model, gamma * softmax(W) or gamma for the top layer:
        float64 (n_layers,). Raises an InputError if the mix has another number of layers, or its
        weights are not finite."""
        if self.n_layers != n_layers:
            raise InputError(
                f"layers: the mix {self.name!r} must have {n_layers} layers like the model, got "
                f"{self.n_layers}."
            )
        W = np.zeros(n_layers) if self.W is None else self.W.numpy().astype(np.float64)
        gamma = float(self.gamma.numpy()[0])
        if not np.isfinite([*W, gamma]).all():
            raise InputError(f"layers: the weights of the mix {self.name!r} must be finite.")
        exponentials = np.exp(W - W.max())
        softmax = np.eye(n_layers)[-1] if self.W is None else exponentials / exponentials.sum()
        return gamma * softmax

    def mixed(self, lm_embeddings: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        """The mix as a plain function of tensors, float32 (batch, time, dim): it neither checks
        shapes nor sets Keras' mask."""
        lm_embeddings = tf.cast(lm_embeddings, tf.float32)
        gamma = tf.convert_to_tensor(self.gamma)
        if self.use_top_only:
            return gamma * lm_embeddings[:, -1]
        if self.do_layer_norm:
            if mask is None:
                mask = tf.ones_like(lm_embeddings[:, 0, :, 0], tf.bool)
            lm_embeddings = _normed(lm_embeddings, mask)
        return gamma * sum_layers(tf.nn.softmax(tf.convert_to_tensor(self.W)), lm_embeddings)

    def regularization(self) -> tf.Tensor:
        """The penalty of section 3.3: l2_coef * sum(W ** 2), a scalar; 0 without `l2_coef` or W."""
        if self.W is None or self.l2_coef is None:
            return tf.zeros(())
        return self.l2_coef * tf.reduce_sum(tf.square(tf.convert_to_tensor(self.W)))

    def compute_mask(self, lm_embeddings: Any, previous_mask: Any = None) -> None:
        """None: `call` sets the mask, which is a separate argument."""

    def _check(self, lm_embeddings: Any, mask: Any) -> None:
        shape = tf.TensorShape(lm_embeddings.shape)
        if shape.rank != 4 or shape[1] != self.n_layers:
            raise InputError(
                f"lm_embeddings must be (batch, layers, time, dim) with {self.n_layers} layers for "
                f"the ScalarMix {self.name!r}, got the shape {shape}."
            )
        if mask is None:
            return
        expected = tf.TensorShape([shape[0], shape[2]])
        mask_shape = getattr(mask, "shape", None)
        if mask_shape is None or not expected.is_compatible_with(mask_shape):
            raise InputError(
                f"mask must be bool (batch, time), here {expected}, got "
                f"{shown(mask) if mask_shape is None else f'the shape {tuple(mask_shape)}'}."
            )

    def get_config(self) -> dict[str, Any]:
        names = ("n_layers", "l2_coef", "use_top_only", "do_layer_norm", "return_regularization")
        settings = {name: getattr(self, name) for name in names}
        weights = None if self._start_W is None else self._start_W.tolist()
        return super().get_config() | settings | {"weights": weights, "gamma": self._start_gamma}


def _number(value: Any) -> Any:
    """The number in an array or tensor of one number, such as a parameter of PyTorch; other values
    as they are."""
    if isinstance(value, list | tuple):
        return value
    array = np.asarray(value.detach() if hasattr(value, "detach") else value)
    return float(array.item()) if array.size == 1 and array.dtype.kind in "fiu" else value


def _finite_weights(weights: Any, n_layers: int | None) -> np.ndarray:
    values = np.empty(0)
    with contextlib.suppress(TypeError, ValueError):
        values = np.asarray([_number(weight) for weight in weights], np.float32)
    is_list = values.ndim == 1 and len(values) and np.isfinite(values).all()
    if not is_list or n_layers not in (None, len(values)):
        raise InputError(
            f"weights must be {n_layers or 'a list of'} finite numbers, got {shown(weights)}."
        )
    return values


def _normed(layers: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """(layer - mean) / sqrt(variance + 1e-12), over the unmasked values of each layer."""
    # (batch, time) -> (batch, 1, time, 1), as layers (batch, n_layers, time, dim)
    mask = tf.cast(mask, layers.dtype)[:, tf.newaxis, :, tf.newaxis]
    count = tf.maximum(tf.reduce_sum(mask), 1) * layers.shape[-1]
    axes = [0, 2, 3]
    mean = tf.reduce_sum(layers * mask, axes, keepdims=True) / count
    variance = tf.reduce_sum(tf.square((layers - mean) * mask), axes, keepdims=True) / count
    return (layers - mean) * tf.math.rsqrt(variance + 1e-12)
