"""Train a model on tokenised text.

The corpus is UTF-8 text, one sentence a line, tokens parted by white space. The vocabulary is one
word a line: <S>, </S>, <UNK>, then the words by falling count. Tokens are counted, not typed.

  bilm train --save_dir model --vocab_file vocab.txt --train_prefix 'corpus/train-*.txt'

The folder then holds checkpoints, options.json and the vocabulary (vocab.txt); `bilm test`
measures it and `bilm dump` writes its weights for use. Stopped by Ctrl-C, it can be taken up
again by `bilm restart`.
"""

from __future__ import annotations

import argparse

from bilm.cli import arguments, training_run
from bilm.cli.tensorflow_import import import_tensorflow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm train`."""
    arguments.add_save_dir(parser, "where the model goes; one that has a model is refused")
    parser.add_argument("--vocab_file", metavar="FILE", required=True, help="vocabulary")
    arguments.add_corpus(parser, "--train_prefix", "text to train on")
    arguments.add_network_choice(parser)
    arguments.add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Train a new model."""
    import_tensorflow()
    training_run.require_new_folder(args)
    training_run.require_same_words(args.vocab_file, args.save_dir)
    options = training_run.chosen_options(args)
    return training_run.run_training(args, options, args.vocab_file, args.seed or 0)
