"""Matrix products in the chosen precision; everything around them stays float32."""

from __future__ import annotations

import tensorflow as tf

from bilm.core.errors import InputError

PRECISIONS = ("float32", "bfloat16")


def check_precision(precision: str) -> str:
    """Return `precision` if it is one of "float32" and "bfloat16".

    Raises:
        InputError: it is not.
    """
    if precision not in PRECISIONS:
        raise InputError(
            f"precision: one of {', '.join(PRECISIONS)} is expected, not {precision!r}."
        )
    return precision


def product(
    a: tf.Tensor, b: tf.Tensor, precision: str, transpose_a: bool = False, transpose_b: bool = False
) -> tf.Tensor:
    """`a` times `b` as float32; with "bfloat16" the factors are rounded to bfloat16 first."""
    if precision == "bfloat16":
        a, b = tf.cast(a, tf.bfloat16), tf.cast(b, tf.bfloat16)
    result = tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return tf.cast(result, tf.float32)
