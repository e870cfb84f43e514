"""The training run: batches in, checkpoints and a record out."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bilm.data import Place, prefetch
from bilm.errors import InputError, TrainingError
from bilm.files import PathLike, write_json
from bilm.options import Options
from bilm.training.checkpoint import (
    OPTIONS_FILE,
    accumulator_name,
    holds_model,
    load_states,
    load_variables,
    named_states,
    read_record,
    read_step,
    save_checkpoint,
)
from bilm.training.feed import make_feed
from bilm.training.language_model import LanguageModel
from bilm.training.optimizer import Adagrad
from bilm.training.run_log import RunLog
from bilm.training.step import StepInputs, TrainingStep, find_devices

logger = logging.getLogger(__name__)

_LOG_EVERY = 10  # steps
_READ_AHEAD = 4  # batches


@dataclass(frozen=True)
class TrainingProgress:
    """Where a run stands after a step.

    Attributes:
        step: steps of this run so far, those before an interruption among them.
        n_steps: steps of the whole run.
        epoch: the pass over the training tokens, from 1.
        perplexity: of the step's batch before its update, of both directions; with a sampled
            softmax it is the sampled one, which is lower than the true one.
        tokens: tokens that this call has trained on.
        seconds: since the first step of this call began.
    """

    step: int
    n_steps: int
    epoch: int
    perplexity: float
    tokens: int
    seconds: float


@dataclass
class TrainingRecord:
    """What a run did.

    Attributes:
        train_perplexity: exp(loss) of every step of this call, each before its update.
        n_steps: steps of this call.
        n_tokens: tokens that they trained on.
        seconds: how long they took.
        checkpoint: prefix of the last checkpoint.
    """

    train_perplexity: list[float] = field(default_factory=list)
    n_steps: int = 0
    n_tokens: int = 0
    seconds: float = 0.0
    checkpoint: str | None = None


def train(
    options: Mapping[str, Any] | Options,
    data: Any,
    n_gpus: int,
    tf_save_dir: PathLike,
    tf_log_dir: PathLike | None,
    restart_ckpt_file: str | None = None,
    *,
    seed: int = 0,
    precision: str = "float32",
    save_minutes: float = 10.0,
    keep_checkpoints: int = 2,
    progress: Callable[[TrainingProgress], bool | None] | None = None,
) -> TrainingRecord:
    """Train a language model.

    Args:
        options: training options. `n_train_tokens` is obeyed if given, otherwise counted.
        data: a data set of `bilm.data`, or anything with `iter_batches(batch_size,
            unroll_steps)` that yields dicts of token_ids, tokens_characters, next_token_id and
            the same with _reverse.
        n_gpus: devices; each takes `batch_size` rows.
        tf_save_dir: folder of options.json and the checkpoints; made when it is missing.
        tf_log_dir: folder of the log, a JSON object a line; None writes none.
        restart_ckpt_file: prefix of a checkpoint to go on from: one of ours, which brings its
            place in the corpus and its LSTM states, or one of the original's, which has neither
            and starts a new count of steps.
        seed: of initial values, dropout and samples.
        precision: "float32", or "bfloat16" for products in bfloat16.
        save_minutes: time between checkpoints; one is always written at the end.
        keep_checkpoints: how many to keep.
        progress: called after every step; returning True ends the run there.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        InputError: the options are not right, the data or the checkpoint do not fit them, or
            the folder holds a trained model that would be overwritten.
        TrainingError: the loss is not finite; the last checkpoint is good.
    """
    given = {} if isinstance(options, Options) else dict(options)
    if not isinstance(options, Options):
        options = Options.from_dict(options, training=True)
    find_devices(n_gpus)
    _check_folder(tf_save_dir, restart_ckpt_file)
    options = _with_train_tokens(options, data)
    run = _Run(options, n_gpus, seed, precision)
    if restart_ckpt_file is not None:
        run.restart(restart_ckpt_file)
    os.makedirs(tf_save_dir, exist_ok=True)
    write_json(os.path.join(tf_save_dir, OPTIONS_FILE), given | options.training_dict())
    log = RunLog(tf_log_dir) if tf_log_dir is not None else None
    saver = _Saver(os.fspath(tf_save_dir), save_minutes * 60, keep_checkpoints)
    return run.go(data, saver, log, progress)


def _check_folder(tf_save_dir: PathLike, restart_ckpt_file: str | None) -> None:
    folder = os.path.realpath(tf_save_dir)
    own = restart_ckpt_file and os.path.dirname(os.path.realpath(restart_ckpt_file)) == folder
    if holds_model(tf_save_dir) and not own:
        raise InputError(
            f"{os.fspath(tf_save_dir)}: the folder holds a trained model; it is not overwritten. "
            f"Restart from its checkpoint, or choose another folder."
        )


def _with_train_tokens(options: Options, data: Any) -> Options:
    if options.n_train_tokens is not None:
        return options
    counted = getattr(data, "n_train_tokens", None)
    if counted is None:
        raise InputError("options: n_train_tokens is missing, and the data cannot count them.")
    return Options.from_dict(options.training_dict() | {"n_train_tokens": counted}, training=True)


@dataclass
class _Saver:
    """Where and how often checkpoints are written."""

    folder: str
    seconds: float
    keep: int


class _Run:
    """The values of a run: model, optimizer, LSTM states, place in the corpus, steps."""

    def __init__(self, options: Options, n_gpus: int, seed: int, precision: str) -> None:
        self.options = options
        self.seed = seed
        self.batch_size = options.batch_size * n_gpus
        self.tokens_per_step = self.batch_size * options.unroll_steps
        self.steps_per_epoch = max(1, (options.n_train_tokens or 0) // self.tokens_per_step)
        self.n_steps = options.n_epochs * self.steps_per_epoch
        self.model = LanguageModel(options, seed=seed, precision=precision, compiled=True)
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
        self.step = TrainingStep(self.model, self.optimizer, self.batch_size, n_gpus)
        self.states = self.model.zero_states(self.batch_size)
        self.place: Place | None = None
        self.global_step = 0
        self.done = 0

    def restart(self, ckpt_file: str) -> None:
        """Take over everything that a checkpoint holds."""
        accumulators = [self.accumulators[weight.checkpoint] for weight in self.table]
        load_variables(ckpt_file, self.table, accumulators)
        self.global_step = read_step(ckpt_file)
        record = read_record(ckpt_file)
        if record is None:
            return
        self.global_step, self.done, self.seed = record["step"], record["done"], record["seed"]
        self.states = load_states(ckpt_file, self.states)
        if record["place"] is not None:
            self.place = Place.from_dict(record["place"])

    def save(self, saver: _Saver, perplexity: float) -> str:
        """Write a checkpoint; return its prefix."""
        tensors: dict[str, Any] = {}
        for weight in self.table:
            tensors[weight.checkpoint] = weight.variable.value
            tensors[accumulator_name(weight)] = self.accumulators[weight.checkpoint]
        record = {
            "step": self.global_step,
            "done": self.done,
            "seed": self.seed,
            "place": None if self.place is None else self.place.to_dict(),
            "train_perplexity": perplexity,
        }
        tensors |= named_states(self.states)
        return save_checkpoint(saver.folder, self.global_step, tensors, record, saver.keep)

    def go(
        self,
        data: Any,
        saver: _Saver,
        log: RunLog | None,
        progress: Callable[[TrainingProgress], bool | None] | None,
    ) -> TrainingRecord:
        """Train until the last step, the end of the data, or a wish of `progress`."""
        record = TrainingRecord()
        start = saved_at = time.monotonic()
        with contextlib.closing(prefetch(self._inputs(data), _READ_AHEAD)) as batches:
            try:
                for inputs, place in batches:
                    perplexity = self._advance(inputs, place)
                    record.train_perplexity.append(perplexity)
                    record.n_steps += 1
                    record.n_tokens += self.tokens_per_step
                    now = time.monotonic()
                    record.seconds = now - start
                    if now - saved_at > saver.seconds:
                        record.checkpoint = self.save(saver, perplexity)
                        saved_at = time.monotonic()
                    if self._tell(record, perplexity, log, progress):
                        break
            except KeyboardInterrupt:
                if record.n_steps:
                    self.save(saver, record.train_perplexity[-1])
                raise
        if record.n_steps == 0 and self.done == 0:
            raise InputError(
                f"The data holds no batch of {self.batch_size} rows by "
                f"{self.options.unroll_steps} tokens."
            )
        last = record.train_perplexity[-1] if record.n_steps else 0.0
        record.checkpoint = self.save(saver, last)
        return record

    def _inputs(self, data: Any) -> Iterator[tuple[StepInputs, Place | None]]:
        """The inputs of the steps that are left, and the place in the corpus after each."""
        shape = (self.batch_size, self.options.unroll_steps)
        if hasattr(data, "iter_distinct"):
            batches = data.iter_distinct(*shape, place=self.place)
        else:
            batches = data.iter_batches(*shape)
        # The count first: when it ends, no batch is drawn that nobody will use.
        for step, batch in zip(range(self.done, self.n_steps), batches, strict=False):
            feed = make_feed(batch, self.options)
            place = getattr(batch, "place", None)
            yield self.step.inputs(feed, step, self.seed), place

    def _advance(self, inputs: StepInputs, place: Place | None) -> float:
        """Do a step; return the batch's perplexity before it."""
        losses, states = self.step(inputs, self.states)
        loss = float(np.mean(losses.numpy()))
        if not math.isfinite(loss):
            raise TrainingError(
                f"Step {self.global_step + 1}: the loss is {loss}; training stops. Nothing was "
                f"saved since the last checkpoint. A lower learning_rate may help."
            )
        self.states, self.place = states, place
        self.done += 1
        self.global_step += 1
        # Beyond the largest float, a perplexity is as good as infinite.
        return math.exp(loss) if loss < 700 else math.inf

    def _tell(
        self,
        record: TrainingRecord,
        perplexity: float,
        log: RunLog | None,
        progress: Callable[[TrainingProgress], bool | None] | None,
    ) -> bool:
        """Log a step and pass it on; return whether `progress` wants to end the run."""
        epoch = 1 + (self.done - 1) // self.steps_per_epoch
        if log is not None and (self.done % _LOG_EVERY == 0 or record.n_steps == 1):
            log.write(
                step=self.global_step,
                epoch=epoch,
                train_perplexity=perplexity,
                sampled=self.model.samples,
                tokens=record.n_tokens,
                seconds=round(record.seconds, 3),
            )
        if progress is None:
            return False
        event = TrainingProgress(
            self.done, self.n_steps, epoch, perplexity, record.n_tokens, record.seconds
        )
        return bool(progress(event))
