"""From a batch of the data to what the language model takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bilm.data import Batch, network_ids
from bilm.data.encoding import BOS_CHAR, EOS_CHAR
from bilm.errors import InputError
from bilm.options import N_CHARACTERS, Options


class Feed(NamedTuple):
    """A batch with time first, as NumPy arrays or tensors. D is the number of directions.

    Attributes:
        inputs: int32, the distinct words: characters (distinct, max_word_length) or word ids
            (distinct,), both + 1, so that 0 is nothing.
        words: int32 (D, time, batch), rows of `inputs`.
        targets: int32 (D, time, batch), vocabulary ids.
    """

    inputs: Any
    words: Any
    targets: Any


class Marks(NamedTuple):
    """The inputs with which sentences begin: word ids of `<S>` and, backwards, of `</S>`.

    Neither is an input elsewhere, whichever way a stream reads. None where inputs are characters,
    in which both have a byte of their own.
    """

    bos: int
    eos: int


def sentence_starts(feed: Feed, marks: Marks | None) -> np.ndarray:
    """Where sentences begin: bool (D, time, batch).

    Args:
        feed: the batch.
        marks: of word input; None for characters.
    """
    if marks is None:
        begins = np.isin(feed.inputs[:, 1], network_ids(np.array([BOS_CHAR, EOS_CHAR])))
    else:
        begins = np.isin(feed.inputs, network_ids(np.array([marks.bos, marks.eos])))
    return begins[feed.words]


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
    feed = _of_batch(batch) if isinstance(batch, Batch) else _of_dict(batch, options)
    _check(feed, options)
    steps, rows = feed.targets.shape[1:]
    if shape is not None and shape != (rows, steps):
        raise InputError(
            f"The data's batches are of {rows} rows by {steps} tokens; {shape[0]} by {shape[1]} "
            f"is expected."
        )
    return feed


def _of_batch(batch: Batch) -> Feed:
    if batch.characters is None:
        token_ids = np.stack([stream.token_ids for stream in batch.streams])
        inputs, words = np.unique(token_ids, return_inverse=True)
        words = words.reshape(token_ids.shape)
    else:
        inputs = batch.characters
        words = np.stack([stream.words for stream in batch.streams])
    targets = np.stack([stream.next_token_id for stream in batch.streams])
    return Feed(network_ids(inputs.astype(np.int32)), _time_first(words), _time_first(targets))


def _of_dict(batch: Mapping[str, Any], options: Options) -> Feed:
    suffixes = ("", "_reverse")[: options.n_directions]
    kind = "token_ids" if options.char_cnn is None else "tokens_characters"
    needed = [name + suffix for suffix in suffixes for name in (kind, "next_token_id")]
    missing = [name for name in needed if batch.get(name) is None]
    if missing:
        raise InputError(f"A batch of this model needs {needed}; {missing} are missing.")
    arrays = {name: np.asarray(batch[name]) for name in needed}
    _check_arrays(arrays)
    tokens = np.stack([arrays[kind + suffix] for suffix in suffixes])
    targets = np.stack([arrays["next_token_id" + suffix] for suffix in suffixes])
    if options.char_cnn is None:
        inputs, words = np.unique(tokens, return_inverse=True)
    else:
        inputs, words = np.unique(tokens.reshape(-1, tokens.shape[-1]), axis=0, return_inverse=True)
    words = words.reshape(targets.shape)
    return Feed(network_ids(inputs.astype(np.int32)), _time_first(words), _time_first(targets))


def _check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse arrays that do not belong together."""
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


def _time_first(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 1), np.int32)


def _check(feed: Feed, options: Options) -> None:
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
    for what, ids, low, high in (
        ("input", feed.inputs - 1, 0, highest - 1),
        ("next_token_id", feed.targets, 0, n_tokens - 1),
    ):
        if ids.size and not (low <= ids.min() and ids.max() <= high):
            raise InputError(
                f"The data's {what} ids run from {ids.min()} to {ids.max()}; from {low} to {high} "
                f"is expected (n_tokens_vocab = {n_tokens})."
            )
