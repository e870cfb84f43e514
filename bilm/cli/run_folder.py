"""Training folders: options, checkpoint, vocabulary and best model, for several subcommands."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from bilm.core.errors import InputError
from bilm.core.options import Options
from bilm.files.reading import VOCABULARY_FILE
from bilm.terminal import note

if TYPE_CHECKING:
    from bilm.data import BidirectionalLMDataset, LMDataset, Vocabulary
    from bilm.training.run_state import RunState


def read_run(save_dir: str) -> tuple[Options, RunState | None, str]:
    """The options of the run in a folder, its state (None for the original program), and the
    checkpoint."""
    from bilm.files.checkpoints import load_options_latest_checkpoint
    from bilm.training.run_state import read_run_state

    values, checkpoint = load_options_latest_checkpoint(save_dir)
    state = read_run_state(checkpoint)
    options = Options.from_dict(values, training=True, source=save_dir)
    return options, state, checkpoint


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
