"""`train`: from options and data to a trained model in a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from bilm.errors import InputError
from bilm.files import PathLike, write_json
from bilm.options import Options
from bilm.training.checkpoint import (
    OPTIONS_FILE,
    checkpoints,
    holds_model,
    is_whole,
)
from bilm.training.cluster import Worker
from bilm.training.monitor import Interval, Monitor
from bilm.training.record import TrainingRecord
from bilm.training.replicas import find_replicas
from bilm.training.run import Run, RunSettings
from bilm.training.run_log import Log, RunLog
from bilm.training.schedule import Schedule
from bilm.training.sole_use import sole_use
from bilm.training.tensorboard import TensorBoardLog
from bilm.training.trainer import Progress, Saver, Trainer


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
    schedule: Schedule | str = "constant",
    heldout: Any = None,
    heldout_every: str = "epoch",
    patience: int | None = None,
    init_from: PathLike | None = None,
    init_vocab: PathLike | None = None,
    tensorboard: bool = False,
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
        restart_ckpt_file: prefix of a checkpoint to go on from: one of ours, which brings its
            place in the corpus and its LSTM states, or one of the original's, which has neither
            and starts a new count of steps.
        seed: of initial values, dropout and samples; going on, that of the run holds.
        precision: "float32", or "bfloat16" for products in bfloat16.
        save_minutes: time between checkpoints; one is always written at the end.
        keep_checkpoints: how many to keep.
        progress: called after every step; returning True ends the run there.
        schedule: of the learning rate, see `Schedule`: "constant", "linear" or "cosine".
        heldout: a held-out text, best a data set of `bilm.data` with test=True: it is measured as
            `test` does, at the end and every `heldout_every`, and the best model is kept in the
            folder `best` within `tf_save_dir`.
        heldout_every: "epoch", "500 steps", "30 min" and the like.
        patience: end the run when this many measurements in a row were not the best; None never.
        init_from: begin with the weights of a model, see `bilm.training.initial.find_source`.
        init_vocab: the vocabulary of that model; None is the vocab.txt beside it.
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
    given = {} if isinstance(options, Options) else dict(options)
    if not isinstance(options, Options):
        options = Options.from_dict(options, training=True)
    if patience is not None and heldout is None:
        raise InputError("patience: it needs a held-out text.")
    if keep_checkpoints < 1:
        raise InputError(
            f"keep_checkpoints: a whole number from 1 is expected, not {keep_checkpoints!r}."
        )
    if isinstance(schedule, str):
        schedule = Schedule(schedule)
    settings = RunSettings(
        seed, precision, schedule, None if init_from is None else os.fspath(init_from)
    )
    replicas = find_replicas(n_gpus)
    team, is_chief = replicas.team, replicas.worker.is_chief
    with contextlib.ExitStack() as stack:
        with team.own_work():
            if is_chief:
                stack.enter_context(sole_use(tf_save_dir))
            own = _check_folder(tf_save_dir, restart_ckpt_file)
            _check_shares(replicas.worker, data, heldout)
            options = _with_train_tokens(options, data)
            logs = _open_logs(tf_log_dir, tensorboard) if is_chief else []
        told = {"heldout": heldout is not None and (heldout_every, patience), "seed": seed,
                "checkpoint": os.path.basename(restart_ckpt_file or "")}  # fmt: skip
        team.require_same(options.training_dict() | settings.to_dict() | told)
        run = Run(options, replicas, settings)
        with team.own_work():
            monitor = _make_monitor(run, heldout, heldout_every, patience)
            saver = Saver(os.fspath(tf_save_dir), save_minutes * 60, keep_checkpoints)
            trainer = Trainer(run, saver, logs, monitor, progress)
            if restart_ckpt_file is not None:
                trainer.restart(restart_ckpt_file, own)
            elif init_from is not None:
                trainer.begin_with(init_from, init_vocab, getattr(data, "vocab", None))
            if is_chief:
                write_json(os.path.join(tf_save_dir, OPTIONS_FILE), given | options.training_dict())
        team.exchange()
        return trainer.go(data)


def _check_folder(tf_save_dir: PathLike, restart_ckpt_file: str | None) -> bool:
    """Refuse to overwrite a model; return whether the checkpoint is one of the folder's own."""
    folder = os.path.realpath(tf_save_dir)
    if not restart_ckpt_file or os.path.dirname(os.path.realpath(restart_ckpt_file)) != folder:
        if holds_model(tf_save_dir):
            raise InputError(
                f"{os.fspath(tf_save_dir)}: the folder holds a trained model; it is not "
                f"overwritten. Restart from its checkpoint, or choose another folder."
            )
        return False
    names = [os.path.basename(prefix) for prefix in checkpoints(folder)]
    name = os.path.basename(restart_ckpt_file)
    for newer in names[names.index(name) + 1 :] if name in names else []:
        # One that is damaged is replaced; whoever looks for the newest has been warned.
        if is_whole(os.path.join(folder, newer), verify=True):
            raise InputError(
                f"{restart_ckpt_file}: the folder has a newer checkpoint, {newer}, which would be "
                "lost. Go on from that one, or train into another folder."
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
    return Options.from_dict(options.training_dict() | {"n_train_tokens": counted}, training=True)


def _make_monitor(run: Run, heldout: Any, every: str, patience: int | None) -> Monitor | None:
    if heldout is None:
        return None
    # One scan, so that text that cannot be read is found before the first step.
    _ = getattr(heldout, "n_train_tokens", None)
    return Monitor(run.model, heldout, Interval.parse(every), patience, team=run.replicas.team)


def _open_logs(folder: PathLike | None, tensorboard: bool) -> list[Log]:
    if folder is None:
        if tensorboard:
            raise InputError("tensorboard: its files stand beside the log, which has no folder.")
        return []
    logs: list[Log] = [RunLog(folder)]
    return [*logs, TensorBoardLog(folder)] if tensorboard else logs
