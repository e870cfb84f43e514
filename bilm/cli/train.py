"""Train a model on tokenised text.

The corpus is UTF-8 text, one sentence a line, tokens separated by white space. The vocabulary is
one word a line: <S>, </S>, <UNK>, then the words by falling count. Tokens are counted, not typed.

  bilm train --save_dir model --vocab_file vocab.txt --train_prefix 'corpus/train-*.txt'

The folder then holds checkpoints, options.json and the vocabulary (vocab.txt); `bilm test`
measures it and `bilm dump` writes its weights for use. When it was stopped, by Ctrl-C, a crash or
a full disk, the same command goes on from the last checkpoint.

--n_gpus takes several GPUs of a machine. On several machines start the same command on each, with
TF_CONFIG in the environment saying which are there and which this one is; the first of them writes
--save_dir, which all of them must see:

  TF_CONFIG='{"cluster": {"worker": ["HOST1:PORT", "HOST2:PORT"]},
              "task": {"type": "worker", "index": 0}}' bilm train ...

The corpus is divided among them, and --batch_size is that of each GPU (or machine without one).
"""

from __future__ import annotations

import argparse

from bilm.cli import arguments, run_options, training_flags, training_run
from bilm.cli.same_run import find_same_run
from bilm.cli.tensorflow_import import import_tensorflow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm train`."""
    arguments.add_save_dir(
        parser,
        "where the model goes; an unfinished run there is resumed; any other model is an error",
    )
    parser.add_argument("--vocab_file", metavar="FILE", required=True, help="vocabulary")
    arguments.add_corpus(parser, "--train_prefix", "text to train on")
    arguments.add_network_choice(parser)
    arguments.add_run_options(parser)
    training_flags.add_heldout(parser)
    training_flags.add_schedule(parser)
    training_flags.add_start(parser)


def run(args: argparse.Namespace) -> int:
    """Train a new model, or go on with the run that this command began."""
    training_flags.require_heldout(args)
    import_tensorflow()
    replicas = training_run.join_workers(args.n_gpus)
    from bilm.checkpoints import holds_checkpoint
    from bilm.training.checkpoint import RunSettings

    resumes = holds_checkpoint(args.save_dir)
    training_run.require_same_words(args.vocab_file, args.save_dir)
    options = run_options.chosen_options(args)
    settings = run_options.override_settings(RunSettings(init_from=args.init_from), args)
    vocabulary = training_run.load_vocabulary(args.vocab_file, options)
    source = args.options_file or args.init_from or "the preset"
    options = training_run.fit_to_vocabulary(options, vocabulary.size, args.vocab_file, source)
    checkpoint = None
    if resumes:
        options, checkpoint = find_same_run(args, options, settings)
    job = training_run.Job(replicas, options, settings, vocabulary, args.vocab_file, checkpoint)
    return training_run.run_training(args, job)
