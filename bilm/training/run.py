"""The values of a run: what a step takes and changes, and what a checkpoint holds."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.data import Batch, IteratorState, deciding_method
from bilm.errors import InputError, NotFiniteError
from bilm.layers import Mode, States
from bilm.options import Options
from bilm.training.checkpoint import (
    accumulator_name,
    checkpoint_prefix,
    load_states,
    load_variables,
    mean_over_rows,
    named_states,
    read_record,
    read_step,
    save_checkpoint,
)
from bilm.training.evaluation import exp_of_loss
from bilm.training.feed import Marks, make_feed
from bilm.training.language_model import LanguageModel
from bilm.training.monitor import Standing
from bilm.training.optimizer import Adagrad
from bilm.training.replicas import Replicas
from bilm.training.schedule import Schedule
from bilm.training.step import ReplicatedStep, StepInputs, TrainingStep

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunSettings:
    """What stays the same from the first step of a run to the last, beside the options.

    Attributes:
        seed: of initial values, dropout and samples.
        precision: "float32", or "bfloat16" for products in bfloat16.
        schedule: of the learning rate.
        init_from: what the run began with; None for initial values.
    """

    seed: int = 0
    precision: str = "float32"
    schedule: Schedule = Schedule()  # noqa: RUF009 - a frozen value
    init_from: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The settings as a checkpoint's record holds them; the seed has a place of its own."""
        return {
            "precision": self.precision,
            "schedule": self.schedule.to_dict(),
            "init_from": self.init_from,
        }


def recorded_settings(record: dict[str, Any]) -> RunSettings:
    """The settings of the run that a checkpoint's record is of."""
    run = record.get("run", {})
    return RunSettings(
        record["seed"],
        run.get("precision", "float32"),
        Schedule.from_dict(run.get("schedule", {})),
        run.get("init_from"),
    )


def _recorded_states(record: dict[str, Any], source: str) -> list[IteratorState | None]:
    """The state of each worker's data; "place" is what earlier versions called it."""
    recorded = record["iterator_state"] if "iterator_state" in record else record.get("place")
    states = recorded if isinstance(recorded, list) else [recorded]
    try:
        return [None if state is None else IteratorState.from_dict(state) for state in states]
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def _change(before: int, now: int) -> str:
    return "" if before == now else f", workers were {before} and are now {now}"


class Run:
    """Model, optimizer, LSTM states, place in the corpus, steps.

    Attributes:
        global_step: steps of the model's life, those before a run of the original among them.
        done: steps of this run.
        batch_shape: rows of a batch, of all devices and workers, and tokens of a row.
        feed_shape: of the part of it that this worker takes.
        seconds: time of this run's steps in earlier calls.
        standing: what is known of the held-out text.
    """

    def __init__(self, options: Options, replicas: Replicas, settings: RunSettings) -> None:
        self.options = options
        self.settings = settings
        self.replicas = replicas
        self.batch_shape = (options.batch_size * replicas.n, options.unroll_steps)
        self.feed_shape = (options.batch_size * replicas.n_local, options.unroll_steps)
        self.tokens_per_step = math.prod(self.batch_shape)
        self.steps_per_epoch = max(1, (options.n_train_tokens or 0) // self.tokens_per_step)
        self.n_steps = options.n_epochs * self.steps_per_epoch
        with replicas.scope(), replicas.reachable():
            self._make_variables()
        self.step: Any = (
            TrainingStep(self.model, self.optimizer, options.batch_size)
            if replicas.strategy is None
            else ReplicatedStep(self.model, self.optimizer, options.batch_size, replicas)
        )
        self.states = self.step.zero_states()
        self.place: IteratorState | None = None
        self.standing = Standing()
        self.global_step = 0
        self.done = 0
        self.seconds = 0.0
        self.perplexity = self.last_learning_rate = 0.0  # of the last step

    def _make_variables(self) -> None:
        options, settings = self.options, self.settings
        self.model = LanguageModel(
            options, seed=settings.seed, precision=settings.precision, mode=Mode.TRAINING
        )
        self.table = self.model.weight_table()
        by_id = {id(weight.variable): weight for weight in self.table}
        self.optimizer = Adagrad(
            self.model.trainable_variables, options.learning_rate, options.all_clip_norm_val
        )
        self.accumulators = {
            by_id[id(variable)].checkpoint: accumulator
            for variable, accumulator in zip(
                self.model.trainable_variables, self.optimizer.accumulators, strict=True
            )
        }

    @property
    def epoch(self) -> int:
        """The pass over the training tokens that the last step was of, from 1."""
        return 1 + (self.done - 1) // self.steps_per_epoch

    @property
    def learning_rate(self) -> float:
        """Of the step that comes next."""
        factor = self.settings.schedule.factor(self.done, self.n_steps)
        return self.options.learning_rate * factor

    def restart(self, ckpt_file: str) -> None:
        """Take over everything that a checkpoint holds.

        With batches of another shape, as many tokens count as done, and the rows start anew.
        """
        accumulators = [self.accumulators[weight.checkpoint] for weight in self.table]
        with self.replicas.scope():
            load_variables(ckpt_file, self.table, accumulators)
        self.global_step = read_step(ckpt_file)
        record = read_record(ckpt_file)
        if record is None:
            return
        self.global_step = record["step"]
        # Random numbers follow from the seed and the step: the seed goes with the count.
        self.settings = RunSettings(
            record["seed"], self.settings.precision, self.settings.schedule,
            recorded_settings(record).init_from,
        )  # fmt: skip
        self.seconds = record.get("seconds", 0.0)
        self.perplexity = record["train_perplexity"]
        self.standing = Standing.from_dict(record.get("heldout", {}))
        places = _recorded_states(record, ckpt_file)
        n_rows, n_steps = record["batch_shape"]
        worker = self.replicas.worker
        if ((n_rows, n_steps), len(places)) == (self.batch_shape, worker.count):
            self.done, self.place = record["done"], places[worker.index]
            zeros = self.model.network.zero_states(n_rows)
            self.states = self.step.own_states(load_states(ckpt_file, zeros))
            return
        # No row goes on in a row of another batch: its sentence is left, its state is zero.
        logger.warning(
            "%s: batches were %d rows by %d tokens and are now %d by %d%s; the LSTM states start "
            "at zero, and the text goes on with new sentences",
            ckpt_file, n_rows, n_steps, *self.batch_shape, _change(len(places), worker.count),
        )  # fmt: skip
        self.done = record["done"] * n_rows * n_steps // self.tokens_per_step
        self.place = self._place_behind([place for place in places if place is not None])

    def _place_behind(self, places: list[IteratorState]) -> IteratorState | None:
        """Where this worker goes on behind batches of another shape, or of other workers."""
        worker = self.replicas.worker
        if not places:
            return None
        if len(places) == worker.count:
            return places[worker.index].with_batches(*self.feed_shape)
        first = min(places, key=lambda place: place.shard)
        return first.with_worker(*worker.share).with_batches(*self.feed_shape)

    def inputs(self, data: Any) -> Iterator[tuple[StepInputs, IteratorState | None]]:
        """The inputs of the steps that are left, and the place in the corpus after each.

        Raises:
            InputError: a batch does not fit the options.
        """
        shape, marks = self.feed_shape, self._marks(data)
        if deciding_method(data, "iter_distinct", "iter_batches") == "iter_distinct":
            resumed = {} if self.place is None else {"state": self.place}
            batches = data.iter_distinct(*shape, **resumed)
        else:
            batches = data.iter_batches(*shape)
        if self.done and self.place is None:
            logger.warning("the data cannot resume where the run was: its text begins anew")
        # The count first: when it ends, no batch is drawn that nobody will use.
        for step, batch in zip(range(self.done, self.n_steps), batches, strict=False):
            if isinstance(batch, Batch) and not batch.mask.all():
                return  # the text has ended within this batch, which the original left out as well
            feed = make_feed(batch, self.options, shape)
            place = getattr(batch, "state", None)
            yield self.step.inputs(feed, step, self.settings.seed, marks), place

    def _marks(self, data: Any) -> Marks | None:
        """By which inputs the begin of a sentence is known."""
        if self.options.char_cnn is not None or not self.options.reset_rate:
            return None
        vocabulary = getattr(data, "vocab", None)
        if vocabulary is None:
            raise InputError(
                f"reset_rate = {self.options.reset_rate}: the data has no vocab, whose ids of <S> "
                "and </S> tell where a sentence begins; give it one, or train with reset_rate = 0."
            )
        return Marks(vocabulary.bos, vocabulary.eos)

    def advance(self, inputs: StepInputs, place: IteratorState | None) -> None:
        """Do a step.

        Args:
            inputs: of the step.
            place: where the corpus goes on after its batch.

        Raises:
            NotFiniteError: the loss is not; the count, states and place stay as they were.
            WorkersError: another worker has gone.
        """
        self.last_learning_rate = self.learning_rate
        with self.replicas.scope():
            self.optimizer.learning_rate.assign(self.last_learning_rate)
        losses, states = self.step(inputs, self.states)
        loss = float(np.mean(losses.numpy()))
        if not math.isfinite(loss):
            raise NotFiniteError(f"Step {self.global_step + 1}: the loss is {loss}.")
        self.states, self.place = states, place
        self.done += 1
        self.global_step += 1
        self.perplexity = exp_of_loss(loss)

    def mean_states(self) -> tuple[States, ...]:
        """This worker's LSTM states averaged over its rows: (1, ...) of each direction."""
        local = self.states if self.replicas.strategy is None else self.states[0]
        return mean_over_rows(local)

    def save(self, folder: str, keep: int, seconds: float) -> str:
        """Write a checkpoint, which the chief does for all; return its prefix.

        Args:
            folder: of the run.
            keep: how many checkpoints to keep.
            seconds: of the run's steps so far.

        Raises:
            NotFiniteError: a value is not finite; nothing is written.
            OSError: the disk does not take it.
            WorkersError: another worker has gone, or could not write.
        """
        tensors: dict[str, Any] = {}
        for weight in self.table:
            tensors[weight.checkpoint] = weight.variable.value
            tensors[accumulator_name(weight)] = self.accumulators[weight.checkpoint]
        tensors |= named_states(self.step.whole_states(self.states))
        for name, tensor in tensors.items():
            if not tf.reduce_all(tf.math.is_finite(tensor)):
                raise NotFiniteError(f"Step {self.global_step}: {name} has values not finite.")
        team = self.replicas.team
        places = team.exchange(None if self.place is None else self.place.to_dict())
        if team.worker.is_chief:
            with team.own_work():
                save_checkpoint(
                    folder, self.global_step, tensors, self._record(seconds, places), keep
                )
        team.exchange()
        return checkpoint_prefix(folder, self.global_step)

    def _record(self, seconds: float, places: list[Any]) -> dict[str, Any]:
        return {
            "step": self.global_step,
            "done": self.done,
            "seed": self.settings.seed,
            "batch_shape": list(self.batch_shape),
            "seconds": seconds,
            "iterator_state": places if len(places) > 1 else places[0],
            "train_perplexity": self.perplexity,
            "run": self.settings.to_dict(),
            "heldout": self.standing.to_dict(),
        }
