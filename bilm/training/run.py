"""A run's model, optimizer, LSTM states and data: what a step changes and a checkpoint holds."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, NotFiniteError
from bilm.core.language_model import LanguageModel
from bilm.core.lstm import Mode, States
from bilm.core.options import Options
from bilm.core.weight_names import WORD_ROWS
from bilm.data import Batch, IteratorState, deciding_method
from bilm.files.checkpoints import (
    PERPLEXITY,
    checkpoint_prefix,
    load_variables,
    read_step,
    save_checkpoint,
)
from bilm.files.weights import named_states
from bilm.training.evaluation import exp_of_loss
from bilm.training.optimizer import Optimizer
from bilm.training.replicas import Replicas
from bilm.training.state import (
    RECORD,
    STATES_PREFIX,
    RunSettings,
    RunState,
    load_states,
    mean_over_rows,
    read_run_state,
)
from bilm.training.step import StepInputs, TrainingStep, make_feed

logger = logging.getLogger(__name__)


class Run:
    """A model in training.

    Attributes:
        state: everything of the run but its tensors.
        lstm_states: of each replica of this worker, after the last batch.
        feed_shape: rows of a batch that this worker takes, and tokens per row.
        n_steps: steps of the whole run.
        started: when the first step would have begun had the run never been interrupted.
    """

    def __init__(
        self, options: Options, replicas: Replicas, settings: RunSettings, data: Any = None
    ) -> None:
        self.options = options
        self.replicas = replicas
        self.data = data
        shape = (options.batch_size * replicas.n, options.unroll_steps)
        self.state = RunState(shape, settings=settings)
        self.feed_shape = (options.batch_size * replicas.n_local, options.unroll_steps)
        self.steps_per_epoch = max(1, (options.n_train_tokens or 0) // self.state.tokens_per_step)
        self.n_steps = options.n_steps or (options.n_epochs or 1) * self.steps_per_epoch
        with replicas.scope(), replicas.reachable():
            self.model = LanguageModel(
                options, seed=settings.seed, precision=settings.precision, mode=Mode.TRAINING
            )
            variables = self.model.trainable_variables
            self.table = self.model.weight_table()
            names = {id(weight.variable): weight.checkpoint for weight in self.table}
            self.optimizer = Optimizer(
                variables,
                options.learning_rate,
                options.all_clip_norm_val,
                initial_accumulator=options.initial_accumulator,
                adam_learning_rate=(
                    options.adam_learning_rate if options.optimizer == "adam" else None
                ),
                adam_variables=[names[id(x)] not in WORD_ROWS for x in variables],
            )
        # By their names in checkpoints.
        self.slots = {
            f"{names[id(variable)]}/{slot}": value
            for variable, slots in zip(variables, self.optimizer.slots, strict=True)
            for slot, value in slots.items()
        }
        self.step = TrainingStep(self.model, self.optimizer, options.batch_size, replicas)
        self.lstm_states = self.step.zero_states()
        self.start_clock()

    @property
    def epoch(self) -> int:
        """The pass over the training tokens that the last step belongs to, 1-based."""
        return 1 + (self.state.done - 1) // self.steps_per_epoch

    def start_clock(self) -> None:
        """Count the run's seconds on from now."""
        self.started = time.monotonic() - self.state.seconds

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
        # The count first: when it ends, no batch is drawn that nobody will use.
        for step, batch in zip(range(self.state.done, self.n_steps), batches, strict=False):
            if isinstance(batch, Batch) and not batch.mask.all():
                return  # the text ends within this batch, which the original left out as well
            feed = make_feed(batch, self.options, shape)
            inputs = self.step.inputs(feed, step, self.state.settings.seed, marks)
            yield inputs, getattr(batch, "state", None)

    def _sentence_marks(self) -> tuple[int, int] | None:
        """The word ids by which the start of a sentence is known, if characters do not show it."""
        if self.options.char_cnn is not None or not self.options.reset_rate:
            return None
        vocabulary = getattr(self.data, "vocab", None)
        if vocabulary is None:
            raise InputError(
                f"reset_rate = {self.options.reset_rate}: the data has no vocab, whose ids of <S> "
                "and </S> tell where a sentence begins; give it one, or train with reset_rate = 0."
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
        """Do a step. If the loss is not finite, all states stay as they were."""
        losses, lstm_states = self.step(inputs, self.lstm_states)
        loss = float(np.mean(losses.numpy()))
        if not math.isfinite(loss):
            text = f"Step {self.state.step + 1}: the loss is {loss}."
            if hasattr(self.data, "describe_state"):
                where = self.data.describe_state(self.state.iterator_state[0])
                text += f" Its batch begins at {where}."
            raise NotFiniteError(text)
        self.lstm_states = lstm_states
        seconds, n_train_tokens = time.monotonic() - self.started, self.options.n_train_tokens
        self.state = self.state.after_step(
            exp_of_loss(loss), iterator_state, n_train_tokens, seconds
        )

    def mean_states(self) -> tuple[States, ...]:
        """LSTM states averaged over the rows of a replica: (1, ...) per direction."""
        return mean_over_rows(self.lstm_states[0])

    # Checkpoints

    def save(self, folder: str, keep: int) -> str:
        """Write a checkpoint, which the chief does for all; keep the newest `keep`; return it.

        If a value is not finite, nothing is written.
        """
        state, group = self.state, self.replicas.group
        tensors: dict[str, Any] = {w.checkpoint: w.variable.value for w in self.table}
        tensors |= self.slots
        tensors |= named_states(self.replicas.gathered(self.lstm_states), STATES_PREFIX)
        for name, tensor in tensors.items():
            if not tf.reduce_all(tf.math.is_finite(tensor)):
                raise NotFiniteError(f"Step {state.step}: {name} has non-finite values.")
        record = state.to_dict()
        iterator_states = group.all_gather(record["iterator_state"])
        if group.worker.is_chief:
            with group.deferred_errors():
                if not group.worker.is_alone:
                    record["iterator_state"] = iterator_states
                tensors[RECORD] = json.dumps(record)
                tensors[PERPLEXITY] = np.float32(state.train_perplexity)
                save_checkpoint(folder, state.step, tensors, keep)
        group.all_gather()
        return checkpoint_prefix(folder, state.step)

    def restart(self, ckpt_file: str) -> None:
        """Take over everything that a checkpoint holds."""
        with self.replicas.scope():
            load_variables(ckpt_file, self.table, self.slots)
        saved = read_run_state(ckpt_file)
        if saved is None:
            # The original did not record on how many devices it trained.
            step = read_step(ckpt_file)
            self.state = dataclasses.replace(self.state, step=step, tokens=None, passes=None)
            return
        # Random numbers follow from the seed and the step: the seed goes with the count.
        settings = dataclasses.replace(
            self.state.settings, seed=saved.settings.seed, init_from=saved.settings.init_from
        )
        worker, shape = self.replicas.worker, self.state.batch_shape
        states = saved.iterator_state
        if (saved.batch_shape, len(states)) == (shape, worker.count):
            zeros = self.model.network.zero_states(shape[0])
            self.lstm_states = self.step.own_states(load_states(ckpt_file, zeros))
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
