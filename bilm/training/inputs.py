"""The inputs of a training step, in NumPy: a batch with time first, and random numbers.

The random numbers are the negative samples, and the sentences that start from zero states. They
follow from the run's seed, the step, and the direction or the row, so a resumed run draws the same
numbers as an uninterrupted one, and workers that share a batch agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError
from bilm.core.language_model import Feed
from bilm.core.lstm import BatchSlice
from bilm.core.options import N_CHARACTERS, Options
from bilm.core.softmax import Negatives
from bilm.data import Batch, network_ids
from bilm.data.encoding import BOS_CHAR, EOS_CHAR

# Seeds of a step's draws end in a number: 0 and 1 are the directions.
_OF_RESETS = 2


class StepInputs(NamedTuple):
    """The inputs of a step besides the model and the states."""

    feed: Feed
    negatives: tuple[Negatives, ...]  # per direction; empty for the full softmax
    dropout_seed: Any  # int64 (2,)
    # Per direction bool (time, batch), True where a sentence starts from zero states; empty if
    # `reset_rate` is 0.
    resets: tuple[Any, ...] = ()


def step_inputs(
    feed: Feed,
    options: Options,
    seeds: tuple[int, int],
    marks: tuple[int, int] | None = None,
    n_replicas: int = 1,
    rows: BatchSlice | None = None,
) -> tuple[StepInputs, ...]:
    """Draw the random numbers of a step, and divide its batch among the replicas of this worker.

    Args:
        seeds: the run's seed and the step.
        marks: see `sentence_starts`.
        rows: position of the rows of `feed` in the global batch; None: the complete batch.
    """
    negatives: tuple[Negatives, ...] = ()
    if options.sample_softmax:
        n_tokens, n_samples = options.n_tokens_vocab or 0, options.n_negative_samples_batch
        negatives = tuple(
            draw_log_uniform(n_tokens, n_samples, (*seeds, d)) for d in range(options.n_directions)
        )
    resets: tuple[np.ndarray, ...] = ()
    if options.reset_rate:
        resets = draw_resets(feed, marks, options.reset_rate, seeds, rows)
    n_rows = feed.targets.shape[2] // n_replicas
    inputs = []
    for k, part in enumerate(divide(feed, n_replicas)):
        of_part = tuple(drawn[:, k * n_rows : (k + 1) * n_rows] for drawn in resets)
        inputs.append(StepInputs(part, negatives, seeds, of_part))
    return tuple(inputs)


# Random numbers


def draw_log_uniform(n_classes: int, n_samples: int, seed: tuple[int, ...]) -> Negatives:
    """Negative samples of the sampled softmax: `n_samples` <= `n_classes` distinct classes.

    P(k) = log((k + 2) / (k + 1)) / log(n_classes + 1), the log-uniform (Zipfian) distribution over
    a vocabulary in descending order of frequency.
    """
    random = np.random.default_rng(seed)
    drawn = np.empty(0, np.int32)
    while True:
        u = random.random(4 * n_samples)
        k = np.exp(u * math.log(n_classes + 1)).astype(np.int32) - 1
        drawn = np.concatenate([drawn, np.minimum(k, n_classes - 1)])
        ids, first = np.unique(drawn, return_index=True)
        if len(ids) >= n_samples:
            last = np.partition(first, n_samples - 1)[n_samples - 1]
            return Negatives(ids[first <= last], int(last) + 1)


def sentence_starts(feed: Feed, marks: tuple[int, int] | None) -> np.ndarray:
    """Where sentences start: bool (D, time, batch).

    `marks` are the word ids of `<S>` and, backwards, of `</S>`; None if inputs are characters,
    where both have a byte of their own.
    """
    first = feed.distinct if marks else feed.distinct[:, 1]
    begins = np.isin(first, network_ids(np.array(marks or (BOS_CHAR, EOS_CHAR))))
    return begins[feed.words]  # (distinct,) -> (D, time, batch)


def draw_resets(
    feed: Feed,
    marks: tuple[int, int] | None,
    rate: float,
    seed: tuple[int, int],
    rows: BatchSlice | None = None,
) -> tuple[np.ndarray, ...]:
    """Draw the sentences that start from zero LSTM states in training, as every text does in use.

    A network that never sees zeros after the start of training may diverge there: docs/states.md.
    Both directions read the same sentences at the same steps of a row, and share the draw.

    `rate` is the probability per sentence; `seed`, the run's seed and the step, and the row in the
    global batch determine the draw (`rows` is the position there; None: the complete batch).
    Returns per direction bool (time, batch), True at the first input of such a sentence.
    """
    starts = sentence_starts(feed, marks)
    n_steps, n_rows = starts.shape[1:]
    first, total = (0, n_rows) if rows is None else rows
    random = np.random.default_rng((*seed, _OF_RESETS))
    drawn = random.random((n_steps, total)) < rate
    return tuple(starts & drawn[:, first : first + n_rows])


# Batches


def divide(feed: Feed, n_parts: int) -> list[Feed]:
    """The rows of a batch in equal parts, each with its own distinct words."""
    if n_parts == 1:
        return [feed]
    parts = []
    words, targets = (np.split(array, n_parts, axis=2) for array in (feed.words, feed.targets))
    for of_part, target in zip(words, targets, strict=True):
        distinct, index = np.unique(of_part, return_inverse=True)
        index = index.reshape(of_part.shape).astype(np.int32)
        parts.append(Feed(feed.distinct[distinct], index, np.ascontiguousarray(target)))
    return parts


def make_feed(
    batch: Batch | Mapping[str, Any], options: Options, shape: tuple[int, int] | None = None
) -> Feed:
    """Turn a `Batch`, or one of the original's dicts, into a `Feed` that fits the options.

    `shape` is the required number of rows and steps; None allows any.
    """
    inputs = None
    if not isinstance(batch, Batch):
        tokens, targets = _arrays(batch, options)
    else:
        inputs, kind = batch.characters, "token_ids" if batch.characters is None else "words"
        tokens = np.stack([getattr(stream, kind) for stream in batch.streams])
        targets = np.stack([stream.next_token_id for stream in batch.streams])
    if inputs is None:
        # (D, batch, time, ...) -> (D * batch * time, ...)
        flat = tokens.reshape(-1, *tokens.shape[3:])
        inputs, tokens = np.unique(flat, axis=0 if flat.ndim > 1 else None, return_inverse=True)
    words = tokens.reshape(targets.shape)
    feed = Feed(network_ids(inputs.astype(np.int32)), _time_first(words), _time_first(targets))
    _require_fit(feed, options, shape)
    return feed


def _arrays(batch: Mapping[str, Any], options: Options) -> tuple[np.ndarray, np.ndarray]:
    """Words (D, batch, time, ...) and targets (D, batch, time) from one of the original's dicts."""
    suffixes = ("", "_reverse")[: options.n_directions]
    kind = "token_ids" if options.char_cnn is None else "tokens_characters"
    needed = [name + suffix for suffix in suffixes for name in (kind, "next_token_id")]
    missing = [name for name in needed if batch.get(name) is None]
    if missing:
        raise InputError(f"A batch of this model needs {needed}; {missing} are missing.")
    arrays = {name: np.asarray(batch[name]) for name in needed}
    shape = arrays["next_token_id"].shape
    for name, array in arrays.items():
        if array.dtype.kind not in "iu":
            raise InputError(f"A batch's {name} must be integers, got {array.dtype}.")
        if array.ndim != 2 + name.startswith("tokens_characters") or array.shape[:2] != shape:
            raise InputError(
                f"The arrays of a batch do not fit together: {name} has shape {array.shape}, "
                f"next_token_id {shape}."
            )
    words, targets = (np.stack([arrays[k + s] for s in suffixes]) for k in (kind, "next_token_id"))
    return words, targets


def _time_first(x: np.ndarray) -> np.ndarray:
    # (D, batch, time) -> (D, time, batch)
    return np.ascontiguousarray(x.transpose(0, 2, 1), np.int32)


def _require_fit(feed: Feed, options: Options, shape: tuple[int, int] | None) -> None:
    steps, rows = feed.targets.shape[1:]
    n_rows, n_steps = shape or (rows, steps)
    n_characters = feed.distinct.shape[1] if feed.distinct.ndim == 2 else None
    for what, needed, given in (
        ("directions", options.n_directions, len(feed.words)),
        ("max_characters_per_token", options.max_word_length, n_characters),
        ("rows per batch", n_rows, rows),
        ("tokens per row", n_steps, steps),
    ):
        if given != needed:
            raise InputError(f"The data must have {what} = {needed}, got {given}.")
    n_tokens = options.n_tokens_vocab or 0
    n_inputs = N_CHARACTERS if options.char_cnn else n_tokens
    for what, ids, n in (
        ("input", feed.distinct - 1, n_inputs),
        ("next_token_id", feed.targets, n_tokens),
    ):
        if ids.size and not (ids.min() >= 0 and ids.max() < n):
            raise InputError(
                f"The data's {what} ids must be from 0 to {n - 1} (n_tokens_vocab = {n_tokens}), "
                f"got ids from {ids.min()} to {ids.max()}."
            )
