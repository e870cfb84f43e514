"""Go on training from the last checkpoint.

A run that was interrupted goes on where it was; one that is done goes on with more --n_epochs.
Takes a folder that `bilm train` made, or one of the original program (TensorFlow 1):

  bilm restart --save_dir model --train_prefix 'corpus/train-*.txt'
"""

from __future__ import annotations

import argparse

from bilm.cli import arguments, training_run
from bilm.cli.tensorflow_import import import_tensorflow
from bilm.options import Options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm restart`."""
    arguments.add_save_dir(parser, "folder of the model")
    arguments.add_vocab_file(parser)
    arguments.add_corpus(parser, "--train_prefix", "text to train on")
    arguments.add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Train an existing model further."""
    import_tensorflow()
    from bilm.training import load_options_latest_checkpoint
    from bilm.training.checkpoint import read_record

    values, checkpoint = load_options_latest_checkpoint(args.save_dir)
    record = read_record(checkpoint)
    if record is None:
        # The original program has no place to go on from: the text named now is counted.
        values.pop("n_train_tokens", None)
    options = Options.from_dict(values, training=True, source=args.save_dir)
    options = training_run.override(options, args)
    vocab_file = training_run.find_vocabulary(args)
    seed = (record or {}).get("seed", 0) if args.seed is None else args.seed
    return training_run.run_training(args, options, vocab_file, seed, checkpoint)
