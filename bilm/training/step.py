"""One step of training: loss, gradients, update; on one device, or on several that share a batch.

State goes in and comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.layers import BatchSlice, Dropout, Negatives, States
from bilm.layers.sampled_softmax import log_uniform_log_expected
from bilm.training.draws import Draw, draw_log_uniform, draw_resets
from bilm.training.feed import Feed, Marks
from bilm.training.language_model import LanguageModel
from bilm.training.optimizer import Adagrad
from bilm.training.replicas import Replicas


class StepInputs(NamedTuple):
    """What one step takes beside the model and the states.

    Attributes:
        feed: the batch.
        draws: the negative samples of each direction; empty for the full softmax.
        dropout_seed: int64 (2,).
        resets: of each direction bool (time, batch), True where a sentence begins from states of
            zero; empty when `reset_rate` is 0.
    """

    feed: Feed
    draws: tuple[Draw, ...]
    dropout_seed: Any
    resets: tuple[Any, ...] = ()


class TrainingStep:
    """The compiled step of a model.

    Args:
        model: what is trained.
        optimizer: over the model's trainable variables.
        batch_size: rows of a batch.
    """

    def __init__(self, model: LanguageModel, optimizer: Adagrad, batch_size: int) -> None:
        self.model = model
        self.optimizer = optimizer
        self.batch_size = batch_size
        self._step = tf.function(self._run, input_signature=self.signature(), autograph=False)

    def inputs(
        self, feed: Feed, step: int, seed: int, marks: Marks | None, rows: BatchSlice | None = None
    ) -> StepInputs:
        """Add the random numbers of a step, which follow from `seed` and `step` alone.

        Args:
            feed: the batch.
            step, seed: whole numbers from 0.
            marks: the inputs by which the first one of a sentence is known.
            rows: which rows of a larger batch `feed` holds; None is the whole batch.
        """
        options = self.model.options
        draws: tuple[Draw, ...] = ()
        if self.model.samples:
            n_tokens, n_samples = options.n_tokens_vocab or 0, options.n_negative_samples_batch
            draws = tuple(
                draw_log_uniform(n_tokens, n_samples, (seed, step, d))
                for d in range(options.n_directions)
            )
        resets: tuple[Any, ...] = ()
        if options.reset_rate:
            resets = draw_resets(feed, marks, options.reset_rate, (seed, step), rows)
        return StepInputs(feed, draws, (seed, step), resets)

    def __call__(
        self, inputs: StepInputs, states: Sequence[States]
    ) -> tuple[tf.Tensor, tuple[States, ...]]:
        """Do the step.

        Returns:
            float32 (n_directions,), the mean loss of each direction in nats before the update,
            and the states after the batch.
        """
        return self._step(inputs, tuple(states))

    def zero_states(self) -> tuple[States, ...]:
        """The states before any text."""
        return self.model.network.zero_states(self.batch_size)

    def whole_states(self, states: tuple[States, ...]) -> tuple[States, ...]:
        """The states of all rows, as a checkpoint holds them."""
        return states

    def own_states(self, states: tuple[States, ...]) -> tuple[States, ...]:
        """What `whole_states` made of them."""
        return states

    def signature(self) -> list[Any]:
        """The shapes of inputs and states."""
        options = self.model.options
        width = () if options.max_word_length is None else (options.max_word_length,)
        places = (options.n_directions, options.unroll_steps, self.batch_size)
        draw = Draw(tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.int32))
        resets = tf.TensorSpec(places[1:], tf.bool)
        inputs = StepInputs(
            Feed(
                tf.TensorSpec((None, *width), tf.int32),
                tf.TensorSpec(places, tf.int32),
                tf.TensorSpec(places, tf.int32),
            ),
            (draw,) * options.n_directions if self.model.samples else (),
            (tf.TensorSpec((), tf.int64), tf.TensorSpec((), tf.int64)),
            (resets,) * (options.n_directions if options.reset_rate else 0),
        )
        states = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape, x.dtype), self.zero_states()
        )
        return [inputs, states]

    def _run(
        self, inputs: StepInputs, states: tuple[States, ...]
    ) -> tuple[tf.Tensor, tuple[States, ...]]:
        losses, after, gradients = self.gradients(inputs, states)
        self.optimizer.apply(gradients)
        return losses, after

    def gradients(
        self, inputs: StepInputs, states: tuple[States, ...], rows: BatchSlice | None = None
    ) -> tuple[tf.Tensor, tuple[States, ...], list[Any]]:
        """The losses, the states after the batch, and the gradient of each variable.

        Args:
            inputs, states: of the batch.
            rows: which rows of a larger batch these are; None is the whole batch.
        """
        options = self.model.options
        negatives = [self._negatives(draw) for draw in inputs.draws]
        dropout = Dropout(tf.stack(inputs.dropout_seed), rows) if options.dropout else None
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            vectors = self.model.encode(inputs.feed)
            of_places, after = self.model.losses(
                vectors,
                inputs.feed,
                states,
                negatives,
                dropout,
                resets=inputs.resets,
            )
            losses = tf.stack([tf.reduce_mean(of_direction) for of_direction in of_places])
            # The original trained on the sum over time and the mean over rows.
            objective = options.unroll_steps * tf.reduce_mean(losses)
        return losses, after, tape.gradient(objective, [v.value for v in variables])

    def _negatives(self, draw: Draw) -> Negatives:
        n_tries = tf.cast(draw.n_tries, tf.float32)
        n_tokens = self.model.options.n_tokens_vocab or 0
        return Negatives(draw.ids, log_uniform_log_expected(draw.ids, n_tries, n_tokens), n_tries)


AllStates = tuple[tuple[States, ...], ...]  # of each local replica


class ReplicatedStep:
    """The compiled step of a model that has replicas; in place of a `TrainingStep`.

    Inputs and states are tuples, an entry for each replica of this worker. All replicas share
    the negative samples, and gradients are averaged before rows that occur twice are summed,
    before the norm is bounded and before anything is squared: the step is that of one device
    with the rows of all.

    Args:
        model, optimizer: made within the scope of `replicas`.
        batch_size: rows of each replica.
    """

    def __init__(
        self, model: LanguageModel, optimizer: Adagrad, batch_size: int, replicas: Replicas
    ) -> None:
        self._one = TrainingStep(model, optimizer, batch_size)
        self._replicas = replicas
        signature = [(of_one,) * replicas.n_local for of_one in self._one.signature()]
        self._step = tf.function(self._run, input_signature=signature, autograph=False)

    def inputs(
        self, feed: Feed, step: int, seed: int, marks: Marks | None
    ) -> tuple[StepInputs, ...]:
        """The inputs of each local replica; `feed` holds the rows of all of them."""
        replicas, size = self._replicas, self._one.batch_size
        rows = BatchSlice(replicas.first * size, replicas.n * size)
        whole = self._one.inputs(feed, step, seed, marks, rows)
        parts = divide(feed, replicas.n_local)
        of_parts = [np.split(resets, len(parts), axis=1) for resets in whole.resets]
        return tuple(
            whole._replace(feed=part, resets=tuple(resets[k] for resets in of_parts))
            for k, part in enumerate(parts)
        )

    def __call__(
        self, inputs: tuple[StepInputs, ...], states: AllStates
    ) -> tuple[tf.Tensor, AllStates]:
        """Do the step.

        Returns:
            float32 (n_directions,), the mean loss of each direction over all replicas, in nats,
            and the states after the batch.

        Raises:
            WorkersError: another worker has gone.
        """
        with self._replicas.reachable():
            return self._step(inputs, states)

    def zero_states(self) -> AllStates:
        """The states before any text."""
        return (self._one.zero_states(),) * self._replicas.n_local

    def whole_states(self, states: AllStates) -> tuple[States, ...]:
        """The states of all rows of all workers, as a checkpoint holds them."""
        return self._replicas.gathered(states)

    def own_states(self, states: tuple[States, ...]) -> AllStates:
        """This worker's part of what `whole_states` made."""
        rows, first = self._one.batch_size, self._replicas.first
        return tuple(
            tf.nest.map_structure(lambda x, k=k: x[k * rows : (k + 1) * rows], states)
            for k in range(first, first + self._replicas.n_local)
        )

    def _run(
        self, inputs: tuple[StepInputs, ...], states: AllStates
    ) -> tuple[tf.Tensor, AllStates]:
        replicas, rows = self._replicas, self._one.batch_size

        def of_replica(k: int) -> Any:
            here = BatchSlice((replicas.first + k) * rows, replicas.n * rows)
            losses, after, gradients = self._one.gradients(inputs[k], states[k], here)
            losses, *gradients = replicas.mean([tf.identity(losses), *gradients])
            self._one.optimizer.apply(gradients)
            return losses, after

        results = replicas.run(of_replica)
        return results[0][0], tuple(after for _, after in results)


def divide(feed: Feed, n_parts: int) -> list[Feed]:
    """The rows of a batch in equal parts, each with the distinct words of its own."""
    if n_parts == 1:
        return [feed]
    parts = []
    words, targets = (np.split(array, n_parts, axis=2) for array in (feed.words, feed.targets))
    for of_part, target in zip(words, targets, strict=True):
        distinct, places = np.unique(of_part, return_inverse=True)
        places = places.reshape(of_part.shape).astype(np.int32)
        parts.append(Feed(feed.inputs[distinct], places, np.ascontiguousarray(target)))
    return parts
