"""Keras and TensorFlow, as the package uses them: functions, matmuls, initial values, checks.

The package imports Keras from here, after checking that its backend is TensorFlow.
"""

import functools
import os
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from bilm.core.errors import InputError

_ERROR = (
    "bilm needs the TensorFlow backend of Keras, {}; KERAS_BACKEND=tensorflow in the environment "
    "chooses it."
)
try:
    import keras as keras
except (ImportError, ValueError) as error:  # the chosen backend is not installed
    raise InputError(_ERROR.format(f"and Keras cannot be imported: {error}")) from error
if keras.backend.backend() != "tensorflow":
    raise InputError(_ERROR.format(f"got {keras.backend.backend()}"))

import tensorflow as tf  # noqa: E402  after the backend of Keras was checked

PRECISIONS = ("float32", "bfloat16")
_users: list[int] = []  # the process that uses TensorFlow


def require_eager() -> None:
    """Require TensorFlow 2, because a graph of TensorFlow 1 can neither create nor read its
    variables; and the process that first called this, because TensorFlow hangs after a fork."""
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


def matmul(
    a: tf.Tensor, b: tf.Tensor, precision: str, transpose_a: bool = False, transpose_b: bool = False
) -> tf.Tensor:
    """`a` times `b` as float32; with "bfloat16" the factors are rounded to bfloat16 first."""
    if precision == "bfloat16":
        a, b = tf.cast(a, tf.bfloat16), tf.cast(b, tf.bfloat16)
    result = tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return tf.cast(result, tf.float32)


# Initial values of the variables: the distributions of the original program


def uniform(bound: float, seed: int | None, name: str) -> keras.initializers.Initializer:
    """Uniform between -bound and +bound."""
    return _seeded(lambda seed: keras.initializers.RandomUniform(-bound, bound, seed), seed, name)


def normal(deviation: float, seed: int | None, name: str) -> keras.initializers.Initializer:
    """Normal with mean 0."""
    return _seeded(lambda seed: keras.initializers.RandomNormal(0.0, deviation, seed), seed, name)


def glorot(seed: int | None, name: str) -> keras.initializers.Initializer:
    """Glorot and Bengio (2010), uniform."""
    return _seeded(keras.initializers.GlorotUniform, seed, name)


def _seeded(make: Callable[[int], Any], seed: int | None, name: str) -> Any:
    """An initializer with its own seed for each variable, so that values do not depend on the order
    of creation. Without a seed, zeros: the variable is about to be loaded."""
    if seed is None:
        return keras.initializers.Zeros()
    return make(zlib.crc32(f"{seed} {name}".encode()))


# Checks of values that a graph may compute only when it runs


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
