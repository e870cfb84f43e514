"""Matmuls in float32 or bfloat16; their results are float32."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import tensorflow as tf

PRECISIONS = ("float32", "bfloat16")


def fast_precision() -> str:
    """ "bfloat16" if the processor multiplies it faster than float32 (AVX-512 BF16 or AMX, as Linux
    reports them), otherwise "float32"."""
    with contextlib.suppress(OSError):
        found = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if re.search(r"\b(avx512_bf16|amx_bf16)\b", found):
            return "bfloat16"
    return "float32"


def matmul(
    a: tf.Tensor, b: tf.Tensor, precision: str, transpose_a: bool = False, transpose_b: bool = False
) -> tf.Tensor:
    """`a` times `b` as float32; with "bfloat16" the factors are rounded to bfloat16 first."""
    if precision == "bfloat16":
        a, b = tf.cast(a, tf.bfloat16), tf.cast(b, tf.bfloat16)
    result = tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return tf.cast(result, tf.float32)
