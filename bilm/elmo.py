"""ELMo vectors from a language model's layers: Peters et al. (2018), section 3.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bilm.errors import InputError
from bilm.layers import ScalarMix


def weight_layers(
    name: str,
    bilm_ops: Mapping[str, Any],
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
    *,
    mix: ScalarMix | None = None,
) -> dict[str, Any]:
    """Weigh the layers of a language model with trained weights.

    Args:
        name: prefix of the variables `{name}_ELMo_W` (n_layers,) and `{name}_ELMo_gamma` (1,).
        bilm_ops: what `BidirectionalLanguageModel` returned: tensors, or Keras tensors.
        l2_coef: adds l2_coef * sum(W ** 2) as regularisation.
        use_top_only: gamma times the top layer, without W.
        do_layer_norm: normalise each layer before the sum, over the batch's unmasked values.
        mix: a 'mix' that an earlier call returned, to share its variables; `name` and the options
            are then its own. Needed inside `tf.function`, where no variable can be made anew.

    Returns a dict of
        weighted_op: float32 (batch, time, dim), softmax(W) over the layers, times gamma.
        regularization_op: float32 scalar. On Keras inputs it is among the losses of the model
            already.
        mix: the `ScalarMix` layer that holds the variables.

    Raises:
        InputError: `bilm_ops` has no 'lm_embeddings' or 'mask', `mix` is for another number of
            layers, or is missing inside `tf.function`.
    """
    missing = [key for key in ("lm_embeddings", "mask") if key not in bilm_ops]
    if missing:
        raise InputError(
            f"weight_layers: bilm_ops needs {' and '.join(map(repr, missing))}; it has "
            f"{sorted(bilm_ops)}."
        )
    lm_embeddings, mask = bilm_ops["lm_embeddings"], bilm_ops["mask"]
    if mix is None:
        if tf.inside_function():
            raise InputError(
                "weight_layers: inside tf.function, or in the call of a Keras layer, mix= is "
                "needed: a 'mix' that was returned outside, or a ScalarMix that was made there."
            )
        mix = ScalarMix(
            lm_embeddings.shape[1],
            l2_coef=l2_coef,
            use_top_only=use_top_only,
            do_layer_norm=do_layer_norm,
            return_regularization=True,
            name=name,
        )
    mixed = mix(lm_embeddings, mask)
    weighted, regularization = mixed if mix.return_regularization else (mixed, mix.regularization())
    return {"weighted_op": weighted, "regularization_op": regularization, "mix": mix}
