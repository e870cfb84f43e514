"""Write a trained model's weights for use.

As a file in the published format, with the options for inference beside it:

  bilm dump --save_dir model --outfile weights.hdf5        (and weights.options.json)

or as a model folder, with model.hdf5, options.json and vocab.txt:

  bilm dump --save_dir model --model_dir elmo-mine

With --with_softmax the weights file also holds the softmax and its vocabulary, for `bilm score`
and `bilm substitutes`; programs that read published weights ignore it.
"""

from __future__ import annotations

import argparse
import os
import shutil

from bilm.cli import flags, training_run
from bilm.cli.terminal import import_tensorflow
from bilm.files.reading import OPTIONS_FILE, VOCABULARY_FILE, WEIGHTS_FILE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, flags.SAVE_DIR, required=True)
    flags.add(parser, flags.BEST)
    target = parser.add_mutually_exclusive_group(required=True)
    flags.add(target, {"--outfile FILE.hdf5": "weights file to write"})
    flags.add(target, {"--model_dir FOLDER": "model folder to write"})
    flags.add(
        parser,
        {
            **flags.RUN_VOCABULARY,
            "--with_softmax": "also write the softmax and its vocabulary into the weights file",
            "--with_states": "also write the mean of the LSTM states of training, from which "
            "sentences then begin instead of zeros; for a model that was trained without resets "
            "(--reset_rate 0)",
            **flags.FORCE,
        },
    )


def run(args: argparse.Namespace) -> int:
    if args.outfile is not None and args.vocab_file is not None and not args.with_softmax:
        flags.usage_error(
            args, "--vocab_file goes with --model_dir or --with_softmax, not with --outfile alone"
        )
    import_tensorflow()
    from bilm.training import dump_weights

    args.save_dir = training_run.model_folder(args)
    extras = {"with_softmax": args.with_softmax, "with_states": args.with_states}
    if args.outfile is not None:
        written = [args.outfile, f"{os.path.splitext(args.outfile)[0]}.options.json"]
        flags.require_free_files(args, *written)
        words = training_run.find_vocabulary(args) if args.with_softmax else None
        extras["overwrite"] = args.force
        dump_weights(args.save_dir, args.outfile, vocab_file=words, **extras)
        print("\n".join(written))
        return 0
    words = training_run.find_vocabulary(args)
    names = WEIGHTS_FILE, OPTIONS_FILE, VOCABULARY_FILE
    with flags.model_folder_files(args, *names) as (weights, options, copy):
        dump_weights(args.save_dir, weights, vocab_file=words, options_file=options, **extras)
        shutil.copyfile(words, copy)
    return 0
