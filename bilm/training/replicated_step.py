"""One step of training on several devices: each its rows, and one update for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from bilm.layers import BatchSlice, States
from bilm.training.feed import Feed, Marks
from bilm.training.language_model import LanguageModel
from bilm.training.optimizer import Adagrad
from bilm.training.replicas import Replicas
from bilm.training.step import StepInputs, TrainingStep

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
