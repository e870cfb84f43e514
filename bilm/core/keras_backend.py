"""Keras, after checking that its backend is TensorFlow. The package imports it from here."""

from __future__ import annotations

import os

from bilm.core.errors import InputError

__all__ = ["keras", "require_eager"]

_ERROR = (
    "bilm needs the TensorFlow backend of Keras, {}; KERAS_BACKEND=tensorflow in the environment "
    "chooses it."
)
try:
    import keras
except (ImportError, ValueError) as error:  # the chosen backend is not installed
    raise InputError(_ERROR.format(f"and Keras cannot be imported: {error}")) from error
if keras.backend.backend() != "tensorflow":
    raise InputError(_ERROR.format(f"got {keras.backend.backend()}"))


_users: list[int] = []  # the process that uses TensorFlow


def require_eager() -> None:
    """Require TensorFlow 2, because a graph of TensorFlow 1 can neither create nor read its
    variables; and the process that first called this, because TensorFlow hangs after a fork."""
    import tensorflow as tf  # after the backend of Keras was checked

    if not _users:
        _users.append(os.getpid())
    if os.getpid() not in _users:
        raise InputError(
            "TensorFlow was used before this process was forked, and hangs here: start processes "
            "with multiprocessing.get_context('spawn')."
        )
    if not (tf.executing_eagerly() or tf.inside_function()):
        raise InputError(
            "bilm needs TensorFlow's eager execution: remove `with tf.Graph()`, "
            "tf.compat.v1.disable_eager_execution() or disable_v2_behavior()."
        )
