"""Train a model on tokenised text.

The corpus is UTF-8 text, one sentence per line, tokens separated by white space. The vocabulary is
one word per line: <S>, </S>, <UNK>, then the words by descending count (`bilm vocab` writes it).

  bilm train --save_dir model --vocab_file vocab.txt --train_prefix 'corpus/train-*.txt'

The folder then holds checkpoints, options.json and the vocabulary (vocab.txt); `bilm test`
measures it and `bilm dump` writes its weights for use. After Ctrl-C, a crash or a full disk,
the same command resumes from the last checkpoint.

--n_gpus uses several GPUs of a machine. To use several machines, start the same command on each of
them, with the environment variable TF_CONFIG naming all of them and the index of this one. The
first one writes --save_dir, which all of them must be able to read:

  TF_CONFIG='{"cluster": {"worker": ["HOST1:PORT", "HOST2:PORT"]},
              "task": {"type": "worker", "index": 0}}' bilm train ...

The corpus is divided among them, and --batch_size applies to each GPU (or machine without one).
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bilm.cli import flags
from bilm.core.errors import InputError, differences
from bilm.core.options import Options, preset
from bilm.files.reading import VOCABULARY_FILE, find_files, read_lines
from bilm.files.writing import atomic_write
from bilm.progress import ProgressDisplay
from bilm.terminal import count, import_tensorflow, note

if TYPE_CHECKING:
    from bilm.data import BidirectionalLMDataset, LMDataset, Vocabulary
    from bilm.training import Perplexity, TrainingProgress, TrainingRecord
    from bilm.training.run_state import RunState

# Steps whose mean loss gives the training perplexity.
_LAST_STEPS = 100
_OVERRIDES = (
    "n_epochs", "batch_size", "learning_rate", "n_train_tokens", "reset_rate", "warmup_steps",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    required = {
        "--save_dir FOLDER": "folder for the model; an unfinished run in it is resumed; any other "
        "model in it is an error",
        "--vocab_file FILE": "vocabulary",
    }
    flags.add(parser, required, required=True)
    flags.add(parser, flags.corpus("--train_prefix", "text to train on"), required=True)
    flags.add(parser.add_mutually_exclusive_group(), flags.NETWORK_CHOICE)
    flags.add(parser, flags.RECIPE | flags.TIME)
    flags.add_run(parser)
    group = parser.add_argument_group("fine-tuning (start with a trained model)")
    flags.add(group, flags.FINE_TUNING)


def run(args: argparse.Namespace) -> int:
    flags.require_partners(args)
    flags.require_inputs(args)
    if os.path.isfile(args.save_dir):
        raise InputError(f"{args.save_dir!r} must be a folder, it is a file.")
    import_tensorflow()
    join_workers(args.n_gpus)
    from bilm.data.tokenized_text import read_record
    from bilm.files.checkpoints import holds_checkpoint
    from bilm.training.planning import fast_precision

    options = override(_chosen_options(args), args)
    tokenizer = read_record(find_files(args.train_prefix)) or options.tokenizer
    options = dataclasses.replace(options, tokenizer=tokenizer)
    source = args.options_file or args.init_from or "the preset"
    vocabulary, options = load_vocabulary(args, options, source)
    settings = run_settings(args, None)
    uses_recipe = args.options_file is None and args.init_from is None
    if args.precision is None and uses_recipe and args.recipe == "default":
        settings["precision"] = fast_precision()
    checkpoint = None
    if holds_checkpoint(args.save_dir):
        options, checkpoint = _find_same_run(args, options, settings)
    return run_training(args, options, settings, vocabulary, checkpoint)


def _chosen_options(args: argparse.Namespace) -> Options:
    if args.options_file is not None:
        named = Options.from_file(args.options_file, training=True)
    else:
        name = args.preset or "base"
        named = Options.from_dict(preset(name, args.recipe), training=True, source=f"preset {name}")
    if args.init_from is None:
        return named
    from bilm.files.model_files import open_model
    from bilm.files.weights import open_weights
    from bilm.training.fine_tuning import require_same_network

    with open_model(args.init_from) as source:
        if args.options_file is not None or args.preset is not None:
            require_same_network(named, source)
            return named
        options = source.read_options()
        if not source.is_checkpoint:
            # Options for inference lack it; the weights file records how the model was trained.
            with open_weights(source.weights) as weights:
                trained = weights.training() or {}
            options = dataclasses.replace(options, reset_rate=trained.get("reset_rate") or 0.0)
        # The new run has its own vocabulary, corpus and length.
        return dataclasses.replace(options, n_tokens_vocab=None, n_train_tokens=None, n_steps=None)


def _find_same_run(
    args: argparse.Namespace, options: Options, settings: dict[str, Any]
) -> tuple[Options, str]:
    """The options and checkpoint of the run in --save_dir, whose options must match the flags."""
    there, state, checkpoint = read_run(args.save_dir)
    reason = "it is from the original program"
    if state is not None:
        # The first call may have found these out, from the text and the time.
        names = ["n_train_tokens", "dropout", "tokenizer"]
        kept = {name: getattr(there, name) for name in names if getattr(options, name) is None}
        if options.n_steps is None and args.n_epochs is None:
            kept |= {"n_steps": there.n_steps, "n_epochs": there.n_epochs}
        if args.precision is None:
            settings["precision"] = state.settings.precision
        options = dataclasses.replace(options, **kept)
        stored = there.training_dict() | {name: getattr(state.settings, name) for name in settings}
        reason = "; ".join(differences(stored, options.training_dict() | settings))
    if not reason:
        return options, checkpoint
    restart = f"bilm restart --save_dir {shlex.quote(args.save_dir)}"
    raise InputError(
        f"{args.save_dir!r} has a trained model of another run, which is never overwritten: "
        f"{reason}. `{restart}` trains it further, another --save_dir starts a new one."
    )


# Shared with `bilm restart`


def join_workers(n_gpus: int) -> None:
    """Find the devices of the run before TensorFlow is used; with TF_CONFIG wait for the others."""
    from bilm.training.replicas import find_replicas, find_worker

    worker = find_worker()
    if not worker.is_alone:
        note(f"worker {worker.index} of {worker.count}: waiting for the others ...")
    find_replicas(n_gpus)


def read_run(save_dir: str) -> tuple[Options, RunState | None, str]:
    """The options of the run in a folder, its state (None for the original program), and the
    checkpoint."""
    from bilm.files.checkpoints import load_options_latest_checkpoint
    from bilm.training.run_state import read_run_state

    values, checkpoint = load_options_latest_checkpoint(save_dir)
    state = read_run_state(checkpoint)
    options = Options.from_dict(values, training=True, source=save_dir)
    if state is not None:  # earlier versions wrote the schedule there alone
        schedule = state.settings.schedule
        options = dataclasses.replace(
            options, schedule=schedule.kind, warmup_steps=schedule.warmup_steps
        )
    return options, state, checkpoint


def override(options: Options, args: argparse.Namespace) -> Options:
    """The options, changed by the flags that were given."""
    given = flags.given(args, *_OVERRIDES) | {"schedule": args.lr_schedule}
    options = dataclasses.replace(options, **{k: v for k, v in given.items() if v is not None})
    # A run by time has a number of steps, which epochs replace.
    return options if args.n_epochs is None else dataclasses.replace(options, n_steps=None)


def run_settings(args: argparse.Namespace, state: RunState | None) -> dict[str, Any]:
    """Arguments of `bilm.train` by the flags, or else as in the run that is continued."""
    from bilm.training.run_state import RunSettings

    before = RunSettings() if state is None else state.settings
    given = flags.given(args, "seed", "precision", "init_from")
    return {name: getattr(before, name) if v is None else v for name, v in given.items()}


def run_training(
    args: argparse.Namespace,
    options: Options,
    settings: dict[str, Any],
    vocabulary: Vocabulary,
    checkpoint: str | None,
) -> int:
    """Train into --save_dir, showing progress, and print where the model is; `checkpoint` is where
    to resume, None for a new model."""
    from bilm.data.untokenized import warn_if_untokenized
    from bilm.files.checkpoints import holds_checkpoint
    from bilm.training import train
    from bilm.training.replicas import find_worker

    worker = find_worker()
    shuffled = {"shuffle_on_load": True, "seed": settings["seed"], "worker": worker.share}
    corpus = open_corpus(options, args.train_prefix, vocabulary, **shuffled)
    texts, heldout = {"train_prefix": corpus}, None
    if worker.is_chief:
        file = find_files(args.train_prefix)[0]
        warn_if_untokenized(map(str.split, read_lines(file)), file)
    if args.heldout_prefix is not None:
        in_order = {"test": True, "worker": worker.share}
        heldout = open_corpus(options, args.heldout_prefix, vocabulary, **in_order)
        texts["heldout_prefix"] = heldout
    if checkpoint is not None:
        note(f"resuming from {checkpoint}")
    for flag, text in texts.items():
        unknown = text.unknown_share()
        note(f"--{flag}: {unknown:.1%} of the tokens are outside the vocabulary")
    note("reading the corpus and compiling the model ...")
    with ProgressDisplay() as display:
        show = training_display(display, options.sample_softmax)

        def progress(event: TrainingProgress) -> None:
            show(event)
            # After a step, the input has been checked.
            if worker.is_chief:
                _keep_vocabulary(vocabulary, args.save_dir)

        settings |= flags.given(args, "save_minutes", "patience", "init_vocab", "tensorboard")
        settings |= {"heldout": heldout, "heldout_every": args.heldout_every or "epoch"}
        settings |= {"time_limit": args.time, "progress": progress}
        folders = args.save_dir, args.save_dir  # of checkpoints and log
        try:
            record = train(options, corpus, args.n_gpus, *folders, checkpoint, **settings)
        except KeyboardInterrupt:
            saved = "No checkpoint had been written yet."
            if holds_checkpoint(args.save_dir):
                saved = (
                    f"The last checkpoint is in {args.save_dir}; the same command resumes the run."
                )
            raise KeyboardInterrupt(saved) from None
    if worker.is_chief:  # also if a run that was killed had done all steps
        _keep_vocabulary(vocabulary, args.save_dir)
    _report(record, args.save_dir, options.sample_softmax)
    return 0


def _keep_vocabulary(vocabulary: Vocabulary, save_dir: str) -> None:
    """Copy the vocabulary to the run's folder and its folder `best`, so that both are complete."""
    from bilm.files.checkpoints import BEST_FOLDER

    for folder in (save_dir, os.path.join(save_dir, BEST_FOLDER)):
        kept = os.path.join(folder, VOCABULARY_FILE)
        if os.path.isdir(folder) and not os.path.exists(kept):
            with (
                atomic_write(kept) as temporary,
                open(temporary, "w", encoding="utf-8", newline="\n") as copy,
            ):
                copy.writelines(f"{line}\n" for line in read_lines(vocabulary.source))


# Training folders: vocabulary, corpus, the best model; also for restart, test and dump


def find_vocabulary(args: argparse.Namespace, max_word_length: int | None = None) -> Vocabulary:
    """--vocab_file, or the vocabulary in --save_dir; if both exist they must be the same."""
    from bilm.data.vocabulary import vocabulary_of

    kept = os.path.join(args.save_dir, VOCABULARY_FILE)
    beside = kept if os.path.exists(kept) else None
    found = vocabulary_of(args.vocab_file, None, args.save_dir, beside, max_word_length)
    if found is None:
        raise InputError(
            f"{args.save_dir} has no {VOCABULARY_FILE}: name the vocabulary by --vocab_file."
        )
    return found


def load_vocabulary(
    args: argparse.Namespace, options: Options, source: str
) -> tuple[Vocabulary, Options]:
    """The vocabulary, and the options with its size and a softmax that fits it. `source` names the
    options in messages."""
    vocabulary = find_vocabulary(args, options.max_word_length)
    stated, n_words = options.n_tokens_vocab, vocabulary.size
    if stated is not None and stated != n_words:
        raise InputError(
            f"{source} is for n_tokens_vocab = {stated} words, but {vocabulary.source} has "
            f"{n_words}: name the vocabulary that belongs to it, or leave n_tokens_vocab out."
        )
    options = dataclasses.replace(options, n_tokens_vocab=n_words)
    n_samples = options.n_negative_samples_batch
    if options.sample_softmax and n_words <= n_samples:
        note(
            f"{vocabulary.source} has {n_words:,} words, not more than the {n_samples:,} negative "
            "samples of a batch: training with the full softmax."
        )
        options = dataclasses.replace(options, sample_softmax=False)
    return vocabulary, options


def open_corpus(
    options: Options, filepattern: str, vocabulary: Vocabulary, **settings: Any
) -> LMDataset | BidirectionalLMDataset:
    """A data set with the model's directions; `settings` are further arguments of the data set."""
    from bilm.data import BidirectionalLMDataset, LMDataset

    kind = BidirectionalLMDataset if options.bidirectional else LMDataset
    return kind(filepattern, vocabulary, **settings)


def model_folder(args: argparse.Namespace) -> str:
    """--save_dir, or with --best the folder in it that holds the best model."""
    from bilm.files.checkpoints import BEST_FOLDER, holds_checkpoint

    if not args.best:
        return args.save_dir
    folder = os.path.join(args.save_dir, BEST_FOLDER)
    if not holds_checkpoint(folder):
        raise InputError(
            f"{args.save_dir} has no best model: `bilm train --heldout_prefix` keeps one."
        )
    return folder


# What is shown


def training_display(display: ProgressDisplay, sampled: bool) -> Callable[[TrainingProgress], None]:
    """A function that shows progress events; `sampled` marks perplexities of a sampled softmax."""
    first: TrainingProgress | None = None

    def show(event: TrainingProgress) -> None:
        nonlocal first
        first = first or event
        details = [f"perplexity {event.perplexity:,.1f}{' (sampled)' * sampled}"]
        # The first step compiles, and has no rate.
        if event.seconds > first.seconds:
            rate = (event.tokens - first.tokens) / (event.seconds - first.seconds)
            details.append(f"{rate:,.0f} tokens/s")
        details.append(f"epoch {event.epoch}")
        display.update("step", event.step, event.n_steps, detail="  ".join(details))
        if event.heldout is not None:
            # As in the log, the names of checkpoints, and the best step at the end.
            step = event.step if event.global_step is None else event.global_step
            text = f"step {step:,}: held-out {_in_words(event.heldout)}"
            display.note(text + (", the best so far" if event.is_best else ""))

    return show


def _in_words(perplexity: Perplexity) -> str:
    text = f"perplexity {float(perplexity):,.1f}"
    if perplexity.backward is None:
        return text
    return f"{text} (forward {perplexity.forward:,.1f}, backward {perplexity.backward:,.1f})"


def _report(record: TrainingRecord, save_dir: str, sampled: bool) -> None:
    if record.words_carried is not None:
        known, n_words = record.words_carried
        note(f"{known:,} of the vocabulary's {n_words:,} words were in the first model")
    if record.stopped_early:
        note(f"stopped early: the best held-out perplexity was after step {record.best_step:,}")
    if record.n_steps == 0:
        state, more = "all steps of this run are done", "More --n_epochs train"
        if record.stopped_early:
            state, more = "this run has stopped early", "A higher --patience trains"
        print(f"{state}; the model is {record.checkpoint}")
        note(f"{more} it further.")
        return
    print(f"trained {count(record.n_steps, 'step')}; the model is {record.checkpoint}")
    if record.best is not None:
        print(f"best held-out perplexity {record.best:.4f} after step {record.best_step:,}")
    print("\n".join(_verdict(record, sampled)))
    chosen = " --best" if record.best is not None else ""
    run = f"--save_dir {shlex.quote(save_dir)}{chosen}"
    note(f"Next: bilm test {run} --test_prefix HELDOUT\n      bilm dump {run} --model_dir FOLDER")


def _verdict(record: TrainingRecord, sampled: bool) -> list[str]:
    from bilm.training.verdict import verdict

    text, perplexity, unknown = "held-out", record.best, record.unknown
    if record.heldout:
        unknown = record.heldout[-1][1].unknown
    elif not sampled:
        text = "training"
        perplexity = statistics.geometric_mean(record.train_perplexity[-_LAST_STEPS:])
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
