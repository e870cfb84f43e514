"""A training step: the loss of both directions, its gradients, clipping, and Adagrad.

The loss of a direction is the mean over the batch's positions, in nats; the total is the mean of
the directions. Gradients are of unroll_steps * loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tests.oracle.embeddings import States, zero_states
from tests.oracle.encoder import Options, Weights, encode, encode_gradient
from tests.oracle.lstm import layers_of, run_direction, run_direction_gradient
from tests.oracle.softmax import (
    full_softmax,
    full_softmax_gradient,
    sampled_softmax,
    sampled_softmax_gradient,
)

Batch = Mapping[str, np.ndarray]
Samples = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids, expected counts of targets and samples


def _float64(values: Weights) -> Weights:
    return {name: np.array(value, np.float64) for name, value in values.items()}


def _add(total: Weights, more: Weights, factor: float) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + factor * value


def loss_and_gradients(
    weights: Weights,
    options: Options,
    batch: Batch,
    states: States,
    samples: list[Samples] | None = None,
    resets: np.ndarray | None = None,
) -> tuple[float, Weights, States]:
    """Loss, gradients of unroll_steps * loss (dense), and the states after the batch.

    Args:
        weights: weights by HDF5 name, and softmax/W and softmax/b; no softmax/W if it is tied.
        batch: the original's dict, with training ids (not plus 1, as in inference).
        states: states of both directions before the batch; they get no gradient.
        samples: one triple per direction for the sampled softmax; None: full softmax.
        resets: bool (batch, time), where the state is set to zero before the input; None: nowhere.
    """
    weights = _float64(weights)
    names = (
        ("char_embed", "tokens_characters") if "char_cnn" in options else ("embedding", "token_ids")
    )
    table = weights[names[0]]
    tied = options.get("share_embedding_softmax", False)
    softmax_name = "embedding" if tied else "softmax/W"
    gradients: Weights = {}
    losses, after = [], []
    for direction, suffix in enumerate(("", "_reverse")[: len(states)]):
        ids = batch[names[1] + suffix]
        layers = layers_of(weights, options, direction)
        tokens = encode(weights, options, table, ids)
        outputs, state, traces = run_direction(layers, tokens, states[direction], resets=resets)
        places = batch["next_token_id" + suffix].reshape(-1)
        hidden = outputs[-1].reshape(len(places), -1)
        arguments = (hidden, places, weights[softmax_name], weights["softmax/b"])
        if samples is None:
            loss, d = full_softmax(*arguments), full_softmax_gradient(*arguments)
        else:
            drawn = samples[direction]
            loss = sampled_softmax(*arguments, *drawn)
            d = sampled_softmax_gradient(*arguments, *drawn)
        losses.append(loss.mean())
        after.append(state)
        factor = ids.shape[1] / len(states)
        _add(gradients, {softmax_name: d[1], "softmax/b": d[2]}, factor)
        d_tokens, inner = run_direction_gradient(
            layers, traces, d[0].reshape(outputs[-1].shape), resets
        )
        _add(gradients, inner, factor)
        _add(gradients, encode_gradient(weights, options, table, ids, d_tokens), factor)
    return float(np.mean(losses)), gradients, after


def clip_by_global_norm(gradients: Weights, limit: float | None) -> Weights:
    """Scale all gradients by one factor, so that their global norm is at most `limit`."""
    norm = np.sqrt(sum((value**2).sum() for value in gradients.values()))
    if limit is None or norm <= limit:
        return gradients
    return {name: value * (limit / norm) for name, value in gradients.items()}


def adagrad(
    weights: Weights, accumulators: Weights, gradients: Weights, learning_rate: float = 0.2
) -> tuple[Weights, Weights]:
    """One Adagrad step without epsilon, as in TF1; accumulators start at 1.0."""
    accumulators = {name: a + gradients[name] ** 2 for name, a in accumulators.items()}
    weights = {
        name: value - learning_rate * gradients[name] / np.sqrt(accumulators[name])
        for name, value in weights.items()
    }
    return weights, accumulators


def replay(
    weights: Weights, accumulators: Weights, options: Options, batches: Iterable[Batch]
) -> tuple[list[float], Weights, Weights]:
    """exp(loss) of every batch before its update, and the final weights and accumulators."""
    weights, accumulators = _float64(weights), _float64(accumulators)
    states = None
    perplexities = []
    for batch in batches:
        if states is None:
            one_way = {"bidirectional": options.get("bidirectional", False)}
            states = zero_states(options | one_way, len(batch["token_ids"]))
        loss, gradients, states = loss_and_gradients(weights, options, batch, states)
        perplexities.append(float(np.exp(loss)))
        gradients = clip_by_global_norm(gradients, options.get("all_clip_norm_val"))
        rate = options.get("learning_rate", 0.2)
        weights, accumulators = adagrad(weights, accumulators, gradients, rate)
    return perplexities, weights, accumulators


def sentence_losses(
    weights: Weights,
    options: Options,
    sentences: Iterable[tuple[np.ndarray, np.ndarray]],
    direction: int,
) -> np.ndarray:
    """-log p in nats of every token of sentences that are scored one by one.

    Args:
        sentences: pairs of input ids, (n + 2,) for words or (n + 2, characters), and target
            vocabulary ids (n + 2,); both with <S> and </S>.
        direction: 0 reads forward, from <S> to </S>, and 1 backward.
    """
    weights = _float64(weights)
    layers = layers_of(weights, options, direction)
    table = weights["char_embed" if "char_cnn" in options else "embedding"]
    tied = options.get("share_embedding_softmax", False)
    W = weights["embedding" if tied else "softmax/W"]
    losses = []
    for read, predicted in sentences:
        if direction:
            read, predicted = read[::-1], predicted[::-1]
        tokens = encode(weights, options, table, read[None, :-1])
        outputs, _, _ = run_direction(layers, tokens, zero_states(options, 1)[direction])
        losses.append(full_softmax(outputs[-1][0], predicted[1:], W, weights["softmax/b"]))
    return np.concatenate(losses)
