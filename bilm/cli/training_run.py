"""What the verbs of training runs share: vocabulary, corpus, flags' effect, run, report."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bilm.cli import flags
from bilm.cli.terminal import note
from bilm.core.errors import InputError
from bilm.core.options import Options
from bilm.files.reading import VOCABULARY_FILE, find_files, read_lines, require_file
from bilm.files.writing import atomic_write
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.data import BidirectionalLMDataset, LMDataset, Vocabulary
    from bilm.training import Perplexity, TrainingProgress, TrainingRecord
    from bilm.training.state import RunSettings

# Steps whose mean loss is the perplexity in training.
_LAST_STEPS = 100
_OVERRIDES = ("n_epochs", "batch_size", "learning_rate", "n_train_tokens", "reset_rate")


def join_workers(n_gpus: int) -> None:
    """Find the devices of the run before TensorFlow is used; with TF_CONFIG wait for the others."""
    from bilm.training.replicas import find_replicas, find_worker

    worker = find_worker()
    if not worker.is_alone:
        note(f"worker {worker.index} of {worker.count}: waiting for the others ...")
    find_replicas(n_gpus)


def override(options: Options, args: argparse.Namespace) -> Options:
    """`options` with the flags of the run that were given."""
    return _replaced(options, **{name: getattr(args, name) for name in _OVERRIDES})


def override_settings(settings: RunSettings, args: argparse.Namespace) -> RunSettings:
    """`settings` with the flags of the run that were given."""
    schedule = _replaced(settings.schedule, kind=args.lr_schedule, warmup_steps=args.warmup_steps)
    return _replaced(settings, seed=args.seed, precision=args.precision, schedule=schedule)


def _replaced(value: Any, **given: Any) -> Any:
    """A dataclass with the fields that are given, that is, not None."""
    return dataclasses.replace(value, **{k: v for k, v in given.items() if v is not None})


def load_vocabulary(vocab_file: str, options: Options, source: str) -> tuple[Vocabulary, Options]:
    """A vocabulary as the model needs it, and the options for it: its size, and a softmax that can
    be sampled. `source` is where the options are from, for messages."""
    from bilm.data import load_vocab

    vocabulary = load_vocab(vocab_file, options.max_word_length)
    stated, n_words = options.n_tokens_vocab, vocabulary.size
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
    return vocabulary, options


def open_corpus(
    options: Options, filepattern: str, vocabulary: Vocabulary, **settings: Any
) -> LMDataset | BidirectionalLMDataset:
    """The data set for a model of one direction or of two."""
    from bilm.data import BidirectionalLMDataset, LMDataset

    kind = BidirectionalLMDataset if options.bidirectional else LMDataset
    return kind(filepattern, vocabulary, **settings)


def find_vocabulary(args: argparse.Namespace) -> str:
    """--vocab_file, or the vocabulary in --save_dir; they are the same if both are there."""
    flags.require_folder(args.save_dir)
    kept = os.path.join(args.save_dir, VOCABULARY_FILE)
    if args.vocab_file is None:
        if not os.path.exists(kept):
            raise InputError(f"{args.save_dir} has no {VOCABULARY_FILE}: name it by --vocab_file.")
        return kept
    require_same_words(args.vocab_file, args.save_dir)
    return args.vocab_file


def require_same_words(vocab_file: str, save_dir: str) -> None:
    """Check that a vocabulary is the one that is kept in a folder, if there is one."""
    require_file(vocab_file, "vocabulary file")
    kept = os.path.join(save_dir, VOCABULARY_FILE)
    if not os.path.exists(kept) or os.path.samefile(vocab_file, kept):
        return
    if list(read_lines(vocab_file)) != list(read_lines(kept)):
        raise InputError(f"{vocab_file} differs from {kept}, the vocabulary kept in that folder.")


def run_training(
    args: argparse.Namespace,
    options: Options,
    settings: RunSettings,
    vocabulary: Vocabulary,
    checkpoint: str | None,
) -> int:
    """Train into --save_dir, showing progress, and print where the model is; `checkpoint` is where
    to resume, None for a new model."""
    from bilm.data.untokenized import first_sentences, warn_if_untokenized
    from bilm.training import train
    from bilm.training.replicas import find_worker

    worker = find_worker()
    data: dict[str, Any] = {"shuffle_on_load": True, "seed": settings.seed, "worker": worker.share}
    corpus = open_corpus(options, args.train_prefix, vocabulary, **data)
    if worker.is_chief:
        file = find_files(args.train_prefix)[0]
        warn_if_untokenized(first_sentences(file), file)
    heldout = None
    if args.heldout_prefix is not None:
        data = {"test": True, "worker": worker.share}
        heldout = open_corpus(options, args.heldout_prefix, vocabulary, **data)
    if checkpoint is not None:
        note(f"resuming from {checkpoint}")
    for flag, text in (("train_prefix", corpus), ("heldout_prefix", heldout)):
        if text is not None:
            unknown = text.unknown_share()
            note(f"--{flag}: {unknown:.1%} of the tokens are outside the vocabulary")
    note("reading the corpus and compiling the model ...")
    with ProgressDisplay() as display:
        show = training_display(display, options.sample_softmax)

        def progress(event: TrainingProgress) -> None:
            show(event)
            # After a step, whatever could be wrong with the input has been found.
            if worker.is_chief:
                _keep_vocabulary(args.vocab_file, args.save_dir)

        try:
            record = train(
                options,
                corpus,
                args.n_gpus,
                args.save_dir,
                args.save_dir,
                checkpoint,
                seed=settings.seed,
                precision=settings.precision,
                schedule=settings.schedule,
                save_minutes=args.save_minutes,
                progress=progress,
                heldout=heldout,
                heldout_every=args.heldout_every,
                patience=args.patience,
                init_from=settings.init_from,
                init_vocab=args.init_vocab,
                tensorboard=args.tensorboard,
                time_limit=getattr(args, "time", None),
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_what_is_saved(args)) from None
    if worker.is_chief:  # also if a run that was killed had done all steps
        _keep_vocabulary(args.vocab_file, args.save_dir)
    _report(record, args.save_dir, options.sample_softmax)
    return 0


def training_display(display: ProgressDisplay, sampled: bool) -> Callable[[TrainingProgress], None]:
    """Shows the progress events of `bilm.train`: steps, perplexity, rate and time left. `sampled`
    marks the perplexity of a sampled softmax, which is below the true one."""
    first: TrainingProgress | None = None

    def show(event: TrainingProgress) -> None:
        nonlocal first
        first = first or event
        perplexity, rate = f"perplexity {event.perplexity:,.1f}", ""
        # The first step compiles, and has no rate.
        if event.seconds > first.seconds:
            tokens = (event.tokens - first.tokens) / (event.seconds - first.seconds)
            rate = f"  {tokens:,.0f} tokens/s"
        details = [f"epoch {event.epoch}  {perplexity}{rate}", f"{perplexity}{rate}", perplexity]
        if sampled:
            details.insert(0, details[0].replace(perplexity, f"{perplexity} (sampled)"))
        display.update("step", event.step, event.n_steps, detail=details)
        if event.heldout is not None:
            text = f"step {event.step:,}: held-out {_in_words(event.heldout)}"
            display.note(text + (", the best so far" if event.is_best else ""))

    return show


def _in_words(perplexity: Perplexity) -> str:
    text = f"perplexity {float(perplexity):,.1f}"
    if perplexity.backward is None:
        return text
    return f"{text} (forward {perplexity.forward:,.1f}, backward {perplexity.backward:,.1f})"


def _keep_vocabulary(vocab_file: str, save_dir: str) -> None:
    """Copy it beside the checkpoints and beside the best one, so that each folder is complete."""
    from bilm.files.checkpoints import BEST_FOLDER

    for folder in (save_dir, os.path.join(save_dir, BEST_FOLDER)):
        kept = os.path.join(folder, VOCABULARY_FILE)
        if os.path.isdir(folder) and not os.path.exists(kept):
            with (
                atomic_write(kept) as temporary,
                open(temporary, "w", encoding="utf-8", newline="\n") as copy,
            ):
                copy.writelines(f"{line}\n" for line in read_lines(vocab_file))


def _what_is_saved(args: argparse.Namespace) -> str:
    from bilm.files.checkpoints import holds_checkpoint

    if not holds_checkpoint(args.save_dir):
        return "No checkpoint had been written yet."
    return f"The last checkpoint is in {args.save_dir}; to resume: {flags.command(args)}"


def _verdict(record: TrainingRecord, sampled: bool) -> list[str]:
    """How good the model is, how much it was trained, and whether more training may help."""
    from bilm.training.evaluation import exp_of_loss
    from bilm.training.verdict import verdict

    text, perplexity, unknown = "held-out", record.best, record.unknown
    if record.heldout:
        unknown = record.heldout[-1][1].unknown
    elif not sampled:
        text = "training"
        last = [math.log(value) for value in record.train_perplexity[-_LAST_STEPS:]]
        perplexity = exp_of_loss(sum(last) / len(last))
    measured = [float(perplexity) for _, perplexity in record.heldout]
    if record.best is not None and record.best not in measured:  # in an earlier call
        measured.insert(0, record.best)
    return verdict(
        perplexity=perplexity,
        text=text,
        unigram=record.unigram,
        unknown=unknown,
        tokens=record.tokens,
        passes=record.passes,
        measurements=measured,
    )


def _report(record: TrainingRecord, save_dir: str, sampled: bool) -> None:
    if record.words_carried is not None:
        known, n_words = record.words_carried
        note(f"of {n_words:,} words of the vocabulary {known:,} were known to the first model")
    if record.stopped_early:
        note(f"stopped early: the best held-out perplexity was that of step {record.best_step:,}")
    if record.n_steps == 0:
        if record.stopped_early:
            print(f"this run has stopped early; the model is {record.checkpoint}")
            note("A higher --patience trains it further.")
        else:
            print(f"all steps of this run are done; the model is {record.checkpoint}")
            note("More --n_epochs train it further.")
        return
    print(f"trained {record.n_steps:,} steps; the model is {record.checkpoint}")
    if record.best is not None:
        print(f"best held-out perplexity {record.best:.4f} after step {record.best_step}")
    print("\n".join(_verdict(record, sampled)))
    chosen = " --best" if record.best is not None else ""
    run = f"--save_dir {shlex.quote(save_dir)}{chosen}"
    note(f"Next: bilm test {run} --test_prefix HELDOUT\n      bilm dump {run} --model_dir FOLDER")


def model_folder(args: argparse.Namespace) -> str:
    """--save_dir, or the folder of its best model."""
    from bilm.files.checkpoints import BEST_FOLDER, holds_checkpoint

    if not args.best:
        return args.save_dir
    folder = os.path.join(args.save_dir, BEST_FOLDER)
    if not holds_checkpoint(folder):
        raise InputError(
            f"{args.save_dir} has no best model: `bilm train --heldout_prefix` keeps one."
        )
    return folder
