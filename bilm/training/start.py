"""`train`: checks its arguments, and starts or resumes a run."""

import contextlib
import dataclasses
import itertools
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

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
from bilm.data.corpus import IteratorState
from bilm.data.dataset import LMDataset, unknown_share
from bilm.data.vocabulary import Vocabulary, require_same_words
from bilm.files.checkpoints import load_variables, read_step
from bilm.files.reading import PathLike, require_path
from bilm.files.run_log import RunLog
from bilm.files.writing import locked
from bilm.progress import Interval, parse_duration
from bilm.training.evaluation import check_vocabulary, data_vocabulary
from bilm.training.folder import RunFolder, check_folder, check_options, stored_options
from bilm.training.inputs import make_feed
from bilm.training.loop import Loop, Progress
from bilm.training.replicas import Worker, find_replicas
from bilm.training.softmax_start import softmax_start
from bilm.training.state import (
    RunState,
    choose_length,
    load_lstm_states,
    read_state,
    read_word_counts,
)
from bilm.training.trainer import Trainer
from bilm.training.verdict import unigram_perplexity, unknown_warning

logger = logging.getLogger(__name__)

# Tokens counted for a text's unigram perplexity and unknown words.
_SAMPLED_TOKENS = 1_000_000
# Fewest words of a vocabulary that are expected to be frequent.
_FEWEST_FIRST = 10


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
    source = None if init_from is None else without_secrets(require_path(init_from, "init_from"))
    seconds = None if time_limit is None else parse_duration(time_limit)
    every = Interval.parse(heldout_every)
    if seconds is not None:
        options = dataclasses.replace(options, n_epochs=None, n_steps=None)
    checkpoint = None
    if restart_ckpt_file is not None:
        checkpoint = require_path(restart_ckpt_file, "restart_ckpt_file")

    replicas = find_replicas(n_gpus)
    worker = replicas.worker
    with contextlib.ExitStack() as stack:
        if worker.is_chief:
            os.makedirs(tf_save_dir, exist_ok=True)
            problem = (
                f"{os.fspath(tf_save_dir)}: another process trains into this folder; wait until it "
                "ends or stop it, or choose another folder."
            )
            stack.enter_context(locked(os.path.join(tf_save_dir, ".train.lock"), problem))
        is_resumed = check_folder(tf_save_dir, checkpoint, uses_best=heldout is not None)
        if is_resumed:
            other_options = {**stored_options(tf_save_dir), **other_options}
        vocabulary = _check_data(options, worker, data, heldout)
        if worker.is_chief:
            check_options(tf_save_dir, {**other_options, **options.training_dict()})
        if options.n_train_tokens is None:
            counted = getattr(data, "n_train_tokens", None)
            options = dataclasses.replace(options, n_train_tokens=counted)
        if options.n_train_tokens is None:
            raise InputError(
                "options must have n_train_tokens, because the data cannot count them."
            )
        call = {"seed": plain(seed), "precision": precision, "init_from": source,
                "heldout": heldout is not None and (heldout_every, patience),
                "checkpoint": os.path.basename(checkpoint or "")}  # fmt: skip
        replicas.require_same(options.training_dict() | call)
        saved = None if checkpoint is None else read_state(checkpoint)
        shape = (options.batch_size * replicas.n, options.unroll_steps)
        # A resumed run keeps its seed, which determines the random numbers.
        state = saved or RunState(shape, plain(seed), init_from=source)
        state = dataclasses.replace(state, batch_shape=shape, precision=precision)
        options = _with_length(options, state, seconds, is_new=saved is None)

        softmax = softmax_start(options, data, replicas) if checkpoint is None else (None, None)
        log = RunLog(tf_log_dir, tensorboard) if worker.is_chief and tf_log_dir else None
        folder = RunFolder(
            os.fspath(tf_save_dir),
            keep_checkpoints,
            log,
            other_options,
            vocabulary,
            worker.is_chief,
        )
        trainer = Trainer(options, replicas, state.seed, precision)
        with replicas.scope():
            layer = trainer.model.softmax
            for variable, value in zip((layer.W, layer.b), softmax, strict=True):
                if value is not None:
                    variable.assign(value)
            del softmax, value  # as large as the variables
            if checkpoint is not None:
                load_variables(checkpoint, trainer.table, trainer.slots)
            elif init_from is not None:
                from bilm.training.fine_tuning import load_pretrained, trained_amount

                words = load_pretrained(init_from, init_vocab, trainer.model, vocabulary)
                state.words_carried = words
                state.tokens, state.passes = trained_amount(init_from)
        if checkpoint is not None:
            _restore(state, saved, trainer, checkpoint)
        if worker.is_chief:
            _count_words(state, trainer, folder, data, heldout, checkpoint)
        if checkpoint is not None and is_resumed:
            if state.best_step == state.step:  # it may not have been kept before a crash
                folder.write_options(options)
                folder.keep_best(checkpoint)
            folder.set_saved(state, checkpoint)
        else:
            state.forget_best()
        loop = Loop(
            state,
            trainer,
            folder,
            data,
            heldout,
            every=every,
            patience=patience,
            save_seconds=save_minutes * 60,
            progress=progress,
            begun=begun,
        )
        return loop.run()


def _check_data(options: Options, worker: Worker, data: Any, heldout: Any) -> Vocabulary | None:
    """Require that texts fit the options and the worker, before the first step and not after the
    first epoch; return the vocabulary of `data`."""
    for each in (data, heldout):
        share = getattr(each, "worker", worker.share)
        if share != worker.share:
            raise InputError(
                f"The data is the share of worker {share[0]} of {share[1]}; this process is "
                f"worker {worker.index} of {worker.count}: make it with worker={worker.share}."
            )
    vocabulary, other = check_vocabulary(options, data), check_vocabulary(options, heldout)
    if vocabulary is not None and other is not None:
        require_same_words(other, vocabulary)
    _ = getattr(heldout, "n_train_tokens", None)  # raises the errors of the text
    if isinstance(heldout, LMDataset):
        for batch in itertools.islice(heldout.iter_distinct(1, 1), 1):
            make_feed(batch, options)
    return vocabulary


def _with_length(
    options: Options, state: RunState, seconds: float | None, *, is_new: bool
) -> Options:
    """Set the length of a run in its state, and fill in the options that it determines."""
    if is_new:
        if seconds is None:
            options = choose_length(options, state.tokens_per_step)
        state.set_length(options, seconds)
        return options
    if options.n_epochs is None and options.n_steps is None:
        n_epochs, n_steps, *_ = state.length
        options = dataclasses.replace(options, n_epochs=n_epochs, n_steps=n_steps)
    state.change_length(options)
    state.n_train_tokens = options.n_train_tokens or 0
    return options if state.end is None else choose_length(options, state.tokens_per_step)


def _restore(state: RunState, saved: RunState | None, trainer: Trainer, ckpt_file: str) -> None:
    """Set the LSTM states and the iterator state of a run. `saved` is the stored state, of which
    `state` has everything else; None for a checkpoint of the original program."""
    if saved is None:
        # The original did not record its number of devices.
        state.step, state.tokens, state.passes = read_step(ckpt_file), None, None
        return
    worker, states = trainer.replicas.worker, saved.iterator_state
    if (saved.batch_shape, len(states)) == (trainer.batch_shape, worker.count):
        zeros = trainer.model.network.zero_states(trainer.batch_shape[0])
        trainer.lstm_states = trainer.local_states(load_lstm_states(ckpt_file, zeros))
        state.iterator_state = (states[worker.index],)
    else:
        state.iterator_state = (_other_rows(trainer, ckpt_file, saved),)


def _other_rows(trainer: Trainer, ckpt_file: str, saved: RunState) -> IteratorState | None:
    """The iterator state for another batch shape or number of workers."""
    worker, n_saved = trainer.replicas.worker, len(saved.iterator_state)
    is_same = n_saved == worker.count
    logger.warning(
        "%s: batches were %d rows by %d tokens and are now %d by %d%s; the LSTM states start at "
        "zero, and %s",
        ckpt_file, *saved.batch_shape, *trainer.batch_shape,
        "" if is_same else f", workers were {n_saved} and are now {worker.count}",
        "the text continues with new sentences" if is_same else
        "the shard that was being read is read again from its start",
    )  # fmt: skip
    states = [state for state in saved.iterator_state if state is not None]
    if not states:
        return None
    if is_same:
        state = states[worker.index]
    else:
        state = min(states, key=lambda state: state.shard).with_worker(*worker.share)
    return state.with_batches(*trainer.feed_shape)


# Words of the texts


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
    counts, state.unknown = _word_counts(data, "the training text", counts)
    if counts is None:
        return
    folder.word_counts, state.unigram = counts, unigram_perplexity(counts, counts)
    vocabulary = data_vocabulary(data)
    if vocabulary is not None and trainer.model.samples:
        _warn_if_unsorted(vocabulary, counts)
    predicted, _ = _word_counts(heldout, "the held-out text")
    if predicted is not None:
        state.heldout_unigram = unigram_perplexity(counts, predicted)


def _word_counts(
    data: Any, name: str, counts: np.ndarray | None = None
) -> tuple[np.ndarray | None, float | None]:
    """The word counts of a text or its beginning, unless `counts` has them, and its proportion of
    unknown tokens; None if the data set cannot count. Logs a warning if the proportion is high."""
    if counts is None and hasattr(data, "word_counts"):
        counts = data.word_counts(_SAMPLED_TOKENS)
    vocabulary = data_vocabulary(data)
    if counts is None or vocabulary is None:
        return counts, None
    unknown = unknown_share(counts, vocabulary)
    if warning := unknown_warning(unknown, name):
        logger.warning("%s", warning)
    return counts, unknown


def _warn_if_unsorted(vocabulary: Vocabulary, counts: np.ndarray) -> None:
    """Log a warning if the first words are not frequent, as the sampled softmax assumes.

    A vocabulary of another text is sorted well enough.
    """
    words = np.delete(counts, [vocabulary.bos, vocabulary.eos, vocabulary.unk])
    n = max(_FEWEST_FIRST, len(words) // 10)
    first, most = words[:n].sum(), np.sort(words)[-n:].sum()
    if first < most / 2:
        logger.warning(
            "%s: for the sampled softmax the words must be sorted by descending frequency, as by "
            "`bilm vocab`: its first %s words occur %s times in the training text, the most "
            "frequent ones %s times",
            vocabulary.source, f"{n:,}", f"{first:,}", f"{most:,}",
        )  # fmt: skip
