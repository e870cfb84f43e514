"""Write a trained model's weights for use.

As a file in the published format, with the options for inference beside it:

  bilm dump --save_dir model --outfile weights.hdf5        (and weights.options.json)

or as a folder that holds all that is needed, model.hdf5, options.json and vocab.txt:

  bilm dump --save_dir model --model_dir elmo-mine

With --with_softmax the weights file also holds what the model predicts words with, for
`bilm score` and `bilm substitutes`; whatever reads published weights reads it as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile

from bilm.cli import arguments, training_run
from bilm.cli.tensorflow_import import import_tensorflow
from bilm.errors import InputError
from bilm.files import OPTIONS_FILE, VOCABULARY_FILE, WEIGHTS_FILE

MODEL_FILES = (WEIGHTS_FILE, OPTIONS_FILE, VOCABULARY_FILE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm dump`."""
    arguments.add_save_dir(parser, "folder of the model")
    training_run.add_best(parser)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--outfile", metavar="FILE.hdf5", help="weights file to write")
    target.add_argument("--model_dir", metavar="FOLDER", help="model folder to write")
    arguments.add_vocab_file(parser)
    parser.add_argument(
        "--with_states",
        action="store_true",
        help="also write the mean of the LSTM states of training, from which sentences then begin "
        "in place of zeros; for a model that was trained without resets (--reset_rate 0)",
    )
    parser.add_argument(
        "--with_softmax",
        action="store_true",
        help="also write the softmax and its vocabulary into the weights file",
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")


def run(args: argparse.Namespace) -> int:
    """Write the weights."""
    if args.outfile is not None and args.vocab_file is not None and not args.with_softmax:
        arguments.usage_error(
            args, "--vocab_file goes with --model_dir or --with_softmax, not with --outfile alone"
        )
    import_tensorflow()
    args.save_dir = training_run.model_folder(args)
    written = _dump_folder(args) if args.outfile is None else _dump_file(args)
    for path in written:
        print(path)
    return 0


def _dump_file(args: argparse.Namespace) -> list[str]:
    from bilm.training import dump_weights

    stem = os.path.splitext(args.outfile)[0]
    written = [args.outfile, f"{stem}.options.json"]
    _require_free(written, args.force)
    vocab_file = training_run.find_vocabulary(args) if args.with_softmax else None
    dump_weights(
        args.save_dir,
        args.outfile,
        with_softmax=args.with_softmax,
        with_states=args.with_states,
        vocab_file=vocab_file,
    )
    return written


def _dump_folder(args: argparse.Namespace) -> list[str]:
    from bilm.training import dump_weights

    vocab_file = training_run.find_vocabulary(args)
    written = [os.path.join(args.model_dir, name) for name in MODEL_FILES]
    _require_free(written, args.force)
    os.makedirs(args.model_dir, exist_ok=True)
    # All three are written before the first gets its place.
    with tempfile.TemporaryDirectory(dir=args.model_dir, prefix=".dump-") as folder:
        dump_weights(
            args.save_dir,
            os.path.join(folder, WEIGHTS_FILE),
            with_softmax=args.with_softmax,
            with_states=args.with_states,
            vocab_file=vocab_file if args.with_softmax else None,
        )
        shutil.copyfile(vocab_file, os.path.join(folder, VOCABULARY_FILE))
        made = (WEIGHTS_FILE, "model.options.json", VOCABULARY_FILE)
        for name, target in zip(made, written, strict=True):
            os.replace(os.path.join(folder, name), target)
    return written


def _require_free(paths: list[str], force: bool) -> None:
    taken = [path for path in paths if os.path.exists(path)]
    if taken and not force:
        raise InputError(f"{', '.join(taken)} would be overwritten: --force allows it.")
