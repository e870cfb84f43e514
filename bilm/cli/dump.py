"""Write a trained model's weights for use.

--outfile writes a file in the published format, with the options for inference next to it, here in
weights.options.json:

  bilm dump --save_dir model --outfile weights.hdf5

--model_dir writes a model folder, with model.hdf5, options.json and vocab.txt:

  bilm dump --save_dir model --model_dir elmo-mine
  bilm dump --save_dir model --model_dir elmo-small --dtype float16 \\
      --softmax_dtype int8

The weights file also holds the softmax and its vocabulary, which `bilm score`, `substitutes`,
`senses` and `report` use; programs that read published weights ignore them. --without_softmax
leaves them out.
"""

import argparse
import os

from bilm.cli import flags, training_run
from bilm.files.reading import OPTIONS_FILE, VOCABULARY_FILE, WEIGHTS_FILE
from bilm.terminal import import_tensorflow, note


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, flags.SAVE_DIR, required=True)
    flags.add(parser, flags.BEST)
    target = parser.add_mutually_exclusive_group(required=True)
    flags.add(target, {"--outfile FILE.hdf5": "weights file to write"})
    flags.add(target, {"--model_dir FOLDER": "model folder to write"})
    flags.add(parser, flags.RUN_VOCABULARY)
    flags.add(
        parser,
        {
            "--without_softmax": "leave out the softmax and its vocabulary",
            "--with_states": "also write the mean of the LSTM states of training; sentences then "
            "start from it instead of zeros. For a model that was trained without resets "
            "(--reset_rate 0)",
            "--dtype float32|float16": "type of the numbers (default: float32); float16 halves "
            "the file",
            "--softmax_dtype float32|float16|int8": "type of the softmax (default: --dtype); int8 "
            "stores integers and a factor for each word, in a quarter of the space of float32",
            **flags.FORCE,
        },
    )
    parser.set_defaults(dtype="float32")


def run(args: argparse.Namespace) -> int:
    if args.outfile is not None and args.vocab_file is not None and args.without_softmax:
        flags.usage_error(
            args, "--vocab_file with --outfile is for the softmax, which --without_softmax omits"
        )
    if args.without_softmax:
        flags.require_effect(args, "the softmax, which --without_softmax omits", "softmax_dtype")
    flags.require_run(args.save_dir)
    flags.require_inputs(args)
    if args.outfile is not None:
        options_file = f"{os.path.splitext(args.outfile)[0]}.options.json"
        outputs = flags.outputs(args, outfile=[args.outfile, options_file])
    else:
        outputs = flags.model_folder(args, WEIGHTS_FILE, OPTIONS_FILE, VOCABULARY_FILE)
    import_tensorflow()
    from bilm.training import dump_weights

    args.save_dir = training_run.model_folder(args)
    with_softmax = not args.without_softmax
    default = os.path.join(args.save_dir, VOCABULARY_FILE)
    has_words = args.vocab_file is not None or os.path.exists(default)
    if with_softmax and args.outfile is not None and not has_words:
        with_softmax = False
        note(
            f"{args.save_dir} has no {VOCABULARY_FILE}, so the softmax is left out; --vocab_file "
            "FILE adds it."
        )
    weights, options, *words = outputs.paths
    if words:
        os.makedirs(args.model_dir, exist_ok=True)
    dump_weights(
        args.save_dir,
        weights,
        with_softmax=with_softmax,
        vocab_file=args.vocab_file,
        options_file=options,
        words_file=words[0] if words else None,
        overwrite=args.force,
        **flags.keywords(args, "with_states", "dtype", "softmax_dtype"),
    )
    print("\n".join(outputs.paths))
    return 0
