"""Checks of values that a graph may compute only when it runs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bilm.core.errors import InputError
from bilm.core.keras_backend import keras


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of TensorFlow or Keras, and not an array, a column or lists."""
    return tf.is_tensor(value) or isinstance(value, keras.KerasTensor)


def require_axes(value: Any, name: str, example: str) -> None:
    """Require that the number of a tensor's axes is known; `example` is a shape that fits."""
    if tf.is_tensor(value) and value.shape.rank is None:
        raise InputError(
            f"{name} must have a known number of axes: after tf.py_function or tf.numpy_function, "
            f"call {name}.set_shape({example})."
        )


def require_true(value: tf.Tensor, condition: tf.Tensor, message: str) -> tf.Tensor:
    """`value`, if a bool scalar is True; otherwise an error: InputError, or within a graph
    tf.errors.InvalidArgumentError."""
    return _checked(value, condition, message, None)


def require_all(value: tf.Tensor, holds: tf.Tensor, words: tf.Tensor, message: str) -> tf.Tensor:
    """`value`, if `holds`, bool of the shape of `words`, is True everywhere; otherwise an error as
    for `require_true` that lists the first words for which it is False."""
    wrong = tf.boolean_mask(words, ~holds)
    return _checked(value, tf.size(wrong) == 0, message, wrong)


def _checked(
    value: tf.Tensor, condition: tf.Tensor, message: str, words: tf.Tensor | None
) -> tf.Tensor:
    if not tf.executing_eagerly():
        data = [message] if words is None else [f"{message}:", words]
        with tf.control_dependencies([tf.debugging.Assert(condition, data, summarize=5)]):
            return tf.identity(value)
    if not condition:
        first = [] if words is None else words[:5].numpy()
        listed = ", ".join(repr(word.decode("utf-8", "replace")) for word in first)
        raise InputError(f"{message}: {listed}." if listed else f"{message}.")
    return value
