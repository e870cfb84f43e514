"""The inputs of a training step, in NumPy: a batch with time first, each distinct word once, and
random numbers.

The random numbers choose the negative samples, and the sentences that start from zero states. They
depend only on the run's seed, the step, and the direction or row, so a resumed run draws the same
numbers as an uninterrupted run, and so do all workers of a batch.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError
from bilm.core.language_model import Feed
from bilm.core.lstm import BatchSlice
from bilm.core.options import N_CHARACTERS, Options
from bilm.core.softmax import Negatives
from bilm.data.batch import Batch
from bilm.data.encoding import BOS_CHAR, EOS_CHAR, network_ids
from bilm.data.vocabulary import Vocabulary


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


# Last number of the seed for resets; 0 and 1 are the directions of the negative samples.
_RESETS = 2


class StepInputs(NamedTuple):
    """The inputs of a step, without the states."""

    feed: Feed
    negatives: tuple[Negatives, ...]  # per direction; empty for the full softmax
    dropout_seed: Any  # int64 (2,)
    # Per direction bool (time, batch), True where a sentence starts from zero states; empty if
    # `reset_rate` is 0.
    resets: tuple[Any, ...] = ()


def sentence_marks(options: Options, vocabulary: Vocabulary | None) -> tuple[int, int] | None:
    """The ids of `<S>` and `</S>` if sentence starts must be recognised by word ids."""
    if options.char_cnn is not None or not options.reset_rate:
        return None
    if vocabulary is None:
        raise InputError(
            f"reset_rate = {options.reset_rate}: the data must have a vocab, whose ids of <S> and "
            "</S> show where sentences start; or train with reset_rate = 0."
        )
    return vocabulary.bos, vocabulary.eos


def step_inputs(
    feed: Feed,
    options: Options,
    seeds: tuple[int, int],
    marks: tuple[int, int] | None = None,
    n_replicas: int = 1,
    rows: BatchSlice | None = None,
) -> tuple[StepInputs, ...]:
    """Draw the random numbers of a step, and divide its batch among this worker's replicas.

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
        part_resets = tuple(drawn[:, k * n_rows : (k + 1) * n_rows] for drawn in resets)
        inputs.append(StepInputs(part, negatives, seeds, part_resets))
    return tuple(inputs)


# Random numbers


def draw_log_uniform(n_classes: int, n_samples: int, seed: tuple[int, ...]) -> Negatives:
    """Negative samples of the sampled softmax: `n_samples` <= `n_classes` distinct classes.

    P(k) = log((k + 2) / (k + 1)) / log(n_classes + 1), the log-uniform (Zipfian) distribution over
    a vocabulary in descending order of frequency.
    """
    random, n_tries = np.random.default_rng(seed), 0
    first = np.full(n_classes, -1)  # the number of the try that first drew each class
    while np.count_nonzero(first >= 0) < n_samples:
        u = random.random(4 * n_samples)
        k = np.exp(u * math.log(n_classes + 1)).astype(np.int32) - 1
        k = np.minimum(k, n_classes - 1)
        (new,) = np.nonzero(first[k] < 0)
        first[k[new][::-1]] = n_tries + new[::-1]  # NumPy keeps the last of repeated assignments
        n_tries += len(k)
    last = np.partition(first[first >= 0], n_samples - 1)[n_samples - 1]
    ids = np.flatnonzero((first >= 0) & (first <= last)).astype(np.int32)
    return Negatives(ids, int(last) + 1)


def sentence_starts(feed: Feed, marks: tuple[int, int] | None) -> np.ndarray:
    """Where sentences start: bool (D, time, batch).

    `marks`: the word ids of `<S>` and, for the backward direction, `</S>`; None for character
    inputs, where both have special characters.
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
    """Draw the training sentences that start from zero LSTM states, as every sentence does in use.

    A network that is never trained from zero states, except at the very start, may diverge when it
    starts from them: docs/states.md. Both directions read the same sentences at the same steps, and
    share the draw.

    Args:
        rate: probability per sentence.
        seed: the run's seed and the step.
        rows: position of the rows of `feed` in the global batch; None: the complete batch.

    Returns:
        Per direction bool (time, batch), True at the first input of a drawn sentence.
    """
    starts = sentence_starts(feed, marks)
    n_steps, n_rows = starts.shape[1:]
    first, total = (0, n_rows) if rows is None else rows
    random = np.random.default_rng((*seed, _RESETS))
    drawn = random.random((n_steps, total)) < rate
    return tuple(starts & drawn[:, first : first + n_rows])


# Batches


def divide(feed: Feed, n_parts: int) -> list[Feed]:
    """Split the rows of a batch into equal parts, each with its own distinct words."""
    if n_parts == 1:
        return [feed]
    parts = []
    words, targets = (np.split(array, n_parts, axis=2) for array in (feed.words, feed.targets))
    for word, target in zip(words, targets, strict=True):
        distinct, index = np.unique(word, return_inverse=True)
        index = index.reshape(word.shape).astype(np.int32)
        parts.append(Feed(feed.distinct[distinct], index, np.ascontiguousarray(target)))
    return parts
