"""Matmuls in float32 or bfloat16; their results are float32."""

from __future__ import annotations

import tensorflow as tf

PRECISIONS = ("float32", "bfloat16")


def matmul(
    a: tf.Tensor, b: tf.Tensor, precision: str, transpose_a: bool = False, transpose_b: bool = False
) -> tf.Tensor:
    """`a` times `b` as float32; with "bfloat16" the factors are rounded to bfloat16 first."""
    if precision == "bfloat16":
        a, b = tf.cast(a, tf.bfloat16), tf.cast(b, tf.bfloat16)
    result = tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return tf.cast(result, tf.float32)
