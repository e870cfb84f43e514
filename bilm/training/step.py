"""A run's model, optimizer and LSTM states, and its step: loss, gradients, update.

State goes in and comes out. The step runs on one or more devices.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, NotFiniteError
from bilm.core.language_model import LanguageModel
from bilm.core.lstm import BatchSlice, Dropout, Mode, States
from bilm.core.options import Options
from bilm.core.softmax import Negatives
from bilm.core.weight_names import WORD_ROWS, lstm_blocks
from bilm.data import Batch, IteratorState, deciding_method
from bilm.files import checkpoints
from bilm.files.weights import named_states
from bilm.inference.feed import make_feed
from bilm.inference.scorer import exp_of_loss
from bilm.training.inputs import StepInputs, step_inputs
from bilm.training.optimizer import Optimizer
from bilm.training.replicas import Replicas
from bilm.training.run_state import (
    RUN_STATE,
    STATES_PREFIX,
    RunSettings,
    RunState,
    load_states,
    read_run_state,
)
from bilm.training.softmax_start import SoftmaxStart

logger = logging.getLogger(__name__)

AllStates = tuple[tuple[States, ...], ...]  # of each replica of this worker


@dataclass(eq=False)
class TrainingStep:
    """The compiled step of a model.

    Inputs and states are tuples with one entry per replica of this worker. All replicas share the
    negative samples, and gradients are averaged before repeated rows are summed, the norm is
    clipped and anything is squared, so the step equals a step of one device with all rows.
    """

    model: LanguageModel
    optimizer: Optimizer  # of the trainable variables; both are made in the scope of `replicas`
    batch_size: int  # rows per replica
    replicas: Replicas = field(default_factory=Replicas)

    def __post_init__(self) -> None:
        signature = [(of_one,) * self.replicas.n_local for of_one in self._signature()]
        self._step = tf.function(self._run, input_signature=signature, autograph=False)

    def __call__(
        self, inputs: tuple[StepInputs, ...], states: AllStates
    ) -> tuple[tf.Tensor, AllStates]:
        """Do the step; return the mean losses over all replicas before the update, float32
        (n_directions,) in nats, and the states after the batch."""
        with self.replicas.reachable():
            return self._step(inputs, states)

    def zero_states(self) -> AllStates:
        return (self.model.network.zero_states(self.batch_size),) * self.replicas.n_local

    def own_states(self, states: tuple[States, ...]) -> AllStates:
        """This worker's share of the states of all rows, as a checkpoint holds them."""
        first, size = self.rows().first, self.batch_size
        return tuple(
            tf.nest.map_structure(lambda x, k=k: x[k : k + size], states)
            for k in range(first, first + self.replicas.n_local * size, size)
        )

    def rows(self, k: int = 0) -> BatchSlice:
        """The rows of this worker's replica `k` in the global batch."""
        replicas, size = self.replicas, self.batch_size
        return BatchSlice((replicas.first + k) * size, replicas.n * size)

    def _signature(self) -> list[Any]:
        options = self.model.options
        n, positions = options.n_directions, (options.unroll_steps, self.batch_size)
        feed, states = self.model.signature(*positions)
        drawn = Negatives(tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.int32))
        inputs = StepInputs(
            feed,
            (drawn,) * (n if self.model.samples else 0),
            (tf.TensorSpec((), tf.int64),) * 2,
            (tf.TensorSpec(positions, tf.bool),) * (n if options.reset_rate else 0),
        )
        return [inputs, states]

    def _run(
        self, inputs: tuple[StepInputs, ...], states: AllStates
    ) -> tuple[tf.Tensor, AllStates]:
        def of_replica(k: int) -> Any:
            rows = None if self.replicas.n == 1 else self.rows(k)
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

        `rows` is the position of the replica's rows in the global batch; None: the complete batch.
        """
        options = self.model.options
        seed = tf.stack(inputs.dropout_seed)
        dropout = Dropout(options.dropout, seed, rows) if options.dropout else None
        with tf.GradientTape() as tape:
            of_positions, after = self.model.losses(
                inputs.feed, states, inputs.negatives, dropout, resets=inputs.resets
            )
            losses = tf.stack([tf.reduce_mean(of_direction) for of_direction in of_positions])
            # The original trained on the sum over time and the mean over rows.
            objective = options.unroll_steps * tf.reduce_mean(losses)
        variables = [variable.value for variable in self.model.trainable_variables]
        return losses, after, tape.gradient(objective, variables)


class Run:
    def __init__(
        self, options: Options, replicas: Replicas, settings: RunSettings, data: Any = None
    ) -> None:
        self.options = options
        self.replicas = replicas
        self.data = data
        shape = (options.batch_size * replicas.n, options.unroll_steps)
        self.state = RunState(shape, settings=settings)
        # Rows of a batch that this worker takes, and tokens per row.
        self.feed_shape = (options.batch_size * replicas.n_local, options.unroll_steps)
        self.steps_per_epoch = max(1, (options.n_train_tokens or 0) // self.state.tokens_per_step)
        self.n_steps = options.n_steps or (options.n_epochs or 1) * self.steps_per_epoch
        with replicas.scope(), replicas.reachable():
            self.model = LanguageModel(
                options, seed=settings.seed, precision=settings.precision, mode=Mode.TRAINING
            )
            variables = self.model.trainable_variables
            self.table = self.model.weight_table()
            by_variable = {id(weight.variable): weight.checkpoint for weight in self.table}
            names = [by_variable[id(variable)] for variable in variables]
            uses_adam, uses_muon = options.optimizer != "adagrad", options.optimizer == "muon"
            self.optimizer = Optimizer(
                variables,
                options.learning_rate,
                options.all_clip_norm_val,
                initial_accumulator=options.initial_accumulator,
                adam_learning_rate=options.adam_learning_rate if uses_adam else None,
                adam_variables=[name not in WORD_ROWS for name in names],
                muon_blocks=[lstm_blocks(name) for name in names] if uses_muon else (),
                precision=settings.precision,
            )
        # By their names in checkpoints.
        self.slots = {
            f"{name}/{slot}": value
            for name, slots in zip(names, self.optimizer.slots, strict=True)
            for slot, value in slots.items()
        }
        self.training_step = TrainingStep(self.model, self.optimizer, options.batch_size, replicas)
        self.lstm_states = self.training_step.zero_states()  # after the last batch
        self.start_clock()

    @property
    def epoch(self) -> int:
        """The pass over the training text that the last step belongs to, 1-based."""
        return 1 + (self.state.done - 1) // self.steps_per_epoch

    def start_clock(self) -> None:
        """Continue counting the run's seconds from now."""
        self._started = time.monotonic() - self.state.seconds

    def assign_softmax(self, start: SoftmaxStart) -> None:
        """Set the softmax of a new model."""
        with self.replicas.scope():
            for variable, value in zip(
                (self.model.softmax.W, self.model.softmax.b), start, strict=True
            ):
                if value is not None:
                    variable.assign(value)

    # Steps

    def inputs(self) -> Iterator[tuple[tuple[StepInputs, ...], IteratorState | None]]:
        """The inputs of the remaining steps, and the state of the data set after each."""
        data, shape, (state,) = self.data, self.feed_shape, self.state.iterator_state
        marks = self._sentence_marks()
        if deciding_method(data, "iter_distinct", "iter_batches") == "iter_distinct":
            batches = data.iter_distinct(*shape, **({} if state is None else {"state": state}))
        else:
            batches = data.iter_batches(*shape)
        if self.state.done and state is None:
            logger.warning("the data cannot resume where the run was: its text starts again")
        # The range comes first in zip: no batch is drawn after the last step.
        for step, batch in zip(range(self.state.done, self.n_steps), batches, strict=False):
            if isinstance(batch, Batch) and not batch.mask.all():
                return  # a last, incomplete batch is left out, as in the original
            feed = make_feed(batch, self.options, shape)
            seeds = self.state.settings.seed, step
            of_worker = self.replicas.n_local, self.training_step.rows()
            inputs = step_inputs(feed, self.options, seeds, marks, *of_worker)
            yield inputs, getattr(batch, "state", None)

    def _sentence_marks(self) -> tuple[int, int] | None:
        """The ids of `<S>` and `</S>` if only word ids show where sentences start."""
        if self.options.char_cnn is not None or not self.options.reset_rate:
            return None
        vocabulary = getattr(self.data, "vocab", None)
        if vocabulary is None:
            raise InputError(
                f"reset_rate = {self.options.reset_rate}: the data must have a vocab, whose ids of "
                "<S> and </S> show where sentences start; or train with reset_rate = 0."
            )
        return vocabulary.bos, vocabulary.eos

    def set_learning_rate(self) -> float:
        """Set the learning rates of the next step; return Adagrad's."""
        state = self.state
        with self.replicas.scope():
            factor = state.settings.schedule.factor(state.done, self.n_steps)
            return self.optimizer.set_rates(factor, state.done)

    def train_step(
        self, inputs: tuple[StepInputs, ...], iterator_state: IteratorState | None
    ) -> None:
        """Do a step. If the loss is not finite, the states do not change."""
        losses, lstm_states = self.training_step(inputs, self.lstm_states)
        loss = float(np.mean(losses.numpy()))
        if not math.isfinite(loss):
            text = f"Step {self.state.step + 1}: the loss is {loss}."
            if hasattr(self.data, "describe_state"):
                where = self.data.describe_state(self.state.iterator_state[0])
                text += f" Its batch starts at {where}."
            raise NotFiniteError(text)
        self.lstm_states = lstm_states
        self.state = self.state.after_step(
            self.options.n_train_tokens,
            train_perplexity=exp_of_loss(loss),
            iterator_state=(iterator_state,),
            seconds=time.monotonic() - self._started,
        )

    # Checkpoints

    def save(self, folder: str, keep: int) -> str:
        """Write a checkpoint, keep the newest `keep`, and return its prefix; the chief writes it.

        Nothing is written if a value is not finite.
        """
        state, group = self.state, self.replicas.group
        tensors: dict[str, Any] = {w.checkpoint: w.variable.value for w in self.table}
        tensors |= self.slots
        tensors |= named_states(self.replicas.gathered(self.lstm_states), STATES_PREFIX)
        for name, tensor in tensors.items():
            if not tf.reduce_all(tf.math.is_finite(tensor)):
                raise NotFiniteError(f"Step {state.step}: {name} has non-finite values.")
        saved = state.to_dict()
        iterator_states = group.all_gather(saved["iterator_state"])
        if group.worker.is_chief:
            with group.deferred_errors():
                if not group.worker.is_alone:
                    saved["iterator_state"] = iterator_states
                tensors[RUN_STATE] = json.dumps(saved)
                tensors[checkpoints.PERPLEXITY] = np.float32(state.train_perplexity)
                checkpoints.save_checkpoint(folder, state.step, tensors, keep)
        group.all_gather()
        return checkpoints.checkpoint_prefix(folder, state.step)

    def restart(self, ckpt_file: str) -> None:
        with self.replicas.scope():
            checkpoints.load_variables(ckpt_file, self.table, self.slots)
        saved = read_run_state(ckpt_file)
        if saved is None:
            # The original did not record its number of devices.
            step = checkpoints.read_step(ckpt_file)
            self.state = dataclasses.replace(self.state, step=step, tokens=None, passes=None)
            return
        # The seed determines the random numbers, so a resumed run keeps its own.
        settings = dataclasses.replace(
            self.state.settings, seed=saved.settings.seed, init_from=saved.settings.init_from
        )
        worker, shape = self.replicas.worker, self.state.batch_shape
        states = saved.iterator_state
        if (saved.batch_shape, len(states)) == (shape, worker.count):
            zeros = self.model.network.zero_states(shape[0])
            self.lstm_states = self.training_step.own_states(load_states(ckpt_file, zeros))
            done, iterator_state = saved.done, states[worker.index]
        else:
            done, iterator_state = self._other_rows(ckpt_file, saved)
        self.state = dataclasses.replace(
            saved, batch_shape=shape, done=done, settings=settings, iterator_state=(iterator_state,)
        )
        self.start_clock()

    def _other_rows(self, ckpt_file: str, saved: RunState) -> tuple[int, IteratorState | None]:
        """Steps done and the iterator state, for another batch shape or number of workers.

        Progress is counted in tokens; the unread remainder of each row's sentence is skipped.
        """
        worker, before = self.replicas.worker, len(saved.iterator_state)
        logger.warning(
            "%s: batches were %d rows by %d tokens and are now %d by %d%s; the LSTM states start "
            "at zero, and the text continues with new sentences",
            ckpt_file, *saved.batch_shape, *self.state.batch_shape,
            "" if before == worker.count else f", workers were {before} and are now {worker.count}",
        )  # fmt: skip
        done = saved.done * saved.tokens_per_step // self.state.tokens_per_step
        states = [state for state in saved.iterator_state if state is not None]
        if not states:
            return done, None
        if len(states) == worker.count:
            state = states[worker.index]
        else:
            state = min(states, key=lambda state: state.shard).with_worker(*worker.share)
        return done, state.with_batches(*self.feed_shape)
