"""`train`: checks its arguments, and starts or resumes a run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from bilm.core.errors import (
    InputError,
    integer,
    plain,
    real,
    require,
    require_at_least,
    without_secrets,
)
from bilm.core.options import Options
from bilm.files import checkpoints
from bilm.files.reading import PathLike, require_path
from bilm.files.run_log import RunLog
from bilm.files.writing import locked
from bilm.intervals import Interval, parse_duration
from bilm.training import planning
from bilm.training.folder import RunFolder, stored_options
from bilm.training.loop import Loop, Progress
from bilm.training.replicas import find_replicas
from bilm.training.softmax_start import softmax_start
from bilm.training.state import RunState, read_state, read_word_counts
from bilm.training.trainer import Trainer
from bilm.training.verdict import unigram_perplexity


def train(
    options: Mapping[str, Any] | Options,
    data: Any,
    n_gpus: int,
    tf_save_dir: PathLike,
    tf_log_dir: PathLike | None,
    restart_ckpt_file: PathLike | None = None,
    *,
    seed: int = 0,
    precision: str = "float32",
    save_minutes: float = 10.0,
    keep_checkpoints: int = 2,
    progress: Progress | None = None,
    heldout: Any = None,
    heldout_every: str = "epoch",
    patience: int | None = None,
    init_from: PathLike | None = None,
    init_vocab: PathLike | None = None,
    tensorboard: bool = False,
    time_limit: str | None = None,
) -> RunState:
    """Train a language model.

    Args:
        options: training options; `n_train_tokens` is counted if it is missing.
        data: a data set of `bilm.data`, or an object with `iter_batches(batch_size,
            unroll_steps)` that yields dicts with token_ids, tokens_characters and next_token_id,
            and the same keys with the suffix _reverse.
        n_gpus: devices of this machine, each with `batch_size` rows. With TF_CONFIG, see
            `find_replicas`, the run also uses the other workers' devices, and `data` and `heldout`
            are this worker's share.
        tf_save_dir: folder of options.json and the checkpoints; created if missing.
        tf_log_dir: folder of the log, one JSON object per line; None: no log.
        restart_ckpt_file: prefix of a checkpoint to resume from. `n_epochs` is the total of the
            run: with the same number, a finished run trains nothing. After a checkpoint of the
            original program, LSTM states and text start again, and `n_epochs` counts from there.
        seed: random seed; a resumed run keeps its own.
        precision: "float32", or "bfloat16" for matmuls in bfloat16.
        save_minutes: time between checkpoints; the last one is written at the end.
        keep_checkpoints: number of checkpoints to keep.
        progress: called with the `RunState` after every step. If it returns True, the run
            ends; with several workers, after one more step.
        heldout: held-out text, preferably a data set of `bilm.data` with test=True. It is
            evaluated at the end and every `heldout_every`, and the best model is kept in
            `tf_save_dir`/best.
        heldout_every: an interval such as "epoch", "500 steps" or "30 min".
        patience: end the run after this many successive evaluations without a new best; None:
            never.
        init_from: start with the weights of a model, see `bilm.files.model_files`.
        init_vocab: that model's vocabulary; None: the vocab.txt next to it or inside it.
        tensorboard: also write TensorBoard's files, next to the log.
        time_limit: approximate duration, such as "30min" or "2h", with set-up and evaluations
            except the last one. The learning rates follow the share of the time that has passed; a
            resumed run continues with the rest. `n_epochs` and `n_steps` are then ignored.

    Returns:
        the state of the run at the end.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        InputError: the options are wrong, the data or the checkpoint do not fit them, the folder
            holds a trained model that would be overwritten, or another process trains into it.
        OSError: a file cannot be written.
        TrainingError: the loss is not finite, or another worker was lost; the last checkpoint is
            intact.
    """
    begun = time.monotonic()
    other_options: Mapping[str, Any] = {}
    if not isinstance(options, Options):
        other_options = {name: plain(value) for name, value in options.items()}
        options = Options.from_dict(options, training=True)
    if patience is not None and heldout is None:
        raise InputError("patience needs a held-out text.")
    if tensorboard and tf_log_dir is None:
        raise InputError("tensorboard needs tf_log_dir, where its files are written.")
    require(integer(), keep_checkpoints=keep_checkpoints)
    require_at_least(1, patience=patience)
    require(integer(0), seed=seed)
    require(real(0), save_minutes=save_minutes)
    if restart_ckpt_file is not None:
        restart_ckpt_file = require_path(restart_ckpt_file, "restart_ckpt_file")
    source = None if init_from is None else without_secrets(require_path(init_from, "init_from"))
    seconds = None if time_limit is None else parse_duration(time_limit)
    every = Interval.parse(heldout_every)
    if seconds is not None:
        options = dataclasses.replace(options, n_epochs=None, n_steps=None)

    replicas = find_replicas(n_gpus)
    is_chief = replicas.worker.is_chief
    with _training_lock(tf_save_dir) if is_chief else contextlib.nullcontext():
        is_resumed = planning.check_folder(tf_save_dir, restart_ckpt_file)
        if heldout is not None or restart_ckpt_file is not None:
            checkpoints.require_own_best(tf_save_dir, is_resumed)
        if is_resumed:
            other_options = {**stored_options(os.fspath(tf_save_dir)), **other_options}
        planning.check_shares(replicas.worker, data, heldout)
        planning.check_data(options, data, heldout)
        if is_chief:
            planning.check_options(tf_save_dir, {**other_options, **options.training_dict()})
        options = planning.with_train_tokens(options, data)
        call = {"seed": plain(seed), "precision": precision, "init_from": source,
                "heldout": heldout is not None and (heldout_every, patience),
                "checkpoint": os.path.basename(restart_ckpt_file or "")}  # fmt: skip
        replicas.require_same(options.training_dict() | call)
        saved = None if restart_ckpt_file is None else read_state(restart_ckpt_file)
        # A resumed run keeps its seed, which determines the random numbers.
        state = saved or RunState((0, 0), plain(seed), init_from=source)
        state.batch_shape = (options.batch_size * replicas.n, options.unroll_steps)
        state.precision = precision
        options = planning.with_length(options, state, seconds, is_new=saved is None)

        is_new_model = restart_ckpt_file is None
        softmax = softmax_start(options, data, replicas) if is_new_model else (None, None)
        log = RunLog(tf_log_dir, tensorboard) if is_chief and tf_log_dir is not None else None
        folder = RunFolder(os.fspath(tf_save_dir), keep_checkpoints, log, other_options, is_chief)
        trainer = Trainer(options, replicas, state.seed, precision)
        with replicas.scope():
            layer = trainer.model.softmax
            for variable, value in zip((layer.W, layer.b), softmax, strict=True):
                if value is not None:
                    variable.assign(value)
            del softmax, value  # as large as the variables
            if restart_ckpt_file is None and init_from is not None:
                _begin_with(state, trainer, data, init_from, init_vocab)
        if restart_ckpt_file is not None:
            folder.resume(state, trainer, restart_ckpt_file, is_resumed)
        if is_chief:
            _count_words(state, trainer, folder, data, heldout, restart_ckpt_file)
        if is_resumed:
            folder.set_saved(state, restart_ckpt_file or "")
        loop = Loop(
            state,
            trainer,
            folder,
            data,
            begun=begun,
            save_seconds=save_minutes * 60,
            progress=progress,
            heldout=heldout,
            every=every,
            patience=patience,
        )
        return loop.run()


@contextlib.contextmanager
def _training_lock(folder: PathLike) -> Iterator[None]:
    """Create a folder, and lock it against other training processes for the block."""
    os.makedirs(folder, exist_ok=True)
    with locked(
        os.path.join(folder, ".train.lock"),
        f"{os.fspath(folder)}: another process trains into this folder; wait until it ends or stop "
        "it, or choose another folder.",
    ):
        yield


def _begin_with(
    state: RunState,
    trainer: Trainer,
    data: Any,
    init_from: PathLike,
    init_vocab: PathLike | None,
) -> None:
    """Load another model's weights, and count its training as this model's."""
    from bilm.training.fine_tuning import load_pretrained, trained_amount

    words = planning.data_vocabulary(data)
    state.words_carried = load_pretrained(init_from, init_vocab, trainer.model, words)
    state.tokens, state.passes = trained_amount(init_from)


def _count_words(
    state: RunState,
    trainer: Trainer,
    folder: RunFolder,
    data: Any,
    heldout: Any,
    ckpt_file: str | None,
) -> None:
    """Record word counts of the training text, and the perplexities by word frequencies alone."""
    counts = None if ckpt_file is None else read_word_counts(ckpt_file)
    counts, state.unknown = planning.word_counts(data, "the training text", counts)
    if counts is None:
        return
    folder.word_counts, state.unigram = counts, unigram_perplexity(counts, counts)
    vocabulary = planning.data_vocabulary(data)
    if vocabulary is not None and trainer.model.samples:
        planning.warn_if_unsorted(vocabulary, counts)
    predicted, _ = planning.word_counts(heldout, "the held-out text")
    if predicted is not None:
        state.heldout_unigram = unigram_perplexity(counts, predicted)
