"""Keras, after checking that its backend is TensorFlow. The package imports it from here.

Raises:
    InputError: Keras uses another backend.
"""

from __future__ import annotations

import os

from bilm.core.errors import InputError

__all__ = ["keras", "require_eager"]

_NEEDED = "tensorflow"
_ERROR = "bilm needs the TensorFlow backend of Keras; {} is {!r}."
# Checked before Keras is imported, which fails if the chosen backend is not installed.
_chosen = os.environ.get("KERAS_BACKEND") or _NEEDED
if _chosen != _NEEDED:
    raise InputError(_ERROR.format("KERAS_BACKEND", _chosen))

try:
    import keras
except (ImportError, ValueError) as error:  # the backend in keras.json is not installed
    raise InputError(
        f"bilm needs the TensorFlow backend of Keras, which cannot be imported: {error}. If "
        "keras.json sets another backend, KERAS_BACKEND=tensorflow in the environment overrides it."
    ) from error

if keras.backend.backend() != _NEEDED:  # set in keras.json, or by a program that imported it first
    raise InputError(_ERROR.format("the chosen backend", keras.backend.backend()))


def require_eager() -> None:
    """Require TensorFlow 2: no variables can be created in a graph of TensorFlow 1.

    Raises:
        InputError: eager execution is disabled.
    """
    import tensorflow as tf  # after the backend of Keras was checked

    if not (tf.executing_eagerly() or tf.inside_function()):
        raise InputError(
            "bilm needs TensorFlow's eager execution: remove `with tf.Graph()`, "
            "tf.compat.v1.disable_eager_execution() or disable_v2_behavior()."
        )
