"""The yardstick: the speed of a matrix product of TensorFlow on this machine."""

from __future__ import annotations

import statistics
import time

SIZE = 2048
_REPEATS = 9


def measure_product(precision: str = "float32") -> float:
    """GFLOP/s of a product of two square matrices of `SIZE` rows: the median of several."""
    import tensorflow as tf

    dtype = tf.as_dtype(precision)
    # Values of usual size: products of zeros or of infinities may take another time.
    a, b = (tf.cast(tf.random.stateless_normal((SIZE, SIZE), (0, k)), dtype) for k in (1, 2))
    seconds = []
    for _ in range(2 + _REPEATS):
        start = time.perf_counter()
        # Taking a number out waits for a device that runs ahead of the program.
        tf.matmul(a, b)[0, 0].numpy()
        seconds.append(time.perf_counter() - start)
    return 2 * SIZE**3 / statistics.median(seconds[2:]) / 1e9
