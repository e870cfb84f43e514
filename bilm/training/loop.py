"""The training loop: `train` sets up a run, `Trainer` goes through its steps."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bilm.core.errors import (
    InputError,
    NotFiniteError,
    TrainingError,
    WorkerLostError,
    integer,
    real,
    require,
    require_at_least,
)
from bilm.core.options import Options
from bilm.data import prefetch
from bilm.files import checkpoints
from bilm.files.locks import training_lock
from bilm.files.reading import OPTIONS_FILE, PathLike, require_path
from bilm.files.writing import write_json
from bilm.inference.scorer import Perplexity, Scorer
from bilm.intervals import Interval, parse_duration
from bilm.training import planning
from bilm.training.evaluation import evaluate
from bilm.training.fine_tuning import load_pretrained
from bilm.training.interrupts import Interrupts
from bilm.training.log import RunLog
from bilm.training.optimizer import Schedule
from bilm.training.replicas import ProcessGroup, find_replicas
from bilm.training.run_state import (
    HeldoutState,
    RunSettings,
    RunState,
    TrainingProgress,
    TrainingRecord,
    mean_over_rows,
)
from bilm.training.softmax_start import SoftmaxStart, softmax_start
from bilm.training.step import Run

logger = logging.getLogger(__name__)

Progress = Callable[[TrainingProgress], bool | None]

_LOG_EVERY = 10  # steps
_READ_AHEAD = 4  # batches
_HELDOUT_ROWS = 128
# Errors after which the finished steps cannot be saved, and what may help.
_HINTS: dict[type, str] = {
    NotFiniteError: " A lower learning_rate may help.",
    WorkerLostError: " To resume from it, start the same command for all workers.",
}


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
    progress: Progress | None = None,
    schedule: Schedule | str | None = None,
    heldout: Any = None,
    heldout_every: str = "epoch",
    patience: int | None = None,
    init_from: PathLike | None = None,
    init_vocab: PathLike | None = None,
    tensorboard: bool = False,
    time_limit: str | None = None,
) -> TrainingRecord:
    """Train a language model.

    Args:
        options: training options; `n_train_tokens` is counted if it is missing.
        data: a data set of `bilm.data`, or an object with `iter_batches(batch_size,
            unroll_steps)` that yields dicts with token_ids, tokens_characters, next_token_id and
            the same with _reverse.
        n_gpus: devices of this machine; each takes `batch_size` rows. With TF_CONFIG, see
            `find_replicas`, the devices of the other workers join them, and `data` and `heldout`
            are this worker's share.
        tf_save_dir: folder of options.json and the checkpoints; created if it is missing.
        tf_log_dir: folder of the log, one JSON object per line; None writes no log.
        restart_ckpt_file: prefix of a checkpoint to resume from. After a checkpoint of the
            original program, LSTM states and text start afresh.
        seed: random seed; a resumed run keeps its own.
        precision: "float32", or "bfloat16" for matrix products in bfloat16.
        save_minutes: time between checkpoints; one is always written at the end.
        keep_checkpoints: number of checkpoints to keep.
        progress: called after every step; returning True ends the run.
        schedule: learning rate schedule, a `Schedule` or "constant", "linear" or "cosine"; None
            takes it from the options.
        heldout: held-out text, preferably a data set of `bilm.data` with test=True. It is
            evaluated at the end and every `heldout_every`, and the best model is kept in the
            folder `best` within `tf_save_dir`.
        heldout_every: "epoch", "500 steps", "30 min" and the like.
        patience: end the run after this many evaluations in a row without a new best; None: never.
        init_from: start with the weights of a model, see `bilm.files.model_files`.
        init_vocab: that model's vocabulary; None takes the vocab.txt next to it, or inside it.
        tensorboard: also write TensorBoard's files, next to the log.
        time_limit: train for about this long, such as "30min" or "2h": the speed of the first
            steps determines the number of steps. A resumed run keeps its number.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        InputError: the options are wrong, the data or the checkpoint do not fit them, the folder
            holds a trained model that would be overwritten, or another process trains into it.
        OSError: a file cannot be written.
        TrainingError: the loss is not finite, or another worker stopped; the last checkpoint is
            intact.
    """
    extra: Mapping[str, Any] = {}
    if not isinstance(options, Options):
        extra, options = options, Options.from_dict(options, training=True)
    if patience is not None and heldout is None:
        raise InputError("patience needs a held-out text.")
    if tensorboard and tf_log_dir is None:
        raise InputError("tensorboard needs tf_log_dir, where its files are written.")
    require(integer(), keep_checkpoints=keep_checkpoints)
    require_at_least(1, patience=patience)
    require(integer(0), seed=seed)
    require(real(0), save_minutes=save_minutes)
    if schedule is None:
        schedule = Schedule(options.schedule, options.warmup_steps)
    elif isinstance(schedule, str):
        schedule = Schedule(schedule)
    if restart_ckpt_file is not None:
        require_path(restart_ckpt_file, "restart_ckpt_file")
    started_from = None if init_from is None else require_path(init_from, "init_from")
    settings = RunSettings(seed, precision, schedule, started_from)
    seconds = None if time_limit is None else parse_duration(time_limit)
    every = Interval.parse(heldout_every)
    replicas = find_replicas(n_gpus)
    group, is_chief = replicas.group, replicas.worker.is_chief
    with contextlib.ExitStack() as stack:
        with group.deferred_errors():
            if is_chief:
                stack.enter_context(training_lock(tf_save_dir))
            is_own = planning.check_folder(tf_save_dir, restart_ckpt_file)
            if heldout is not None or restart_ckpt_file is not None:
                checkpoints.require_own_best(tf_save_dir, is_own)
            planning.check_shares(replicas.worker, data, heldout)
            options = planning.with_train_tokens(options, data)
            log = None
            if is_chief and tf_log_dir is not None:
                log = RunLog(tf_log_dir, tensorboard)
        plan = {"heldout": heldout is not None and (heldout_every, patience),
                "checkpoint": os.path.basename(restart_ckpt_file or "")}  # fmt: skip
        group.require_same(options.training_dict() | dataclasses.asdict(settings) | plan)
        start = SoftmaxStart()
        if restart_ckpt_file is None:
            begun = time.monotonic()
            start = softmax_start(options, data, replicas)
            if seconds is not None:
                seconds -= time.monotonic() - begun
                n_steps = planning.steps_for(seconds, options, data, replicas, settings)
                options = dataclasses.replace(options, n_steps=n_steps)
        tokens_per_step = options.batch_size * replicas.n * options.unroll_steps
        options = planning.choose_length(options, tokens_per_step)
        run = Run(options, replicas, settings, data)
        with group.deferred_errors():
            score = None
            if heldout is not None:
                _ = getattr(heldout, "n_train_tokens", None)  # finds errors before the first step
                score = functools.partial(evaluate, Scorer(run.model), heldout, _HELDOUT_ROWS)
            folder, save_seconds = os.fspath(tf_save_dir), save_minutes * 60
            trainer = Trainer(
                run, folder, save_seconds, keep_checkpoints, log, progress, score, every, patience
            )
            run.assign_softmax(start)
            if is_chief:
                planning.record_word_counts(trainer.record, data, heldout)
            best: str | None = None
            if restart_ckpt_file is not None:
                best = trainer.restart(restart_ckpt_file, is_own)
            elif init_from is not None:
                with replicas.scope():
                    words = getattr(data, "vocab", None)
                    carried = load_pretrained(init_from, init_vocab, run.model, words)
                    trainer.record.words_carried = carried
            if is_chief:
                contents = {**extra, **options.training_dict()}
                write_json(os.path.join(tf_save_dir, OPTIONS_FILE), contents)
                if best is not None:
                    checkpoints.keep_best(tf_save_dir, best)
        group.all_gather()
        return trainer.train()


@dataclass
class Trainer:
    """The training loop of a run, with its logs, evaluations, checkpoints and progress reports."""

    run: Run
    folder: str
    save_seconds: float
    keep: int
    log: RunLog | None
    progress: Progress | None
    score: Callable[..., Perplexity] | None  # of the held-out text, or of this worker's share
    every: Interval
    patience: int | None
    record: TrainingRecord = field(init=False)
    _signals: Interrupts = field(default_factory=Interrupts)
    _saved: RunState | None = None  # the state of the run in the last checkpoint
    _saved_at: float = field(default_factory=time.monotonic)
    _evaluated_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.record = TrainingRecord(self.run.state, self.run.state)

    @property
    def _group(self) -> ProcessGroup:
        return self.run.replicas.group

    def restart(self, ckpt_file: str, is_own: bool) -> str | None:
        """Resume from a checkpoint; one of the folder's own need not be saved again.

        Returns the checkpoint of the best model so far, if the folder may still lack it.
        """
        run = self.run
        run.restart(ckpt_file)
        best_step = run.state.heldout.best_step
        if is_own:
            self.record.checkpoint, self._saved = ckpt_file, run.state
            # A crash may have come before the checkpoint was kept as the best one.
            return ckpt_file if best_step == run.state.step else None
        if best_step is None:
            return None
        best = checkpoints.find_best(ckpt_file, best_step)
        if best is None:
            run.state = dataclasses.replace(run.state, heldout=HeldoutState())
            logger.warning(
                "%s: the best model of its run (step %d) is missing next to it: the best "
                "perplexity and patience start again", ckpt_file, best_step,
            )  # fmt: skip
        return best

    def train(self) -> TrainingRecord:
        run, record = self.run, self.record
        with self._group.deferred_errors():
            if self.log is not None:
                self.log.go_back(run.state.step)
        record.first = record.state = run.state
        run.start_clock()
        with self._signals.handled(), self._rescuing():
            with contextlib.closing(prefetch(run.inputs(), _READ_AHEAD)) as batches:
                self._train_steps(batches)
            if run.state.done == 0:
                raise InputError(
                    "The data holds no batch of {} rows by {} tokens.".format(*run.feed_shape)
                )
            self._evaluate(True)
            self._save()
            with self._group.deferred_errors():
                if self._group.worker.is_chief:
                    checkpoints.tidy_folder(self.folder, run.state.step, self.keep)
            self._group.all_gather()
        record.state = run.state
        return record

    def _train_steps(self, batches: Iterator[Any]) -> None:
        """The training loop: rate, step, log, evaluate, save, report."""
        run, record, event = self.run, self.record, None
        self._evaluate()  # the last step of an earlier call may not have been evaluated
        while True:
            batch, save_is_due, evaluation_is_due = self._next(batches, event)
            if batch is None:
                return
            rate = run.set_learning_rate()
            run.train_step(*batch)
            record.state = run.state
            perplexity = run.state.train_perplexity
            record.train_perplexity.append(perplexity)
            if run.state.done % _LOG_EVERY == 0 or run.state.done in (1, run.n_steps):
                self._log(
                    train_perplexity=perplexity if math.isfinite(perplexity) else None,
                    sampled=run.model.samples,
                    learning_rate=rate,
                )
            heldout = self._evaluate(evaluation_is_due)
            if save_is_due:
                self._save()
            event = TrainingProgress(
                run.state.done,
                run.n_steps,
                run.epoch,
                perplexity,
                record.n_tokens,
                record.seconds,
                heldout=heldout,
                is_best=heldout is not None and run.state.heldout.best_step == run.state.step,
                global_step=run.state.step,
            )

    def _next(
        self, batches: Iterator[Any], event: TrainingProgress | None
    ) -> tuple[Any, bool, bool]:
        """Report progress; return the next batch, and whether to save and evaluate after its step.

        The batch is None if the run is to end. Several workers continue together or not at all;
        the chief's clock decides.
        """
        batch, run = None, self.run
        with self._group.deferred_errors():
            is_stopped = event and self.progress and self.progress(event)
            self._signals.due()
            if not is_stopped:
                if self.patience is not None and run.state.heldout.since_best >= self.patience:
                    self.record.stopped_early = run.state.done < run.n_steps
                else:
                    batch = next(batches, None)
        now = time.monotonic()
        save_is_due = now - self._saved_at > self.save_seconds
        evaluation_is_due = (
            self.every.unit == "seconds" and now - self._evaluated_at >= self.every.number
        )
        plans = self._group.all_gather((batch is None, save_is_due, evaluation_is_due))
        return None if any(end for end, *_ in plans) else batch, plans[0][1], plans[0][2]

    def _log(self, **facts: Any) -> None:
        run, state = self.run, self.run.state
        if self.log is not None:
            with self._group.deferred_errors():
                self.log.write(
                    step=state.step,
                    epoch=run.epoch,
                    **facts,
                    tokens=state.done * state.tokens_per_step,
                    seconds=round(state.seconds, 3),
                )

    def _evaluate(self, is_due: bool = False) -> Perplexity | None:
        """Measure the held-out text if the interval has passed or `is_due`, but once per step; each
        worker scores its share. Keep the best model."""
        run, step = self.run, self.run.state.step
        is_due = is_due or self.every.falls_on(run.state.done, run.steps_per_epoch)
        if self.score is None or not is_due or run.state.heldout.measured_at == step:
            return None
        mine: Any = None
        with self._group.deferred_errors():
            share = self.score(
                training_states=mean_over_rows(run.lstm_states[0]),
                show=lambda _: self._signals.due(),
            )
            mine = share.losses.tolist(), share.n_predictions
        losses, counts = zip(*self._group.all_gather(mine), strict=True)
        perplexity = Perplexity.of_losses(np.sum(losses, axis=0), sum(counts))
        perplexity.unknown, perplexity.start_ratio = share.unknown, share.start_ratio
        self._evaluated_at = time.monotonic()
        heldout = run.state.heldout.after(perplexity, step)
        run.state = dataclasses.replace(run.state, heldout=heldout)
        if self._group.worker.is_chief:
            perplexity.warn_if_lost(run.options.reset_rate)
        ratios = perplexity.start_ratios().items()
        self._log(
            heldout_perplexity=float(perplexity),
            heldout_forward=perplexity.forward,
            heldout_backward=perplexity.backward,
            best=heldout.best_step == step,
            **{f"start_ratio_{name}": ratio for name, ratio in ratios if math.isfinite(ratio)},
        )
        self.record.heldout.append((step, perplexity))
        if heldout.best_step == step:
            ckpt_file = self._save()
            with self._group.deferred_errors():
                if self._group.worker.is_chief:
                    checkpoints.keep_best(self.folder, ckpt_file)
        return perplexity

    def _save(self) -> str:
        """Write a checkpoint if anything has changed since the last one; return the last one."""
        if self.record.checkpoint is None or self._saved is not self.run.state:
            self.record.checkpoint = self.run.save(self.folder, self.keep)
            self._saved = self.run.state
        self._saved_at = time.monotonic()
        return self.record.checkpoint

    @contextlib.contextmanager
    def _rescuing(self) -> Iterator[None]:
        """On an error, save the finished steps and name the checkpoint to resume from."""
        try:
            yield
        except KeyboardInterrupt:
            if not self._signals.insisted:
                self._rescue()
            raise
        except (InputError, OSError, TrainingError) as error:
            hint = _HINTS.get(type(error))
            if hint is None and self.record.n_steps == 0:
                raise
            text = str(error)
            if isinstance(error, OSError) and error.strerror is not None:
                text = f"{error.filename}: {error.strerror}."
            if hint is None:
                self._rescue()
            found = list(checkpoints.list_checkpoints(self.folder).values())
            last = f"the last checkpoint is {found[-1]}" if found else "there is no checkpoint"
            text += f" Training stopped after step {self.run.state.step}; {last}."
            raise type(error)(text + (hint or "")) from error

    def _rescue(self) -> None:
        """Save the finished steps, if any."""
        if self.record.n_steps > 0:
            try:
                self._save()
            except (OSError, TrainingError) as error:
                logger.warning("not saved: %s", error)
