"""A convolution over a word's characters and its maximum over positions."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bilm.layers.products import product


def max_convolution(
    embedded: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, activation: str, precision: str
) -> tf.Tensor:
    """One filter width: activation(max over positions of (window . kernel) + bias).

    Args:
        embedded: (n, characters, char_dim) float32.
        kernel: (width, char_dim, n_filters).
        bias: (n_filters,).
        activation: "relu" or "tanh".
        precision: "float32" or "bfloat16".

    Returns:
        (n, n_filters) float32.
    """
    # The maximum commutes with the bias and with both activations, which do not fall.
    strongest = _strongest(embedded, kernel, precision) + bias
    return tf.nn.relu(strongest) if activation == "relu" else tf.tanh(strongest)


def _strongest(embedded: tf.Tensor, kernel: tf.Tensor, precision: str) -> tf.Tensor:
    """max over positions of (window . kernel), as one product over all windows.

    The gradient of a maximum goes to the window that gave it, in equal parts where several did.
    """
    width, dim, n_filters = kernel.shape
    positions = tf.shape(embedded)[1] - width + 1

    @tf.custom_gradient
    def strongest(embedded: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Any]:
        windows = tf.concat([embedded[:, k : k + positions] for k in range(width)], axis=-1)
        windows = tf.reshape(windows, (-1, width * dim))
        flat = tf.reshape(kernel, (width * dim, n_filters))
        values = tf.reshape(product(windows, flat, precision), (-1, positions, n_filters))
        highest = tf.reduce_max(values, axis=1)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            share = tf.cast(values == highest[:, tf.newaxis], tf.float32)
            share *= (upstream / tf.reduce_sum(share, axis=1))[:, tf.newaxis]
            share = tf.reshape(share, (-1, n_filters))
            d_kernel = product(windows, share, precision, transpose_a=True)
            d_windows = product(share, flat, precision, transpose_b=True)
            d_windows = tf.reshape(d_windows, (-1, positions, width, dim))
            d_embedded = tf.add_n(
                [
                    tf.pad(d_windows[:, :, k], [[0, 0], [k, width - 1 - k], [0, 0]])
                    for k in range(width)
                ]
            )
            return d_embedded, tf.reshape(d_kernel, (width, dim, n_filters))

        return highest, gradient

    return strongest(embedded, kernel)
