"""The vectors that a job writes: layers, pooling, dtype."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError, one_of, require, shown


class Wanted(NamedTuple):
    """Layers, pooling over the tokens of a sentence, and dtype of vectors, as JSON has them."""

    layers: str | int | list[float]
    pooling: str | None
    dtype: str

    @classmethod
    def of(cls, layers: Any, pooling: Any, dtype: Any) -> Wanted:
        """Check the arguments; `layers` is as for `ELMo.encode`, but not a `ScalarMix`."""
        require(one_of((None, "mean", "max")), pooling=pooling)
        require(one_of(("float32", "float16")), dtype=dtype)
        if isinstance(layers, int | np.integer) and not isinstance(layers, bool):
            layers = int(layers)
        elif not isinstance(layers, str):
            is_list = isinstance(layers, Sequence | np.ndarray)
            if not is_list or not all(isinstance(weight, Real) for weight in layers):
                raise InputError(
                    "layers must be 'average', 'top', 'all', 'sum', a number or a list of weights, "
                    f"got {shown(layers)}."
                )
            layers = [float(weight) for weight in layers]
        return cls(layers, pooling, dtype)

    def shape(self, n_layers: int, dim: int) -> list[int | None]:
        """The shape of a sentence's vectors, (layers, tokens, dim) or a part of it; None stands for
        the number of tokens."""
        from bilm.use.layer_choice import LayerChoice  # which imports TensorFlow

        all_layers = [n_layers] if LayerChoice(self.layers, n_layers).keeps_layers else []
        return [*all_layers, *([] if self.pooling else [None]), dim]
