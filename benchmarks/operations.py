"""The operations that a biLM cannot do without: the ceiling of its speed.

Only products of matrices count, a multiplication and an addition being two operations; what is
done element by element is left out. The counts follow Peters et al. (2018), sections 3.1 to 3.3:

- every distinct word goes through the token encoder once, since the encoder knows no context;
- a convolution has to see the windows that touch a character, not those wholly in padding, which
  are all alike;
- every input goes through each LSTM layer of each direction, but for the products of the first
  layer with a word's own vector, which in use are the same wherever the word stands;
- every prediction in training needs the logits of its target and of the sampled words;
- training is three times the forward pass: one product forward is two backward, for the gradient
  of its input and of its weights.
"""

from __future__ import annotations

import numpy as np

from bilm import Options


def lstm_operations(options: Options) -> int:
    """Operations for one input in all layers of one direction."""
    lstm = options.lstm
    products = 2 * lstm.projection_dim * 4 * lstm.dim  # [input; h] W_0
    if lstm.has_projection:
        products += lstm.dim * lstm.projection_dim
    return 2 * products * lstm.n_layers


def softmax_operations(options: Options) -> int:
    """Of one prediction with the sampled softmax."""
    return 2 * options.lstm.projection_dim * (options.n_negative_samples_batch + 1)


def encoder_operations(options: Options, lengths: np.ndarray) -> int:
    """Of the token encoder on words, each of them once.

    Args:
        options: of a model with character input.
        lengths: integers (words,), characters of each word, its begin and end marks included.
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
    """Of one step of training on a batch.

    Args:
        options: training options.
        lengths: characters of the batch's distinct words, both directions taken together.
    """
    inputs = options.batch_size * options.unroll_steps * options.n_directions
    forward = inputs * (lstm_operations(options) + softmax_operations(options))
    return 3 * (forward + encoder_operations(options, lengths))


def embedding_operations(options: Options, n_tokens: int, lengths: np.ndarray) -> int:
    """Of the vectors of a text.

    Args:
        options: of the model.
        n_tokens: words of the text. The marks for begin and end of sentence are left out: the
            states after them are the same for all sentences.
        lengths: characters of the text's distinct words, the two marks among them.
    """
    # A word's first-layer pre-activations `x @ W_x` are the same at every position.
    repeated = max(n_tokens - len(lengths), 0)
    of_repeated = 2 * options.lstm.projection_dim * 4 * options.lstm.dim
    lstm = n_tokens * lstm_operations(options) - repeated * of_repeated
    return options.n_directions * lstm + encoder_operations(options, lengths)
