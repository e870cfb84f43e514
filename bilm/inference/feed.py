"""Batches as the network's inputs, in NumPy: time first, each distinct word once."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bilm.core.errors import InputError
from bilm.core.language_model import Feed
from bilm.core.options import N_CHARACTERS, Options
from bilm.data import Batch, network_ids


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
        n_axes = 2 + name.startswith("tokens_characters")
        if array.dtype.kind not in "iu" or array.ndim != n_axes or array.shape[:2] != shape:
            raise InputError(
                f"A batch's {name} must be integers of {n_axes} axes, the first ones {shape} as "
                f"those of next_token_id, got {array.dtype} of shape {array.shape}."
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
    for what, needed, actual in (
        ("directions", options.n_directions, len(feed.words)),
        ("max_characters_per_token", options.max_word_length, n_characters),
        ("rows per batch", n_rows, rows),
        ("tokens per row", n_steps, steps),
    ):
        if actual != needed:
            raise InputError(f"The data must have {what} = {needed}, got {actual}.")
    n_words = options.n_tokens_vocab or 0
    words = f" (n_tokens_vocab = {n_words})"
    inputs = (N_CHARACTERS, "") if options.char_cnn else (n_words, words)
    for what, ids, (n, why) in (
        ("input", feed.distinct - 1, inputs),
        ("next_token_id", feed.targets, (n_words, words)),
    ):
        if ids.size and not (ids.min() >= 0 and ids.max() < n):
            raise InputError(
                f"The data's {what} ids must be from 0 to {n - 1}{why}, "
                f"got ids from {ids.min()} to {ids.max()}."
            )
