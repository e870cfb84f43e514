"""The operations that a biLM cannot avoid, which set the ceiling of its speed.

Only matmuls are counted, a multiplication and an addition as two operations; element-wise work is
ignored. The counts follow Peters et al. (2018), sections 3.1 to 3.3:

- each distinct word passes through the token encoder once, because the encoder ignores context;
- a convolution covers the windows that touch a character; windows of padding only are all equal;
- each input passes through every LSTM layer of each direction; in inference, the matmul of the
  first layer with a word's vector is needed only once per distinct word;
- each prediction in training needs the logits of its target and of the sampled words;
- training costs three times the forward pass: each matmul of the forward pass needs two in the
  backward pass, for the gradients of its input and of its weights.
"""

from __future__ import annotations

import numpy as np

from bilm import Options


def lstm_operations(options: Options) -> int:
    """Operations for one input in all LSTM layers of one direction."""
    lstm = options.lstm
    products = 2 * lstm.projection_dim * 4 * lstm.dim  # [input; h] W_0
    if lstm.has_projection:
        products += lstm.dim * lstm.projection_dim
    return 2 * products * lstm.n_layers


def softmax_operations(options: Options) -> int:
    """Operations for one prediction with the sampled softmax."""
    return 2 * options.lstm.projection_dim * (options.n_negative_samples_batch + 1)


def encoder_operations(options: Options, lengths: np.ndarray) -> int:
    """Operations of the token encoder, which encodes each word once; 0 with word input.

    Args:
        options: model options.
        lengths: integers (words,), characters per word, including its begin and end characters.
    """
    cnn = options.char_cnn
    if cnn is None:
        return 0
    total = 0
    for width, number in cnn.filters:
        windows = np.minimum(lengths, cnn.max_characters_per_token - width + 1)
        total += int(windows.sum()) * width * cnn.embedding_dim * number
    highway = 2 * cnn.n_filters**2 * cnn.n_highway
    is_projected = cnn.n_filters != options.lstm.projection_dim
    projection = cnn.n_filters * options.lstm.projection_dim * is_projected
    return 2 * (total + len(lengths) * (highway + projection))


def training_operations(options: Options, lengths: np.ndarray) -> int:
    """Operations of one training step.

    Args:
        options: training options.
        lengths: characters of each distinct word in the batch, over both directions.
    """
    inputs = options.batch_size * options.unroll_steps * options.n_directions
    forward = inputs * (lstm_operations(options) + softmax_operations(options))
    return 3 * (forward + encoder_operations(options, lengths))


def embedding_operations(options: Options, n_tokens: int, lengths: np.ndarray) -> int:
    """Operations to compute the vectors of a text.

    Args:
        options: model options.
        n_tokens: tokens in the text, without <S> and </S>: the states after them are the same for
            all sentences.
        lengths: characters of each distinct word, including <S> and </S>.
    """
    # A word's contribution to the first layer's pre-activations is the same at every position.
    repeated = max(n_tokens - len(lengths), 0)
    of_repeated = 2 * options.lstm.projection_dim * 4 * options.lstm.dim
    lstm = n_tokens * lstm_operations(options) - repeated * of_repeated
    return options.n_directions * lstm + encoder_operations(options, lengths)
