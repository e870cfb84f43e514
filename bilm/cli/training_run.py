"""What `bilm train`, `restart` and `test` have in common: options, vocabulary, corpus, report."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

from bilm.cli.progress import ProgressLine, TrainingLine
from bilm.errors import InputError
from bilm.files import atomic_write, open_text, read_lines, require_file
from bilm.options import Options, preset

if TYPE_CHECKING:
    from bilm.data import BidirectionalLMDataset, LMDataset, Vocabulary
    from bilm.training import TrainingProgress, TrainingRecord

VOCABULARY_NAME = "vocab.txt"
_OVERRIDES = ("n_epochs", "batch_size", "learning_rate", "n_train_tokens")


def note(text: str) -> None:
    """Tell the user something on standard error."""
    print(text, file=sys.stderr)


def chosen_options(args: argparse.Namespace) -> Options:
    """The training options that --preset or --options_file names, with the run's flags on top."""
    if args.options_file is not None:
        options = Options.from_file(args.options_file, training=True)
    else:
        name = args.preset or "small"
        options = Options.from_dict(preset(name), training=True, source=f"preset {name}")
    return override(options, args)


def override(options: Options, args: argparse.Namespace) -> Options:
    """`options` with the flags of the run that were given."""
    given = {name: getattr(args, name) for name in _OVERRIDES if getattr(args, name) is not None}
    return dataclasses.replace(options, **given)


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


def keep_vocabulary(vocab_file: str, save_dir: str) -> None:
    """Copy the vocabulary beside the checkpoints, where every later verb finds it."""
    kept = os.path.join(save_dir, VOCABULARY_NAME)
    if os.path.exists(kept):
        return
    with (
        open_text(vocab_file) as words,
        atomic_write(kept) as temporary,
        open(temporary, "w", encoding="utf-8") as copy,
    ):
        copy.writelines(words)


def find_vocabulary(args: argparse.Namespace) -> str:
    """--vocab_file, or the vocabulary in --save_dir; they are the same if both are there.

    Raises:
        InputError: there is neither, or they differ.
    """
    kept = os.path.join(args.save_dir, VOCABULARY_NAME)
    if args.vocab_file is None:
        if not os.path.exists(kept):
            raise InputError(f"{args.save_dir} has no {VOCABULARY_NAME}: name it by --vocab_file.")
        return kept
    require_same_words(args.vocab_file, args.save_dir)
    return args.vocab_file


def require_same_words(vocab_file: str, save_dir: str) -> None:
    """Check that a vocabulary is the one that is kept in a folder, if there is one.

    Raises:
        InputError: they differ.
    """
    require_file(vocab_file, "vocabulary file")
    kept = os.path.join(save_dir, VOCABULARY_NAME)
    if not os.path.exists(kept) or os.path.samefile(vocab_file, kept):
        return
    if list(read_lines(vocab_file)) != list(read_lines(kept)):
        raise InputError(f"{vocab_file} differs from {kept}, the vocabulary kept in that folder.")


def run_training(
    args: argparse.Namespace,
    options: Options,
    vocab_file: str,
    seed: int,
    checkpoint: str | None = None,
) -> int:
    """Train into --save_dir, showing progress, and print where the model is.

    Args:
        seed: of the run, its shuffling included.
        checkpoint: what to go on from; None starts a new model.
    """
    vocabulary = load_vocabulary(vocab_file, options)
    source = args.save_dir if checkpoint else args.options_file or "the preset"
    options = fit_to_vocabulary(options, vocabulary.size, vocab_file, source)
    corpus = open_corpus(options, args.train_prefix, vocabulary, shuffle_on_load=True, seed=seed)
    record = _train(args, options, corpus, vocab_file, seed, checkpoint)
    _report(record, args.save_dir)
    return 0


def _train(
    args: argparse.Namespace,
    options: Options,
    corpus: LMDataset | BidirectionalLMDataset,
    vocab_file: str,
    seed: int,
    checkpoint: str | None,
) -> TrainingRecord:
    from bilm.training import train

    note("reading the corpus and compiling the model ...")
    line = ProgressLine(sys.stderr)
    show = TrainingLine(line, options.sample_softmax)

    def progress(event: TrainingProgress) -> None:
        show(event)
        # After a step, whatever could be wrong with the input has been found.
        keep_vocabulary(vocab_file, args.save_dir)

    try:
        return train(
            options.training_dict(),
            corpus,
            args.n_gpus,
            args.save_dir,
            args.save_dir,
            checkpoint,
            seed=seed,
            precision=args.precision,
            save_minutes=args.save_minutes,
            progress=progress,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_what_is_saved(args)) from None
    finally:
        line.close()


def _what_is_saved(args: argparse.Namespace) -> str:
    from bilm.training.checkpoint import holds_model

    if not holds_model(args.save_dir):
        return "No checkpoint had been written yet."
    command = ["bilm", "restart", "--save_dir", args.save_dir, "--train_prefix", args.train_prefix]
    # The rest of the run's settings is in the folder.
    if args.n_gpus != 1:
        command += ["--n_gpus", str(args.n_gpus)]
    if args.precision != "float32":
        command += ["--precision", args.precision]
    return f"The last checkpoint is in {args.save_dir}; to go on from it: {shlex.join(command)}"


def _report(record: TrainingRecord, save_dir: str) -> None:
    if record.n_steps == 0:
        print(f"all steps of this run are done; the model is {record.checkpoint}")
        note("More --n_epochs train it further.")
        return
    print(f"trained {record.n_steps:,} steps; the model is {record.checkpoint}")
    note(
        f"Next: bilm test --save_dir {save_dir} --test_prefix HELDOUT\n"
        f"      bilm dump --save_dir {save_dir} --model_dir FOLDER"
    )


def require_new_folder(args: argparse.Namespace) -> None:
    """Check that training would write over no model.

    Raises:
        InputError: --save_dir has one.
    """
    from bilm.training.checkpoint import holds_model

    if holds_model(args.save_dir):
        raise InputError(
            f"{args.save_dir} has a trained model in it, which is never overwritten: "
            f"`bilm restart --save_dir {args.save_dir}` trains it further, "
            "another --save_dir starts a new one."
        )
