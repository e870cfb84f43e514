"""Continue training from the last checkpoint.

A run that was interrupted is resumed where it stopped; a finished one is trained further with more
--n_epochs. Takes a folder that `bilm train` made, or one of the original program:

  bilm restart --save_dir model --train_prefix 'corpus/train-*.txt'
"""

from __future__ import annotations

import argparse

from bilm.cli import flags, training_run
from bilm.cli.terminal import import_tensorflow
from bilm.options import Options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm restart`."""
    flags.add_save_dir(parser, "folder of the model")
    flags.add_run_vocabulary(parser)
    flags.add_corpus(parser, "--train_prefix", "text to train on")
    flags.add_run(parser)


def run(args: argparse.Namespace) -> int:
    """Train an existing model further."""
    flags.require_partners(args)
    import_tensorflow()
    replicas = training_run.join_workers(args.n_gpus)
    from bilm.checkpoints import load_options_latest_checkpoint
    from bilm.training.checkpoint import RunSettings, read_record

    values, checkpoint = load_options_latest_checkpoint(args.save_dir, verify=True)
    record = read_record(checkpoint)
    if record is None:
        # The original program does not say where in its text it was: the text named now is counted.
        values.pop("n_train_tokens", None)
    options = Options.from_dict(values, training=True, source=args.save_dir)
    options = training_run.override(options, args)
    settings = RunSettings() if record is None else record.settings
    settings = training_run.override_settings(settings, args)
    vocab_file = training_run.find_vocabulary(args)
    vocabulary = training_run.load_vocabulary(vocab_file, options)
    options = training_run.fit_to_vocabulary(options, vocabulary.size, vocab_file, args.save_dir)
    job = training_run.Job(replicas, options, settings, vocabulary, vocab_file, checkpoint)
    return training_run.run_training(args, job)
