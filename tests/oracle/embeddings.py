"""biLM inference: vectors of every layer, and their mix (equation 1 of the paper)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.oracle.encoder import Options, Weights, encode, table_with_padding
from tests.oracle.lstm import State, layers_of, run_direction

States = list[list[State]]  # [direction][layer]


class LMEmbeddings(NamedTuple):
    lm_embeddings: np.ndarray  # (batch, n_layers + 1, time, directions * projection_dim)
    lengths: np.ndarray  # (batch,), without <S> and </S>
    token_embeddings: np.ndarray  # (batch, time + 2, projection_dim)
    mask: np.ndarray  # (batch, time)
    with_boundaries: np.ndarray  # as lm_embeddings, with <S> and </S>: time + 2


def n_directions(options: Options) -> int:
    """Two by default, because inference files do not have the option."""
    return 2 if options.get("bidirectional", True) else 1


def zero_states(options: Options, batch_size: int) -> States:
    lstm = options["lstm"]
    sizes = (lstm["dim"], lstm["projection_dim"])
    return [
        [tuple(np.zeros((batch_size, n)) for n in sizes) for _ in range(lstm.get("n_layers", 1))]
        for _ in range(n_directions(options))
    ]


def reverse_by_length(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Reverse the first lengths[row] positions of each row; the rest is unchanged."""
    result = x.copy()
    for row, length in enumerate(lengths):
        result[row, :length] = x[row, :length][::-1]
    return result


def embed(
    weights: Weights,
    options: Options,
    ids: np.ndarray,
    states: States | None = None,
    table: np.ndarray | None = None,
) -> LMEmbeddings:
    """Vectors of a batch of sentences, each with <S> and </S>.

    Args:
        ids: (batch, time + 2, characters) or, for words, (batch, time + 2); 0 is padding.
        states: initial states, zero if None. The rows of this batch are updated in place, so that
            the next batch continues from them. There may be more rows than in the batch.
        table: word vectors (V, projection_dim) to use instead of characters.
    """
    weights = {name: np.asarray(value, float) for name, value in weights.items()}
    if table is not None:
        options = {key: value for key, value in options.items() if key != "char_cnn"}
    elif "char_cnn" in options:
        table = weights["char_embed"]
    else:
        table = weights["embedding"]
    present = ids.any(axis=-1) if "char_cnn" in options else ids > 0
    lengths = present.sum(axis=1)
    tokens = encode(weights, options, table_with_padding(np.asarray(table, float)), ids)
    tokens = tokens * present[..., None]
    states = zero_states(options, len(ids)) if states is None else states
    outputs = []
    for direction in range(n_directions(options)):
        outputs.append(_one_direction(weights, options, direction, tokens, lengths, states))
    layers = [np.concatenate(layer, axis=-1) for layer in zip(*outputs, strict=True)]
    mask = present[:, 2:]
    whole = np.stack(layers, axis=1) * present[:, None, :, None]
    inner = whole[:, :, 1:-1] * mask[:, None, :, None]
    return LMEmbeddings(inner, lengths - 2, tokens, mask, whole)


def _one_direction(
    weights: Weights,
    options: Options,
    direction: int,
    tokens: np.ndarray,
    lengths: np.ndarray,
    states: States,
) -> list[np.ndarray]:
    """Layer 0 (the tokens) and every LSTM layer, in reading order; writes to `states`."""
    n = len(tokens)
    x = reverse_by_length(tokens, lengths) if direction else tokens
    before = [(c[:n], h[:n]) for c, h in states[direction]]
    layers = layers_of(weights, options, direction)
    outputs, after, _ = run_direction(layers, x, before, lengths)
    for (c, h), (c_new, h_new) in zip(states[direction], after, strict=True):
        c[:n], h[:n] = c_new, h_new
    if direction:
        outputs = [reverse_by_length(output, lengths) for output in outputs]
    return [tokens, *outputs]


def weight_layers(
    lm_embeddings: np.ndarray,
    mask: np.ndarray,
    W: np.ndarray | None,
    gamma: float,
    l2_coef: float = 0.0,
    do_layer_norm: bool = False,
) -> tuple[np.ndarray, float]:
    """gamma * sum_k softmax(W)_k * layer_k, and the regularisation; W None: the top layer."""
    layers = np.moveaxis(np.asarray(lm_embeddings, float), 1, 0)
    if W is None:
        return gamma * layers[-1], 0.0
    W = np.asarray(W, float)
    if do_layer_norm:
        layers = np.stack([_normalise(layer, mask) for layer in layers])
    w = np.exp(W + 1 / len(W))
    w = w / w.sum()
    return gamma * np.tensordot(w, layers, axes=1), l2_coef * float((W**2).sum())


def _normalise(layer: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Normalise by one mean and one variance of all values, without padding."""
    values = layer[mask]
    return (layer - values.mean()) / np.sqrt(values.var() + 1e-12)
