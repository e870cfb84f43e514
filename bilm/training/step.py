"""One step of training: batch, random numbers, loss, gradients, update; on one or more devices.

State goes in and comes out. Random numbers follow from the run's seed, the step, and the direction
or the row alone, so a resumed run draws what it would have drawn, and workers that share a batch
draw the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError
from bilm.core.language_model import Feed, LanguageModel
from bilm.core.lstm import BatchSlice, Dropout, States
from bilm.core.options import N_CHARACTERS, Options
from bilm.core.softmax import Negatives, log_uniform_log_expected
from bilm.data import Batch, network_ids
from bilm.data.encoding import BOS_CHAR, EOS_CHAR
from bilm.training.optimizer import Optimizer
from bilm.training.replicas import Replicas

# Seeds of a step's draws end in a number: 0 and 1 are the directions.
_OF_RESETS = 2

AllStates = tuple[tuple[States, ...], ...]  # of each replica of this worker


class Draw(NamedTuple):
    """Distinct classes int32 (n_samples,) in ascending order, and the number of draws it took."""

    ids: Any
    n_tries: Any


class StepInputs(NamedTuple):
    """The inputs of a step besides the model and the states.

    Attributes:
        feed: the batch.
        draws: negative samples per direction; empty for the full softmax.
        dropout_seed: int64 (2,).
        resets: per direction bool (time, batch), True where a sentence starts from zero states;
            empty if `reset_rate` is 0.
    """

    feed: Feed
    draws: tuple[Draw, ...]
    dropout_seed: Any
    resets: tuple[Any, ...] = ()


class TrainingStep:
    """The compiled step of a model.

    Inputs and states are tuples with one entry per replica of this worker. All replicas share the
    negative samples, and gradients are averaged before repeated rows are summed, the norm is
    clipped and anything is squared, so the step equals that of one device with all rows.

    Args:
        model: the model in training.
        optimizer: over the model's trainable variables; both made in the scope of `replicas`.
        batch_size: rows per replica.
        replicas: None is one device.
    """

    def __init__(
        self,
        model: LanguageModel,
        optimizer: Optimizer,
        batch_size: int,
        replicas: Replicas | None = None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.batch_size = batch_size
        self.replicas = replicas or Replicas()
        signature = [(of_one,) * self.replicas.n_local for of_one in self._signature()]
        self._step = tf.function(self._run, input_signature=signature, autograph=False)

    def inputs(
        self, feed: Feed, step: int, seed: int, marks: tuple[int, int] | None
    ) -> tuple[StepInputs, ...]:
        """Divide a batch among this worker's replicas, and draw the random numbers of a step.

        They follow from `seed` and `step`; for `marks` see `sentence_starts`.
        """
        options, n_parts = self.model.options, self.replicas.n_local
        draws: tuple[Draw, ...] = ()
        if self.model.samples:
            n_tokens, n_samples = options.n_tokens_vocab or 0, options.n_negative_samples_batch
            draws = tuple(
                draw_log_uniform(n_tokens, n_samples, (seed, step, d))
                for d in range(options.n_directions)
            )
        of_parts: list[tuple[Any, ...]] = [()] * n_parts
        if options.reset_rate:
            drawn = draw_resets(feed, marks, options.reset_rate, (seed, step), self._rows())
            # of each direction (time, batch) -> n_parts of (time, batch_size)
            of_parts = list(
                zip(*(np.split(resets, n_parts, axis=1) for resets in drawn), strict=True)
            )
        return tuple(
            StepInputs(part, draws, (seed, step), resets)
            for part, resets in zip(divide(feed, n_parts), of_parts, strict=True)
        )

    def __call__(
        self, inputs: tuple[StepInputs, ...], states: AllStates
    ) -> tuple[tf.Tensor, AllStates]:
        """Do the step.

        Returns:
            The mean losses over all replicas before the update, float32 (n_directions,) in nats,
            and the states after the batch.
        """
        with self.replicas.reachable():
            return self._step(inputs, states)

    def zero_states(self) -> AllStates:
        """The states before any text."""
        return (self.model.network.zero_states(self.batch_size),) * self.replicas.n_local

    def own_states(self, states: tuple[States, ...]) -> AllStates:
        """This worker's part of the states of all rows, which a checkpoint holds."""
        first, size = self._rows().first, self.batch_size
        return tuple(
            tf.nest.map_structure(lambda x, k=k: x[k : k + size], states)
            for k in range(first, first + self.replicas.n_local * size, size)
        )

    def _rows(self, k: int = 0) -> BatchSlice:
        """The rows of this worker's replica `k` in the global batch."""
        replicas, size = self.replicas, self.batch_size
        return BatchSlice((replicas.first + k) * size, replicas.n * size)

    def _signature(self) -> list[Any]:
        options = self.model.options
        n, positions = options.n_directions, (options.unroll_steps, self.batch_size)
        feed, states = self.model.signature(*positions)
        draw = Draw(tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.int32))
        inputs = StepInputs(
            feed,
            (draw,) * (n if self.model.samples else 0),
            (tf.TensorSpec((), tf.int64),) * 2,
            (tf.TensorSpec(positions, tf.bool),) * (n if options.reset_rate else 0),
        )
        return [inputs, states]

    def _run(
        self, inputs: tuple[StepInputs, ...], states: AllStates
    ) -> tuple[tf.Tensor, AllStates]:
        def of_replica(k: int) -> Any:
            rows = None if self.replicas.n == 1 else self._rows(k)
            losses, after, gradients = self.gradients(inputs[k], states[k], rows)
            losses, *gradients = self.replicas.mean([tf.identity(losses), *gradients])
            self.optimizer.apply(gradients)
            return losses, after

        results = self.replicas.run(of_replica)
        return results[0][0], tuple(after for _, after in results)

    def gradients(
        self, inputs: StepInputs, states: tuple[States, ...], rows: BatchSlice | None = None
    ) -> tuple[tf.Tensor, tuple[States, ...], list[Any]]:
        """The losses of a replica, its states after the batch, and the gradient of each variable.

        `rows` is their position in the global batch; None is the complete batch.
        """
        options = self.model.options
        negatives = [self._negatives(draw) for draw in inputs.draws]
        dropout = Dropout(tf.stack(inputs.dropout_seed), rows) if options.dropout else None
        with tf.GradientTape() as tape:
            of_places, after = self.model.losses(
                inputs.feed, states, negatives, dropout, resets=inputs.resets
            )
            losses = tf.stack([tf.reduce_mean(of_direction) for of_direction in of_places])
            # The original trained on the sum over time and the mean over rows.
            objective = options.unroll_steps * tf.reduce_mean(losses)
        variables = [variable.value for variable in self.model.trainable_variables]
        return losses, after, tape.gradient(objective, variables)

    def _negatives(self, draw: Draw) -> Negatives:
        n_tries = tf.cast(draw.n_tries, tf.float32)
        n_tokens = self.model.options.n_tokens_vocab or 0
        return Negatives(draw.ids, log_uniform_log_expected(draw.ids, n_tries, n_tokens), n_tries)


def divide(feed: Feed, n_parts: int) -> list[Feed]:
    """The rows of a batch in equal parts, each with its own distinct words."""
    if n_parts == 1:
        return [feed]
    parts = []
    words, targets = (np.split(array, n_parts, axis=2) for array in (feed.words, feed.targets))
    for of_part, target in zip(words, targets, strict=True):
        distinct, index = np.unique(of_part, return_inverse=True)
        index = index.reshape(of_part.shape).astype(np.int32)
        parts.append(Feed(feed.inputs[distinct], index, np.ascontiguousarray(target)))
    return parts


# Batches


def make_feed(
    batch: Batch | Mapping[str, Any], options: Options, shape: tuple[int, int] | None = None
) -> Feed:
    """Turn a `Batch`, or one of the original's dicts, into a `Feed` that fits the options.

    `shape` is the number of rows and steps that it must have; None allows any.
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
    rows_and_steps = arrays["next_token_id"].shape
    for name, array in arrays.items():
        if array.dtype.kind not in "iu":
            raise InputError(f"A batch's {name} must be integers, got {array.dtype}.")
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


def _require_fit(feed: Feed, options: Options, shape: tuple[int, int] | None) -> None:
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
                f"The data's {what} ids must be from 0 to {n - 1} (n_tokens_vocab = {n_tokens}), "
                f"got ids from {ids.min()} to {ids.max()}."
            )
    steps, rows = feed.targets.shape[1:]
    if shape is not None and shape != (rows, steps):
        raise InputError(
            f"The data's batches must have {shape[0]} rows of {shape[1]} tokens, got {rows} rows "
            f"of {steps}."
        )


# Random numbers


def draw_log_uniform(n_classes: int, n_samples: int, seed: tuple[int, ...]) -> Draw:
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
            return Draw(ids[first <= last], int(last) + 1)


def sentence_starts(feed: Feed, marks: tuple[int, int] | None) -> np.ndarray:
    """Where sentences start: bool (D, time, batch).

    `marks` are the word ids of `<S>` and, backwards, of `</S>`; None if inputs are characters,
    where both have a byte of their own.
    """
    first = feed.inputs if marks else feed.inputs[:, 1]
    begins = np.isin(first, network_ids(np.array(marks or (BOS_CHAR, EOS_CHAR))))
    return begins[feed.words]  # (distinct,) -> (D, time, batch)


def draw_resets(
    feed: Feed,
    marks: tuple[int, int] | None,
    rate: float,
    seed: tuple[int, int],
    rows: BatchSlice | None = None,
) -> tuple[np.ndarray, ...]:
    """Draw the sentences that start from zero LSTM states in training.

    In use every text starts from zeros, in training only the first sentence of a row. A network
    that never sees zeros again may diverge there (see docs/states.md), so some sentences start
    from zeros. Both directions read the same sentences at the same steps of a row, and share the
    draw.

    Args:
        feed: the batch.
        marks: see `sentence_starts`.
        rate: probability per sentence.
        seed: the run's seed, and the step; with the row they determine the draw.
        rows: position of the rows in the global batch; None is the complete batch.

    Returns:
        Per direction bool (time, batch), True at the first input of such a sentence.
    """
    starts = sentence_starts(feed, marks)
    n_steps, n_rows = starts.shape[1:]
    first, total = (0, n_rows) if rows is None else rows
    random = np.random.default_rng((*seed, _OF_RESETS))
    drawn = random.random((n_steps, total)) < rate
    return tuple(starts & drawn[:, first : first + n_rows])
