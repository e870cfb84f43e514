"""A model in training: its optimizer, its LSTM states, and the step: loss, gradients, update."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.keras_backend import traced_once
from bilm.core.language_model import LanguageModel
from bilm.core.lstm import BatchSlice, Dropout, Mode, States
from bilm.core.options import Options
from bilm.core.softmax import Negatives
from bilm.files.weights import WORD_ROWS, lstm_blocks, weight_table
from bilm.training.inputs import StepInputs
from bilm.training.optimizer import Optimizer
from bilm.training.replicas import Replicas

AllStates = tuple[tuple[States, ...], ...]  # per replica of this worker and direction


# Numbers that the workers exchange with a step; all but the first come from the chief: whether to
# end the run, to save, to evaluate (> 0 for yes), and the seconds of the run.
Signals = Sequence[float]
_QUIET = (0.0,) * 4
# By optimizer, whether Adam and Muon update the variables that have dense gradients.
_DENSE_UPDATES = {"adagrad": (False, False), "adam": (True, False), "muon": (True, True)}


class Trainer:
    """A model with its optimizer and its LSTM states.

    Args:
        options: training options.
        replicas: devices of the run; None: one device.
        seed: random seed of the initial values.
        precision: "float32" or "bfloat16".

    Attributes:
        batch_shape: rows of a batch, over all workers, and tokens per row.
        feed_shape: rows of this worker in a batch, and tokens per row.
        slots: the optimizer's variables by name in checkpoints.
        lstm_states: after the last batch.
    """

    def __init__(
        self,
        options: Options,
        replicas: Replicas | None = None,
        seed: int = 0,
        precision: str = "float32",
    ) -> None:
        self.options = options
        self.replicas = replicas = replicas or Replicas()
        self.batch_shape = (options.batch_size * replicas.n, options.unroll_steps)
        self.feed_shape = (options.batch_size * replicas.n_local, options.unroll_steps)
        with replicas.scope(), replicas.reachable():
            self.model = LanguageModel(options, seed=seed, precision=precision, mode=Mode.TRAINING)
            variables = self.model.trainable_variables
            self.table = weight_table(self.model)
            by_variable = {id(weight.variable): weight.checkpoint for weight in self.table}
            names = [by_variable[id(variable)] for variable in variables]
            uses_adam, uses_muon = _DENSE_UPDATES[options.optimizer]
            self.optimizer = Optimizer(
                variables,
                options.learning_rate,
                options.all_clip_norm_val,
                initial_accumulator=options.initial_accumulator,
                adam_learning_rate=options.adam_learning_rate if uses_adam else None,
                adam_variables=[name not in WORD_ROWS for name in names],
                muon_blocks=[lstm_blocks(name) for name in names] if uses_muon else (),
                precision=precision,
            )
        self.slots = {
            f"{name}/{slot}": value
            for name, slots in zip(names, self.optimizer.slots, strict=True)
            for slot, value in slots.items()
        }
        self.lstm_states = self.zero_states()
        self.compile_step()

    def run_step(
        self, inputs: tuple[StepInputs, ...], states: AllStates, signals: Signals = _QUIET
    ) -> tuple[np.ndarray, AllStates, Signals]:
        """Do the compiled step.

        Inputs and states have one entry per replica of this worker. All replicas share the negative
        samples, and gradients are averaged before repeated rows are summed, the norm is clipped and
        anything is squared, so the step equals a step of one device with all rows.

        Returns:
            The mean losses over all replicas before the update, float32 (n_directions,) in nats;
            the states after the batch; and the signals of all workers.
        """
        n, count = self.model.options.n_directions, self.replicas.worker.count
        # Only the chief sends nonzero values; `count` undoes the mean over the workers.
        stop, *others = signals
        sent = tf.constant([stop, *(count * value for value in others)], tf.float32)
        with self.replicas.reachable():
            reduced, states = self._step(inputs, states, sent)
        values = reduced.numpy()
        return values[:n], states, values[n:].tolist()

    def compile_step(self) -> None:
        """Compile the step for the current options."""
        signature = [(each,) * self.replicas.n_local for each in self._signature()]
        signals = tf.TensorSpec((len(_QUIET),), tf.float32)
        self._step = traced_once(self._all_replicas, [*signature, signals])

    def _all_replicas(
        self, inputs: tuple[StepInputs, ...], states: AllStates, signals: tf.Tensor
    ) -> tuple[tf.Tensor, AllStates]:
        def replica(k: int) -> Any:
            rows = None if self.replicas.n == 1 else self.rows(k)
            losses, after, gradients = self.gradients(inputs[k], states[k], rows)
            reduced, *gradients = self.replicas.mean([tf.concat([losses, signals], 0), *gradients])
            self.optimizer.apply(gradients)
            return reduced, after

        results = self.replicas.run(replica)
        return results[0][0], tuple(after for _, after in results)

    def gradients(
        self, inputs: StepInputs, states: tuple[States, ...], rows: BatchSlice | None = None
    ) -> tuple[tf.Tensor, tuple[States, ...], list[Any]]:
        """The losses of a replica, its states after the batch, and the gradients of the variables.

        `rows` is the position of the replica's rows in the global batch; None: the complete batch.
        """
        options, seed = self.options, tf.stack(inputs.dropout_seed)
        dropout = Dropout(options.dropout, seed, rows) if options.dropout else None
        with tf.GradientTape() as tape:
            by_position, after = self.model.losses(
                inputs.feed, states, inputs.negatives, dropout, resets=inputs.resets
            )
            losses = tf.stack([tf.reduce_mean(direction) for direction in by_position])
            # The original trained on the sum over time and the mean over rows.
            objective = options.unroll_steps * tf.reduce_mean(losses)
        variables = [variable.value for variable in self.model.trainable_variables]
        return losses, after, tape.gradient(objective, variables)

    def _signature(self) -> list[Any]:
        options = self.options
        n, positions = options.n_directions, (options.unroll_steps, options.batch_size)
        feed, states = self.model.signature(*positions)
        drawn = Negatives(tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.int32))
        inputs = StepInputs(
            feed,
            (drawn,) * (n if self.model.samples else 0),
            (tf.TensorSpec((), tf.int64),) * 2,
            (tf.TensorSpec(positions, tf.bool),) * (n if options.reset_rate else 0),
        )
        return [inputs, states]

    def zero_states(self) -> AllStates:
        states = self.model.network.zero_states(self.options.batch_size)
        return (states,) * self.replicas.n_local

    def local_states(self, states: tuple[States, ...]) -> AllStates:
        """This worker's rows of the states of all rows in a checkpoint."""
        first, size = self.rows().first, self.options.batch_size
        return tuple(
            tf.nest.map_structure(lambda x, k=k: x[k : k + size], states)
            for k in range(first, first + self.replicas.n_local * size, size)
        )

    def rows(self, k: int = 0) -> BatchSlice:
        """The rows of this worker's replica `k` in the global batch."""
        replicas, size = self.replicas, self.options.batch_size
        return BatchSlice((replicas.first + k) * size, replicas.n * size)
