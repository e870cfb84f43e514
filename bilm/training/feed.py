"""From a batch of the data to the arrays that a step of the language model takes."""

from __future__ import annotations

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
    """Turn a `Batch`, or one of the original's dicts, into a `Feed`.

    Args:
        batch: of the data.
        options: what it has to fit.
        shape: rows and steps that were asked for; None takes any.

    Raises:
        InputError: the batch does not fit the options: an array is missing, has another shape,
            or ids out of range.
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
    _check(feed, options, shape)
    return feed


def _arrays(batch: Mapping[str, Any], options: Options) -> tuple[np.ndarray, np.ndarray]:
    """Words (D, batch, time, ...) and targets (D, batch, time) of one of the original's dicts."""
    suffixes = ("", "_reverse")[: options.n_directions]
    kind = "token_ids" if options.char_cnn is None else "tokens_characters"
    needed = [name + suffix for suffix in suffixes for name in (kind, "next_token_id")]
    missing = [name for name in needed if batch.get(name) is None]
    if missing:
        raise InputError(f"A batch of this model needs {needed}; {missing} are missing.")
    arrays = {name: np.asarray(batch[name]) for name in needed}
    rows_and_steps = arrays["next_token_id"].shape
    for name, array in arrays.items():
        if array.dtype.kind not in "iu":
            raise InputError(f"A batch's {name}: integers are expected, not {array.dtype}.")
        n_axes = 3 if name.startswith("tokens_characters") else 2
        if array.ndim != n_axes or array.shape[:2] != rows_and_steps:
            raise InputError(
                f"The arrays of a batch do not fit together: {name} has shape {array.shape}, "
                f"next_token_id {rows_and_steps}."
            )
    of_kind = [np.stack([arrays[name + s] for s in suffixes]) for name in (kind, "next_token_id")]
    return of_kind[0], of_kind[1]


def _time_first(x: np.ndarray) -> np.ndarray:
    # (D, batch, time) -> (D, time, batch)
    return np.ascontiguousarray(x.transpose(0, 2, 1), np.int32)


def _check(feed: Feed, options: Options, shape: tuple[int, int] | None) -> None:
    if len(feed.words) != options.n_directions:
        raise InputError(
            f"The options ask for {options.n_directions} directions; the data has "
            f"{len(feed.words)}."
        )
    if feed.inputs.shape[1:] != (
        () if options.max_word_length is None else (options.max_word_length,)
    ):
        length = feed.inputs.shape[1] if feed.inputs.ndim == 2 else "no"
        raise InputError(
            f"The options ask for max_characters_per_token = {options.max_word_length}; the data "
            f"has {length} characters a word."
        )
    n_tokens = options.n_tokens_vocab or 0
    highest = N_CHARACTERS if options.char_cnn else n_tokens
    for what, ids, n in (
        ("input", feed.inputs - 1, highest),
        ("next_token_id", feed.targets, n_tokens),
    ):
        if ids.size and not (ids.min() >= 0 and ids.max() < n):
            raise InputError(
                f"The data's {what} ids run from {ids.min()} to {ids.max()}; from 0 to {n - 1} "
                f"is expected (n_tokens_vocab = {n_tokens})."
            )
    steps, rows = feed.targets.shape[1:]
    if shape is not None and shape != (rows, steps):
        raise InputError(
            f"The data's batches are of {rows} rows by {steps} tokens; {shape[0]} by {shape[1]} "
            f"is expected."
        )
