"""Continue training from the last checkpoint.

A run that was interrupted is resumed where it stopped; a finished one is trained further with more
--n_epochs. Takes a folder that `bilm train` made, or one of the original program:

  bilm restart --save_dir model --train_prefix 'corpus/train-*.txt'

The flags override the options of the run. To measure a held-out text as well, repeat the command
`bilm train` of the run, which resumes it too.
"""

import argparse
import dataclasses
from typing import Any

from bilm.cli import flags, training_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, flags.SAVE_DIR, required=True)
    flags.add(parser, flags.RUN_VOCABULARY)
    flags.add(parser, flags.corpus("--train_prefix", "text to train on"), required=True)
    flags.add(parser, flags.RUN)
    parser.set_defaults(n_gpus=1)


def run(args: argparse.Namespace) -> int:
    flags.require_run(args.save_dir)
    flags.require_inputs(args)
    training_run.join_workers(args.n_gpus)
    options, state, checkpoint = training_run.read_run(args.save_dir)
    settings: dict[str, Any] = {"seed": 0}
    if state is not None:
        settings = {"seed": state.seed, "precision": state.precision}
    else:  # the original program does not record its position in the text: count the current text
        options = dataclasses.replace(options, n_train_tokens=None)
    options = training_run.override(options, args, "batch_size", "learning_rate", "n_train_tokens")
    vocabulary, options = training_run.load_vocabulary(args, options, args.save_dir)
    return training_run.run_training(args, options, vocabulary, checkpoint, **settings)
