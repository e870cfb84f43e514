"""Functions for TensorFlow that are traced once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def traced_once(function: Callable[..., Any], signature: Sequence[Any]) -> Callable[..., Any]:
    """`function` as a tf.function for all shapes of a signature: a `tf.TensorSpec`, or a structure
    of them, for each argument."""
    # TensorFlow adds up the traces of all functions with the same code and warns after five, as
    # when several models are loaded. A partial has its own count.
    return tf.function(functools.partial(function), input_signature=signature, autograph=False)
