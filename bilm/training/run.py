"""The values of a run: what a step takes and changes, and what a checkpoint holds."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.cell import Mode
from bilm.core.errors import InputError, NotFiniteError
from bilm.core.language_model import LanguageModel
from bilm.core.lstm import States
from bilm.core.options import Options
from bilm.core.weight_names import WORD_ROWS
from bilm.data import Batch, IteratorState, deciding_method
from bilm.files.checkpoints import checkpoint_prefix
from bilm.files.weights import named_states
from bilm.training.evaluation import exp_of_loss
from bilm.training.feed import make_feed
from bilm.training.optimizer import Optimizer
from bilm.training.replicas import Replicas
from bilm.training.run_checkpoint import (
    STATES_PREFIX,
    HeldoutState,
    RunRecord,
    RunSettings,
    load_states,
    load_variables,
    mean_over_rows,
    read_record,
    read_step,
    save_checkpoint,
)
from bilm.training.step import StepInputs, TrainingStep

logger = logging.getLogger(__name__)


class Run:
    """Model, optimizer, LSTM states, the state of reading the corpus, steps.

    Attributes:
        global_step: steps of the model's life, those before a run of the original among them.
        done: steps of this run.
        batch_shape: rows of a batch, of all devices and workers, and tokens of a row.
        feed_shape: of the part of it that this worker takes.
        tokens, passes: how much the model was trained, see `RunRecord`.
        seconds: time of this run's steps in earlier calls.
        iterator_state: of the data set after the last step's batch; None if it has none.
        heldout: what is known of the held-out text.
    """

    def __init__(self, options: Options, replicas: Replicas, settings: RunSettings) -> None:
        self.options = options
        self.settings = settings
        self.replicas = replicas
        self.batch_shape = (options.batch_size * replicas.n, options.unroll_steps)
        self.feed_shape = (options.batch_size * replicas.n_local, options.unroll_steps)
        self.tokens_per_step = math.prod(self.batch_shape)
        self.steps_per_epoch = max(1, (options.n_train_tokens or 0) // self.tokens_per_step)
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
        self.states = self.step.zero_states()
        self.iterator_state: IteratorState | None = None
        self.heldout = HeldoutState()
        self.global_step = 0
        self.done = 0
        self.tokens: int | None = 0
        self.passes: float | None = 0.0
        self.seconds = 0.0
        self.perplexity = self.last_learning_rate = 0.0  # of the last step

    @property
    def epoch(self) -> int:
        """The pass over the training tokens that the last step was of, from 1."""
        return 1 + (self.done - 1) // self.steps_per_epoch

    def restart(self, ckpt_file: str) -> None:
        """Take over everything that a checkpoint holds; errors as for `load_variables`."""
        with self.replicas.scope():
            load_variables(ckpt_file, self.table, self.slots)
        self.global_step = read_step(ckpt_file)
        record = read_record(ckpt_file)
        if record is None:
            # The original did not write down on how many devices it trained.
            self.tokens = self.passes = None
            return
        self.tokens, self.passes = record.tokens, record.passes
        self.global_step = record.step
        # Random numbers follow from the seed and the step: the seed goes with the count.
        self.settings = dataclasses.replace(
            self.settings, seed=record.settings.seed, init_from=record.settings.init_from
        )
        self.seconds, self.perplexity = record.seconds, record.train_perplexity
        self.heldout = record.heldout
        try:
            recorded = [
                None if state is None else IteratorState.from_dict(state)
                for state in record.iterator_state
            ]
        except InputError as error:
            raise InputError(f"{ckpt_file}: {error}") from error
        worker = self.replicas.worker
        if (record.batch_shape, len(recorded)) == (self.batch_shape, worker.count):
            self.done, self.iterator_state = record.done, recorded[worker.index]
            zeros = self.model.network.zero_states(record.batch_shape[0])
            self.states = self.step.own_states(load_states(ckpt_file, zeros))
        else:
            self._restart_rows(ckpt_file, record, recorded)

    def _restart_rows(
        self, ckpt_file: str, record: RunRecord, recorded: list[IteratorState | None]
    ) -> None:
        """Resume with batches of another shape or of another number of workers.

        Progress is kept in tokens; the sentence that a row was within is left.
        """
        worker, n_tokens = self.replicas.worker, math.prod(record.batch_shape)
        before, now = len(recorded), worker.count
        logger.warning(
            "%s: batches were %d rows by %d tokens and are now %d by %d%s; the LSTM states start "
            "at zero, and the text continues with new sentences",
            ckpt_file, *record.batch_shape, *self.batch_shape,
            "" if before == now else f", workers were {before} and are now {now}",
        )  # fmt: skip
        self.done = record.done * n_tokens // self.tokens_per_step
        states = [state for state in recorded if state is not None]
        if not states:
            return
        if len(states) == worker.count:
            state = states[worker.index]
        else:
            state = min(states, key=lambda state: state.shard).with_worker(*worker.share)
        self.iterator_state = state.with_batches(*self.feed_shape)

    def inputs(self, data: Any) -> Iterator[tuple[tuple[StepInputs, ...], IteratorState | None]]:
        """The inputs of the steps that are left, and the state of the data set after each."""
        shape, marks = self.feed_shape, self._marks(data)
        if deciding_method(data, "iter_distinct", "iter_batches") == "iter_distinct":
            resumed = {} if self.iterator_state is None else {"state": self.iterator_state}
            batches = data.iter_distinct(*shape, **resumed)
        else:
            batches = data.iter_batches(*shape)
        if self.done and self.iterator_state is None:
            logger.warning("the data cannot resume where the run was: its text begins anew")
        # The count first: when it ends, no batch is drawn that nobody will use.
        for step, batch in zip(range(self.done, self.n_steps), batches, strict=False):
            if isinstance(batch, Batch) and not batch.mask.all():
                return  # the text has ended within this batch, which the original left out as well
            feed = make_feed(batch, self.options, shape)
            state = getattr(batch, "state", None)
            yield self.step.inputs(feed, step, self.settings.seed, marks), state

    def _marks(self, data: Any) -> tuple[int, int] | None:
        """By which inputs the begin of a sentence is known."""
        if self.options.char_cnn is not None or not self.options.reset_rate:
            return None
        vocabulary = getattr(data, "vocab", None)
        if vocabulary is None:
            raise InputError(
                f"reset_rate = {self.options.reset_rate}: the data has no vocab, whose ids of <S> "
                "and </S> tell where a sentence begins; give it one, or train with reset_rate = 0."
            )
        return vocabulary.bos, vocabulary.eos

    def advance(self, inputs: tuple[StepInputs, ...], iterator_state: IteratorState | None) -> None:
        """Do a step, after whose batch the data set has the state `iterator_state`.

        When the loss is not finite, the count and all states stay as they were.
        """
        factor = self.settings.schedule.factor(self.done, self.n_steps)
        with self.replicas.scope():
            self.last_learning_rate = self.optimizer.set_rates(factor, self.done)
        losses, states = self.step(inputs, self.states)
        loss = float(np.mean(losses.numpy()))
        if not math.isfinite(loss):
            raise NotFiniteError(f"Step {self.global_step + 1}: the loss is {loss}.")
        self.states, self.iterator_state = states, iterator_state
        self.done += 1
        self.global_step += 1
        if self.tokens is not None:
            self.tokens += self.tokens_per_step
        if self.passes is not None and self.options.n_train_tokens is not None:
            self.passes += self.tokens_per_step / self.options.n_train_tokens
        self.perplexity = exp_of_loss(loss)

    def mean_states(self) -> tuple[States, ...]:
        """LSTM states averaged over the rows of a replica: (1, ...) of each direction."""
        return mean_over_rows(self.states[0])

    def save(self, folder: str, keep: int, seconds: float) -> str:
        """Write a checkpoint, which the chief does for all; return its prefix.

        `keep` checkpoints stay; `seconds` is the time of the run's steps so far. When a value is
        not finite, nothing is written.
        """
        tensors: dict[str, Any] = {w.checkpoint: w.variable.value for w in self.table}
        tensors |= self.slots
        tensors |= named_states(self.replicas.gathered(self.states), STATES_PREFIX)
        for name, tensor in tensors.items():
            if not tf.reduce_all(tf.math.is_finite(tensor)):
                raise NotFiniteError(f"Step {self.global_step}: {name} has values not finite.")
        group, state = self.replicas.group, self.iterator_state
        states = group.all_gather(None if state is None else state.to_dict())
        if group.worker.is_chief:
            with group.deferred_errors():
                record = RunRecord(
                    step=self.global_step,
                    done=self.done,
                    batch_shape=self.batch_shape,
                    tokens=self.tokens,
                    passes=self.passes,
                    seconds=seconds,
                    train_perplexity=self.perplexity,
                    settings=self.settings,
                    heldout=self.heldout,
                    iterator_state=states,
                )
                save_checkpoint(folder, self.global_step, tensors, record, keep)
        group.all_gather()
        return checkpoint_prefix(folder, self.global_step)
