"""Functions for TensorFlow that are traced once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from bilm.core.keras_backend import require_eager


def traced_once(function: Callable[..., Any], signature: Sequence[Any]) -> Callable[..., Any]:
    """`function` as a tf.function for all shapes of a signature: a `tf.TensorSpec`, or a structure
    of them, for each argument."""
    # TensorFlow adds up the traces of all functions with the same code and warns after five, as
    # when several models are loaded. A partial has its own count.
    traced = tf.function(functools.partial(function), input_signature=signature, autograph=False)

    def run(*arguments: Any) -> Any:
        require_eager()  # a fork may have happened since
        return traced(*arguments)

    return run
