"""Keras, after checking that its backend is TensorFlow. The package imports it from here.

Raises:
    InputError: another backend of Keras was chosen.
"""

from __future__ import annotations

import os

from bilm.core.errors import InputError

__all__ = ["keras", "require_eager"]

_NEEDED = "tensorflow"
_ERROR = "bilm needs the TensorFlow backend of Keras; {} is {!r}."
# By its name alone: another backend may not even be installed, and Keras then fails to import.
_chosen = os.environ.get("KERAS_BACKEND") or _NEEDED
if _chosen != _NEEDED:
    raise InputError(_ERROR.format("KERAS_BACKEND", _chosen))

try:
    import keras
except (ImportError, ValueError) as error:  # a backend of keras.json that is not installed
    raise InputError(
        f"bilm needs the TensorFlow backend of Keras, which cannot be imported: {error}. Another "
        "one may be chosen in keras.json; KERAS_BACKEND=tensorflow in the environment goes first."
    ) from error

if keras.backend.backend() != _NEEDED:  # as keras.json says, or a program that imported it first
    raise InputError(_ERROR.format("the one chosen", keras.backend.backend()))


def require_eager() -> None:
    """Check that variables can be made: in TensorFlow 2, and not in a graph of TensorFlow 1.

    Raises:
        InputError: eager execution was disabled.
    """
    import tensorflow as tf  # not before the backend of Keras is known

    if not (tf.executing_eagerly() or tf.inside_function()):
        raise InputError(
            "bilm needs TensorFlow's eager execution: remove `with tf.Graph()`, "
            "tf.compat.v1.disable_eager_execution() or disable_v2_behavior()."
        )
