"""What the verbs of training runs share: vocabulary, corpus, flags' effect, run, report."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.cli.terminal import note
from bilm.errors import InputError
from bilm.files import VOCABULARY_FILE, atomic_write, open_text, read_lines, require_file
from bilm.options import Options
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.data import BidirectionalLMDataset, LMDataset, Vocabulary
    from bilm.training import Replicas, TrainingProgress, TrainingRecord
    from bilm.training.checkpoint import RunSettings

_OVERRIDES = ("n_epochs", "batch_size", "learning_rate", "n_train_tokens", "reset_rate")


def join_workers(n_gpus: int) -> Replicas:
    """The devices of the run; under TF_CONFIG the other workers are waited for.

    Raises:
        InputError: there are fewer GPUs, or TF_CONFIG is not right.
    """
    from bilm.training.replicas import find_replicas, find_worker

    worker = find_worker()
    if not worker.is_alone:
        note(f"worker {worker.index} of {worker.count}: waiting for the others ...")
    return find_replicas(n_gpus)


def override(options: Options, args: argparse.Namespace) -> Options:
    """`options` with the flags of the run that were given."""
    given = {name: getattr(args, name) for name in _OVERRIDES if getattr(args, name) is not None}
    return dataclasses.replace(options, **given)


def override_settings(settings: RunSettings, args: argparse.Namespace) -> RunSettings:
    """`settings` with the flags of the run that were given."""
    schedule = settings.schedule
    if args.lr_schedule is not None:
        schedule = dataclasses.replace(schedule, kind=args.lr_schedule)
    if args.warmup_steps is not None:
        schedule = dataclasses.replace(schedule, warmup_steps=args.warmup_steps)
    return dataclasses.replace(
        settings,
        seed=settings.seed if args.seed is None else args.seed,
        precision=settings.precision if args.precision is None else args.precision,
        schedule=schedule,
    )


def fit_to_vocabulary(options: Options, n_words: int, vocab_file: str, source: str) -> Options:
    """`options` for a vocabulary of `n_words`: its size, and a softmax that can be sampled.

    Args:
        source: where the options are from, for messages.

    Raises:
        InputError: the options are for another number of words.
    """
    stated = options.n_tokens_vocab
    if stated is not None and stated != n_words:
        raise InputError(
            f"{source} is for n_tokens_vocab = {stated} words, but {vocab_file} has {n_words}: "
            "name the vocabulary that belongs to it, or leave n_tokens_vocab out."
        )
    options = dataclasses.replace(options, n_tokens_vocab=n_words)
    n_samples = options.n_negative_samples_batch
    if options.sample_softmax and n_words <= n_samples:
        note(
            f"{vocab_file} has {n_words:,} words, not more than the {n_samples:,} negative samples "
            "of a batch: training with the full softmax."
        )
        options = dataclasses.replace(options, sample_softmax=False)
    return options


def load_vocabulary(vocab_file: str, options: Options) -> Vocabulary:
    """The vocabulary as the model's input needs it: with characters, or of words alone."""
    from bilm.data import load_vocab

    return load_vocab(vocab_file, options.max_word_length)


def open_corpus(
    options: Options, filepattern: str, vocabulary: Vocabulary, **settings: Any
) -> LMDataset | BidirectionalLMDataset:
    """The data set for a model of one direction or of two."""
    from bilm.data import BidirectionalLMDataset, LMDataset

    kind = BidirectionalLMDataset if options.bidirectional else LMDataset
    return kind(filepattern, vocabulary, **settings)


def find_vocabulary(args: argparse.Namespace) -> str:
    """--vocab_file, or the vocabulary in --save_dir; they are the same if both are there.

    Raises:
        FileNotFoundError: the folder does not exist.
        InputError: there is neither vocabulary, or they differ.
    """
    if not os.path.isdir(args.save_dir):
        raise FileNotFoundError(f"The folder {args.save_dir!r} does not exist.")
    kept = os.path.join(args.save_dir, VOCABULARY_FILE)
    if args.vocab_file is None:
        if not os.path.exists(kept):
            raise InputError(f"{args.save_dir} has no {VOCABULARY_FILE}: name it by --vocab_file.")
        return kept
    require_same_words(args.vocab_file, args.save_dir)
    return args.vocab_file


def require_same_words(vocab_file: str, save_dir: str) -> None:
    """Check that a vocabulary is the one that is kept in a folder, if there is one.

    Raises:
        InputError: they differ.
    """
    require_file(vocab_file, "vocabulary file")
    kept = os.path.join(save_dir, VOCABULARY_FILE)
    if not os.path.exists(kept) or os.path.samefile(vocab_file, kept):
        return
    if list(read_lines(vocab_file)) != list(read_lines(kept)):
        raise InputError(f"{vocab_file} differs from {kept}, the vocabulary kept in that folder.")


@dataclasses.dataclass(frozen=True)
class Job:
    """What a run needs beside its flags.

    Attributes:
        replicas: its devices.
        options: for the vocabulary.
        settings: seed, precision, schedule.
        vocabulary: of the model.
        vocab_file: where it is from.
        checkpoint: that the run is resumed from; None starts a new model.
    """

    replicas: Replicas
    options: Options
    settings: RunSettings
    vocabulary: Vocabulary
    vocab_file: str
    checkpoint: str | None = None


def run_training(args: argparse.Namespace, job: Job) -> int:
    """Train into --save_dir, showing progress, and print where the model is."""
    share = job.replicas.worker.share
    corpus = open_corpus(
        job.options,
        args.train_prefix,
        job.vocabulary,
        shuffle_on_load=True,
        seed=job.settings.seed,
        worker=share,
    )
    heldout = None
    if args.heldout_prefix is not None:
        heldout = open_corpus(
            job.options, args.heldout_prefix, job.vocabulary, test=True, worker=share
        )
    record = _train(args, job, corpus, heldout)
    _report(record, args.save_dir)
    return 0


def _train(args: argparse.Namespace, job: Job, corpus: Any, heldout: Any) -> TrainingRecord:
    from bilm.training import train

    if job.checkpoint is not None:
        note(f"resuming from {job.checkpoint}")
    note("reading the corpus and compiling the model ...")
    with ProgressDisplay() as display:
        show = TrainingDisplay(display, job.options.sample_softmax)

        def progress(event: TrainingProgress) -> None:
            show(event)
            # After a step, whatever could be wrong with the input has been found.
            if job.replicas.worker.is_chief:
                _keep_vocabulary(job.vocab_file, args.save_dir)

        try:
            return train(
                job.options,
                corpus,
                args.n_gpus,
                args.save_dir,
                args.save_dir,
                job.checkpoint,
                seed=job.settings.seed,
                precision=job.settings.precision,
                schedule=job.settings.schedule,
                save_minutes=args.save_minutes,
                progress=progress,
                heldout=heldout,
                heldout_every=args.heldout_every,
                patience=args.patience,
                init_from=job.settings.init_from,
                init_vocab=getattr(args, "init_vocab", None),
                tensorboard=args.tensorboard,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_what_is_saved(args)) from None


class TrainingDisplay:
    """Shows the progress events of `bilm.train`: steps, perplexity, rate and time left.

    Args:
        display: where to show them.
        sampled: whether the loss is a sampled softmax's, whose perplexity is below the true one.
    """

    def __init__(self, display: ProgressDisplay, sampled: bool) -> None:
        self._display = display
        self._label = " (sampled)" if sampled else ""
        self._first: TrainingProgress | None = None

    def __call__(self, event: TrainingProgress) -> None:
        """Show one event."""
        first = self._first = self._first or event
        detail = f"epoch {event.epoch}  perplexity {event.perplexity:,.1f}{self._label}"
        # The first step compiles, and has no rate.
        if event.seconds > first.seconds:
            rate = (event.tokens - first.tokens) / (event.seconds - first.seconds)
            detail += f"  {rate:,.0f} tokens/s"
        self._display.update("step", event.step, event.n_steps, detail=detail)
        if event.heldout is not None:
            self._display.note(_heldout_text(event))


def _heldout_text(event: TrainingProgress) -> str:
    """The held-out perplexity of an event in words."""
    perplexity = event.heldout
    if perplexity is None:
        return ""
    parts = ""
    if perplexity.backward is not None:
        parts = f" (forward {perplexity.forward:,.1f}, backward {perplexity.backward:,.1f})"
    best = ", the best so far" if event.is_best else ""
    return f"step {event.step:,}: held-out perplexity {float(perplexity):,.1f}{parts}{best}"


def _keep_vocabulary(vocab_file: str, save_dir: str) -> None:
    """Copy it beside the checkpoints and beside the best one, so that each folder is complete."""
    from bilm.training.checkpoint import BEST_FOLDER

    for folder in (save_dir, os.path.join(save_dir, BEST_FOLDER)):
        kept = os.path.join(folder, VOCABULARY_FILE)
        if os.path.isdir(folder) and not os.path.exists(kept):
            with open_text(vocab_file) as words, atomic_write(kept) as temporary:
                Path(temporary).write_text(words.read(), encoding="utf-8")


def _what_is_saved(args: argparse.Namespace) -> str:
    from bilm.checkpoints import holds_checkpoint

    if not holds_checkpoint(args.save_dir):
        return "No checkpoint had been written yet."
    command = ["bilm", "restart", "--save_dir", args.save_dir, "--train_prefix", args.train_prefix]
    # The rest of the run's settings is in the folder.
    if args.n_gpus != 1:
        command += ["--n_gpus", str(args.n_gpus)]
    return f"The last checkpoint is in {args.save_dir}; to resume: {shlex.join(command)}"


def _report(record: TrainingRecord, save_dir: str) -> None:
    if record.words_carried is not None:
        known, n_words = record.words_carried
        note(f"of {n_words:,} words of the vocabulary {known:,} were known to the first model")
    if record.stopped_early:
        note(f"stopped early: the best held-out perplexity was that of step {record.best_step:,}")
    if record.n_steps == 0:
        print(f"all steps of this run are done; the model is {record.checkpoint}")
        note("More --n_epochs train it further.")
        return
    print(f"trained {record.n_steps:,} steps; the model is {record.checkpoint}")
    if record.best is not None:
        print(f"best held-out perplexity {record.best:.4f} after step {record.best_step}")
    chosen = " --best" if record.best is not None else ""
    note(
        f"Next: bilm test --save_dir {save_dir}{chosen} --test_prefix HELDOUT\n"
        f"      bilm dump --save_dir {save_dir}{chosen} --model_dir FOLDER"
    )


def model_folder(args: argparse.Namespace) -> str:
    """--save_dir, or the folder of its best model.

    Raises:
        InputError: there is none.
    """
    from bilm.checkpoints import holds_checkpoint
    from bilm.training.checkpoint import BEST_FOLDER

    if not args.best:
        return args.save_dir
    folder = os.path.join(args.save_dir, BEST_FOLDER)
    if not holds_checkpoint(folder):
        raise InputError(
            f"{args.save_dir} has no best model: `bilm train --heldout_prefix` keeps one."
        )
    return folder
