"""A convolution over a word's characters and its maximum over positions."""

from __future__ import annotations

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
    width, dim, n_filters = kernel.shape
    positions = tf.shape(embedded)[1] - width + 1
    windows = tf.concat([embedded[:, k : k + positions] for k in range(width)], axis=-1)
    values = product(windows, tf.reshape(kernel, (width * dim, n_filters)), precision)
    # The maximum commutes with the bias and with both activations, which do not fall.
    strongest = tf.reduce_max(values, axis=1) + bias
    return tf.nn.relu(strongest) if activation == "relu" else tf.tanh(strongest)
