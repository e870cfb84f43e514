"""Training folders for subcommands: vocabulary, corpus, the best model."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from bilm.cli import flags
from bilm.cli.terminal import note
from bilm.core.errors import InputError
from bilm.core.options import Options
from bilm.files.reading import VOCABULARY_FILE, read_lines, require_file

if TYPE_CHECKING:
    from bilm.data import BidirectionalLMDataset, LMDataset, Vocabulary


def find_vocabulary(args: argparse.Namespace) -> str:
    """--vocab_file, or the vocabulary in --save_dir; if both exist they must be the same."""
    flags.require_folder(args.save_dir)
    kept = os.path.join(args.save_dir, VOCABULARY_FILE)
    if args.vocab_file is None:
        if not os.path.exists(kept):
            raise InputError(
                f"{args.save_dir} has no {VOCABULARY_FILE}: name the vocabulary by --vocab_file."
            )
        return kept
    require_kept_vocabulary(args.vocab_file, args.save_dir)
    return args.vocab_file


def require_kept_vocabulary(vocab_file: str, save_dir: str) -> None:
    """Require that a vocabulary is the one kept in a folder, if there is one."""
    require_file(vocab_file, "vocabulary file")
    kept = os.path.join(save_dir, VOCABULARY_FILE)
    if not os.path.exists(kept) or os.path.samefile(vocab_file, kept):
        return
    if list(read_lines(vocab_file)) != list(read_lines(kept)):
        raise InputError(f"{vocab_file} differs from {kept}, the vocabulary kept in that folder.")


def load_vocabulary(vocab_file: str, options: Options, source: str) -> tuple[Vocabulary, Options]:
    """The vocabulary for a model, and the options for it: its size, and a softmax that fits it.

    `source` names the options in messages.
    """
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
