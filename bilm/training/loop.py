"""The training loop: `train`, from options and data to a trained model in a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bilm.core.errors import (
    MOST_SEED,
    InputError,
    NotFiniteError,
    TrainingError,
    WorkerLostError,
    WorkersError,
    real,
    require,
    require_at_least,
    require_count,
)
from bilm.core.options import Options
from bilm.data import prefetch
from bilm.files.checkpoints import holds_checkpoint, is_whole, list_checkpoints
from bilm.files.reading import OPTIONS_FILE, PathLike, require_name, require_path, require_utf8
from bilm.files.writing import write_json
from bilm.training.evaluation import Perplexity, Scorer, evaluate
from bilm.training.fine_tuning import load_pretrained
from bilm.training.heldout import Interval, Monitor
from bilm.training.log import RunLog, TensorBoardLog, TrainingProgress, TrainingRecord
from bilm.training.optimizer import Schedule
from bilm.training.planning import choose_length, parse_duration, steps_for
from bilm.training.process import Interrupts, folder_lock, interrupts
from bilm.training.replicas import ProcessGroup, Worker, find_replicas
from bilm.training.run import Run
from bilm.training.run_checkpoint import (
    HeldoutState,
    RunSettings,
    find_best,
    keep_best,
    require_own_best,
    tidy_folder,
)
from bilm.training.verdict import unigram_perplexity, unknown_warning

logger = logging.getLogger(__name__)

Progress = Callable[[TrainingProgress], bool | None]

_LOG_EVERY = 10  # steps
_READ_AHEAD = 4  # batches
_HELDOUT_ROWS = 128
_SAMPLED_TOKENS = 1_000_000


class Saving(NamedTuple):
    """Where checkpoints are written, the seconds between two of them, and how many stay."""

    folder: str
    seconds: float
    keep: int


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
        options: training options. `n_train_tokens` is obeyed if given, otherwise counted.
        data: a data set of `bilm.data`, or anything with `iter_batches(batch_size,
            unroll_steps)` that yields dicts of token_ids, tokens_characters, next_token_id and
            the same with _reverse.
        n_gpus: devices of this machine; each takes `batch_size` rows. Under TF_CONFIG, see
            `find_replicas`, the other workers' join them, and `data` and `heldout` are the share
            of this worker.
        tf_save_dir: folder of options.json and the checkpoints; made when it is missing.
        tf_log_dir: folder of the log, a JSON object a line; None writes none.
        restart_ckpt_file: prefix of a checkpoint to resume from: one of ours, which brings its
            LSTM states and how far the corpus was read, or one of the original's, which has
            neither and starts a new count of steps.
        seed: of initial values, dropout and samples; a run that is resumed keeps its own.
        precision: "float32", or "bfloat16" for products in bfloat16.
        save_minutes: time between checkpoints; one is always written at the end.
        keep_checkpoints: how many to keep.
        progress: called after every step; returning True ends the run there.
        schedule: of the learning rate, see `Schedule`: "constant", "linear" or "cosine"; None is
            that of the options.
        heldout: a held-out text, best a data set of `bilm.data` with test=True: it is measured as
            `test` does, at the end and every `heldout_every`, and the best model is kept in the
            folder `best` within `tf_save_dir`.
        heldout_every: "epoch", "500 steps", "30 min" and the like.
        patience: end the run when this many measurements in a row were not the best; None never.
        init_from: begin with the weights of a model, see `bilm.files.model_files`.
        init_vocab: the vocabulary of that model; None is the vocab.txt beside it, or in it.
        time_limit: train for about this long, such as "30min" or "2h": the speed of the first
            steps decides the number of steps. A resumed run keeps its number.
        tensorboard: write TensorBoard's files beside the log; needs the package tensorboard.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        InputError: the options are not right, the data or the checkpoint do not fit them,
            the folder holds a trained model that would be overwritten, or another process trains
            into it.
        OSError: the disk does not take what is written.
        TrainingError: the loss is not finite, or another worker has gone; the last checkpoint
            is good.
    """
    extra: dict[str, Any] = {}
    if not isinstance(options, Options):
        given, options = options, Options.from_dict(options, training=True)
        extra = dict(given)
    if patience is not None and heldout is None:
        raise InputError("patience: it needs a held-out text.")
    require_count(keep_checkpoints=keep_checkpoints)
    require_at_least(1, patience=patience)
    require_at_least(0, MOST_SEED, seed=seed)
    require(real(0), save_minutes=save_minutes)
    if schedule is None:
        schedule = Schedule(options.schedule, options.warmup_steps)
    elif isinstance(schedule, str):
        schedule = Schedule(schedule)
    require_name(tf_save_dir)
    if restart_ckpt_file is not None:
        require_path(restart_ckpt_file, "restart_ckpt_file")
    started_from = None if init_from is None else require_path(init_from, "init_from")
    settings = RunSettings(seed, precision, schedule, started_from)
    seconds = None if time_limit is None else parse_duration(time_limit)
    saving = Saving(os.fspath(tf_save_dir), save_minutes * 60, keep_checkpoints)
    replicas = find_replicas(n_gpus)
    group, is_chief = replicas.group, replicas.worker.is_chief
    with contextlib.ExitStack() as stack:
        with group.deferred_errors():
            if is_chief:
                stack.enter_context(folder_lock(require_utf8(tf_save_dir)))
            is_own = _check_folder(tf_save_dir, restart_ckpt_file)
            if heldout is not None or restart_ckpt_file is not None:
                require_own_best(tf_save_dir, is_own)
            _check_shares(replicas.worker, data, heldout)
            options = _with_train_tokens(options, data)
            logs = _open_logs(tf_log_dir, tensorboard) if is_chief else []
        told = {"heldout": heldout is not None and (heldout_every, patience),
                "checkpoint": os.path.basename(restart_ckpt_file or "")}  # fmt: skip
        group.require_same(options.training_dict() | dataclasses.asdict(settings) | told)
        if restart_ckpt_file is None and seconds is not None:
            n_steps = steps_for(seconds, options, data, replicas, settings)
            options = dataclasses.replace(options, n_steps=n_steps)
        options = choose_length(options, options.batch_size * replicas.n * options.unroll_steps)
        run = Run(options, replicas, settings)
        with group.deferred_errors():
            monitor = None if heldout is None else _monitor(run, heldout, heldout_every, patience)
            trainer = Trainer(run, data, saving, logs, monitor, progress)
            if restart_ckpt_file is None and options.softmax_bias == "unigram":
                _start_bias(run, data)
            if is_chief:
                _count_words(trainer.record, data, heldout)
            if restart_ckpt_file is not None:
                trainer.restart(restart_ckpt_file, is_own)
            elif init_from is not None:
                with replicas.scope():
                    trainer.record.words_carried = load_pretrained(
                        init_from, init_vocab, run.model, getattr(data, "vocab", None)
                    )
            if is_chief:
                write_json(os.path.join(tf_save_dir, OPTIONS_FILE), extra | options.training_dict())
        group.all_gather()
        return trainer.train()


def _start_bias(run: Run, data: Any) -> None:
    """Start the softmax bias at log unigram frequencies.

    Meister et al. (2023), "A natural bias for language generation models".
    """
    counts = data.word_counts() if hasattr(data, "word_counts") else None
    if counts is None:
        logger.warning("the data cannot count its words: the softmax bias starts at zeros")
        return
    counts = counts + 0.5  # a word may be missing from this text
    counts[data.vocab.bos] = counts[data.vocab.eos]  # the backward model predicts <S>
    with run.replicas.scope():
        run.model.softmax.b.assign(np.log(counts / counts.sum()).astype(np.float32))


def _check_folder(tf_save_dir: PathLike, restart_ckpt_file: str | None) -> bool:
    """Refuse to overwrite a model; return whether the checkpoint is one of the folder's own."""
    folder = os.path.realpath(tf_save_dir)
    if not restart_ckpt_file or os.path.dirname(os.path.realpath(restart_ckpt_file)) != folder:
        if holds_checkpoint(tf_save_dir):
            raise InputError(
                f"{os.fspath(tf_save_dir)}: the folder holds a trained model; it is not "
                f"overwritten. Restart from its checkpoint, or choose another folder."
            )
        return False
    found = list(list_checkpoints(folder).values())
    own = os.path.join(folder, os.path.basename(restart_ckpt_file))
    for prefix in found[found.index(own) + 1 :] if own in found else []:
        # One that is damaged is replaced; whoever looks for the newest has been warned.
        if is_whole(prefix, verify=True):
            raise InputError(
                f"{restart_ckpt_file}: the folder has a newer checkpoint, "
                f"{os.path.basename(prefix)}, which would be lost. Resume from that one, or "
                "train into another folder."
            )
    return True


def _check_shares(worker: Worker, *data: Any) -> None:
    """Check that data sets that know of workers are the share of this one."""
    for part in data:
        share = getattr(part, "worker", worker.share)
        if share != worker.share:
            raise InputError(
                f"The data is the share of worker {share[0]} of {share[1]}; this process is "
                f"worker {worker.index} of {worker.count}: make it with worker={worker.share}."
            )


def _with_train_tokens(options: Options, data: Any) -> Options:
    if options.n_train_tokens is not None:
        return options
    counted = getattr(data, "n_train_tokens", None)
    if counted is None:
        raise InputError("options: n_train_tokens is missing, and the data cannot count them.")
    return dataclasses.replace(options, n_train_tokens=counted)


def _count_words(record: TrainingRecord, data: Any, heldout: Any) -> None:
    """Record how well the vocabulary fits the texts; warn if it does not."""
    counts, record.unknown = _word_counts(data, "the training text")
    predicted = counts if heldout is None else _word_counts(heldout, "the held-out text")[0]
    if counts is not None and predicted is not None:
        record.unigram = unigram_perplexity(counts, predicted)


def _word_counts(data: Any, name: str) -> tuple[Any, float | None]:
    """A data set's word counts and its proportion of unknown tokens, as far as it has them."""
    counts = data.word_counts(_SAMPLED_TOKENS) if hasattr(data, "word_counts") else None
    if counts is None:
        return None, None
    unknown = data.unknown_share(_SAMPLED_TOKENS)
    if warning := unknown_warning(unknown, name):
        logger.warning("%s", warning)
    return counts, unknown


def _monitor(run: Run, heldout: Any, every: str, patience: int | None) -> Monitor:
    # One scan, so that text that cannot be read is found before the first step.
    _ = getattr(heldout, "n_train_tokens", None)
    # The figures are those of `test`, also if the products of the training are in bfloat16.
    scorer = Scorer(run.model, precision="float32")
    return Monitor(
        lambda states: evaluate(scorer, heldout, _HELDOUT_ROWS, training_states=states),
        Interval.parse(every),
        patience,
        run.options.reset_rate,
        run.replicas.group,
    )


def _open_logs(folder: PathLike | None, tensorboard: bool) -> list[RunLog | TensorBoardLog]:
    if folder is None:
        if tensorboard:
            raise InputError(
                "tensorboard: its files are written beside the log, which has no folder."
            )
        return []
    return [RunLog(folder), *([TensorBoardLog(folder)] if tensorboard else [])]


@dataclass
class Trainer:
    """Goes from step to step; logs, measures, saves and tells."""

    run: Run
    data: Any
    saving: Saving
    logs: Sequence[RunLog | TensorBoardLog]
    monitor: Monitor | None
    progress: Progress | None
    record: TrainingRecord = field(default_factory=TrainingRecord)
    # Step and held-out state of the last checkpoint.
    _saved: tuple[int, Any] | None = None
    # A checkpoint to keep as the best one before the first step.
    _best_before: str | None = None
    _started: float = field(default_factory=time.monotonic)
    _saved_at: float = field(default_factory=time.monotonic)

    @property
    def _group(self) -> ProcessGroup:
        return self.run.replicas.group

    def restart(self, ckpt_file: str, is_own: bool) -> None:
        """Resume from a checkpoint; one of the folder's own need not be saved again."""
        run = self.run
        run.restart(ckpt_file)
        best_step = run.heldout.best_step
        if is_own:
            self.record.checkpoint = ckpt_file
            self._saved = (run.global_step, run.heldout)
            if best_step == run.global_step:
                # A crash may have come between the checkpoint and its second name.
                self._best_before = ckpt_file
        elif best_step is not None:
            self._best_before = find_best(ckpt_file, best_step)
            if self._best_before is None:
                run.heldout = HeldoutState()
                logger.warning(
                    "%s: the best model of its run, of step %d, is not beside it: the best model "
                    "and patience are counted anew", ckpt_file, best_step,
                )  # fmt: skip

    def train(self) -> TrainingRecord:
        """Train until the last step, the end of the data, patience or a wish of `progress`."""
        run, record = self.run, self.record
        with self._group.deferred_errors():
            for log in self.logs:
                log.go_back(run.global_step)
        if self._best_before is not None:
            self._keep_best(self._best_before)
        self._started = self._saved_at = time.monotonic()
        with contextlib.ExitStack() as stack:
            signals = stack.enter_context(interrupts())
            if not self._group.worker.is_alone:
                # One of several is interrupted where the others hear of it.
                stack.enter_context(signals.held())
            try:
                with contextlib.closing(prefetch(run.inputs(self.data), _READ_AHEAD)) as batches:
                    self._steps(batches, signals)
                if record.n_steps == 0 and run.done == 0:
                    raise InputError(
                        "The data holds no batch of {} rows by {} tokens.".format(*run.feed_shape)
                    )
                if self.monitor is not None and run.heldout.measured_at != run.global_step:
                    self._measure(self.monitor)
                self._save()
                with self._group.deferred_errors():
                    if self._group.worker.is_chief:
                        tidy_folder(self.saving.folder, run.global_step, self.saving.keep)
                self._group.all_gather()
            except KeyboardInterrupt:
                if not signals.interrupted_within_step:
                    self._rescue()
                raise
            except NotFiniteError as error:
                raise TrainingError(
                    f"{error} Training stops; {self._last_checkpoint()}. "
                    "A lower learning_rate may help."
                ) from error
            except WorkerLostError as error:
                raise WorkerLostError(
                    f"{error} Training stops; {self._last_checkpoint()}. To resume from it, start "
                    "the same command for all workers."
                ) from error
            except (InputError, OSError, WorkersError) as error:
                if record.n_steps == 0:
                    raise
                raise type(error)(self._with_state(error)) from error
        record.best, record.best_step = run.heldout.best, run.heldout.best_step
        record.tokens, record.passes = run.tokens, run.passes
        return record

    def _steps(self, batches: Iterator[Any], signals: Interrupts) -> None:
        self._measure_if_due()
        event = None
        while True:
            item, save, measure = self._next(batches, signals, event)
            if item is None:
                return
            with signals.held():
                self._advance(*item)
            heldout = self._measure_if_due(measure)
            if save:
                self._save()
            event = self._event(heldout)

    def _next(
        self, batches: Iterator[Any], signals: Interrupts, event: TrainingProgress | None
    ) -> tuple[Any, bool, bool]:
        """The next batch, None if the run is to end; whether to save and to measure after its step.

        Several workers continue together, or not at all; the time is that of the chief's clock.
        """
        item, run, monitor = None, self.run, self.monitor
        with self._group.deferred_errors():
            signals.due()
            if event is None or self.progress is None or not self.progress(event):
                if monitor is not None and monitor.should_stop(run.heldout):
                    self.record.stopped_early = run.done < run.n_steps
                else:
                    item = next(batches, None)
        save = time.monotonic() - self._saved_at > self.saving.seconds
        measure = monitor is not None and monitor.minutes_are_over()
        wishes = self._group.all_gather((item is None, save, measure))
        return None if any(end for end, *_ in wishes) else item, wishes[0][1], wishes[0][2]

    def _advance(self, inputs: Any, iterator_state: Any) -> None:
        """Do a step and log it."""
        run, record = self.run, self.record
        try:
            run.advance(inputs, iterator_state)
        except NotFiniteError as error:
            if not hasattr(self.data, "describe_state"):
                raise
            where = self.data.describe_state(run.iterator_state)
            raise NotFiniteError(f"{error} Its batch begins at {where}.") from error
        record.train_perplexity.append(run.perplexity)
        record.n_steps += 1
        record.n_tokens += run.tokens_per_step
        record.seconds = time.monotonic() - self._started
        if run.done % _LOG_EVERY == 0 or run.done in (1, run.n_steps):
            self._log(
                train_perplexity=run.perplexity if math.isfinite(run.perplexity) else None,
                sampled=run.model.samples,
                learning_rate=run.last_learning_rate,
            )

    def _event(self, heldout: Perplexity | None) -> TrainingProgress:
        run, record = self.run, self.record
        return TrainingProgress(
            run.done,
            run.n_steps,
            run.epoch,
            run.perplexity,
            record.n_tokens,
            record.seconds,
            heldout=heldout,
            is_best=heldout is not None and run.heldout.best_step == run.global_step,
        )

    def _log(self, **facts: Any) -> None:
        run = self.run
        with self._group.deferred_errors():
            for log in self.logs:
                log.write(
                    step=run.global_step,
                    epoch=run.epoch,
                    **facts,
                    tokens=run.done * run.tokens_per_step,
                    seconds=round(run.seconds + self.record.seconds, 3),
                )

    # The held-out text

    def _measure_if_due(self, by_time: bool = False) -> Perplexity | None:
        run, monitor = self.run, self.monitor
        if monitor is None or run.heldout.measured_at == run.global_step:
            return None
        is_due = by_time or monitor.every.falls_on(run.done, run.steps_per_epoch)
        return self._measure(monitor) if is_due else None

    def _measure(self, monitor: Monitor) -> Perplexity:
        """Measure the held-out text; keep the model if it is the best."""
        run = self.run
        perplexity, run.heldout = monitor.measure(run.heldout, run.global_step, run.mean_states())
        is_best = run.heldout.best_step == run.global_step
        ratios = perplexity.start_ratios().items()
        self._log(
            heldout_perplexity=float(perplexity),
            heldout_forward=perplexity.forward,
            heldout_backward=perplexity.backward,
            best=is_best,
            **{f"start_ratio_{name}": ratio for name, ratio in ratios if math.isfinite(ratio)},
        )
        self.record.heldout.append((run.global_step, perplexity))
        if is_best:
            self._keep_best(self._save())
        return perplexity

    def _keep_best(self, ckpt_file: str) -> None:
        if self._group.worker.is_chief:
            with self._group.deferred_errors():
                keep_best(self.saving.folder, ckpt_file)

    # Checkpoints, and errors that say what there is to resume from

    def _save(self) -> str:
        """Write a checkpoint if anything has changed since the last one; return the last one."""
        run, saving = self.run, self.saving
        now = (run.global_step, run.heldout)
        if self.record.checkpoint is None or self._saved != now:
            seconds = run.seconds + self.record.seconds
            self.record.checkpoint = run.save(saving.folder, saving.keep, seconds)
            self._saved = now
        self._saved_at = time.monotonic()
        return self.record.checkpoint

    def _rescue(self) -> bool:
        """Save what is done when the run is about to end by an error; whether that went well."""
        if self.record.n_steps == 0:
            return False
        try:
            self._save()
        except (OSError, TrainingError) as error:
            logger.warning("not saved: %s", error)
            return False
        return True

    def _with_state(self, error: Exception) -> str:
        """The message of an error, and what there is to resume from."""
        if self._rescue():
            state = f", which is saved as {self.record.checkpoint}."
        else:
            state = f"; {self._last_checkpoint()}."
        text = str(error)
        if isinstance(error, OSError) and error.strerror is not None:
            text = f"{error.filename}: {error.strerror}."
        return f"{text} Training stopped after step {self.run.global_step}{state}"

    def _last_checkpoint(self) -> str:
        found = list(list_checkpoints(self.saving.folder).values())
        if not found:
            return "nothing was saved, there is no earlier checkpoint"
        return f"nothing was saved since the last good checkpoint, {found[-1]}"
