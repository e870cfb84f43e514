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
    from bilm.training.state import RunState


def read_run(save_dir: str) -> tuple[Options, RunState | None, str]:
    """The options of the run in a folder, its state (None for the original program), and the
    checkpoint."""
    from bilm.files.checkpoints import load_options_latest_checkpoint
    from bilm.training.state import read_state

    values, checkpoint = load_options_latest_checkpoint(save_dir)
    state = read_state(checkpoint)
    options = Options.from_dict(values, training=True, source=save_dir)
    return options, state, checkpoint


def find_vocabulary(args: argparse.Namespace, max_word_length: int | None = None) -> Vocabulary:
    """--vocab_file, or the vocabulary in --save_dir; if both exist they must be the same."""
    from bilm.data.vocabulary import vocabulary_of

    path = os.path.join(args.save_dir, VOCABULARY_FILE)
    default = path if os.path.exists(path) else None
    vocabulary = vocabulary_of(args.vocab_file, None, args.save_dir, default, max_word_length)
    if vocabulary is None:
        raise InputError(
            f"{args.save_dir} has no {VOCABULARY_FILE}: name the vocabulary by --vocab_file."
        )
    return vocabulary


def load_vocabulary(
    args: argparse.Namespace, options: Options, source: str
) -> tuple[Vocabulary, Options]:
    """The vocabulary, and the options with its size and a softmax that fits it. `source` names the
    options in messages."""
    vocabulary = find_vocabulary(args, options.max_word_length)
    n_expected, n_words = options.n_tokens_vocab, vocabulary.size
    if n_expected is not None and n_expected != n_words:
        raise InputError(
            f"{source} is for n_tokens_vocab = {n_expected} words, but {vocabulary.source} has "
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
    """A data set for the model's directions; `settings` are passed to it."""
    from bilm.data import BidirectionalLMDataset, LMDataset

    kind = BidirectionalLMDataset if options.bidirectional else LMDataset
    return kind(filepattern, vocabulary, **settings)


def model_folder(args: argparse.Namespace) -> str:
    """--save_dir, or with --best its folder of the best model."""
    from bilm.files.checkpoints import BEST_FOLDER, holds_checkpoint

    if not args.best:
        return args.save_dir
    folder = os.path.join(args.save_dir, BEST_FOLDER)
    if not holds_checkpoint(folder):
        raise InputError(
            f"{args.save_dir} has no best model: `bilm train --heldout_prefix` keeps one."
        )
    return folder
