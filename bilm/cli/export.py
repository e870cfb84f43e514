"""Write a model as a SavedModel that takes text and needs no Python.

MODEL is a folder or ZIP file with weights and options; --options_file and --weight_file name a pair
of files instead. OUT is the folder to write. The signatures are those of TF-Hub's ELMo: `default`
takes strings (batch,), which are split on white space; `tokens` takes tokens (batch, time) with
sequence_len (batch,). Their outputs are word_emb, lstm_outputs1 and so on, elmo, and default, the
mean of elmo over a sentence's tokens.

  bilm export elmo served
  bilm export elmo served/1 --mix tagger.keras      with the mix trained in a Keras model
"""

from __future__ import annotations

import argparse
from typing import Any

from bilm.cli import flags
from bilm.cli.terminal import import_tensorflow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm export`."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help="folder or ZIP file")
    parser.add_argument("output", metavar="OUT", help="folder to write")
    flags.add_pair(parser.add_argument_group("instead of MODEL"))
    flags.add_words(parser.add_argument_group("words"))
    flags.add_warm_up(parser)
    group = parser.add_argument_group("layer mix of the output `elmo` (default: the average)")
    choice = group.add_mutually_exclusive_group()
    choice.add_argument(
        "--mix",
        metavar="FILE.keras",
        help="a model that Keras saved: its trained mix (of ELMoEmbedding or weight_layers) is "
        "used",
    )
    choice.add_argument(
        "--layer_weights",
        type=weights,
        metavar="W,W,...",
        help="a weight for each layer, the token layer first; they are not normalised",
    )
    group.add_argument(
        "--mix_name", metavar="NAME", help="name of the mix, if FILE.keras has several"
    )
    flags.add_precision(parser)
    parser.add_argument("--force", action="store_true", help="replace an existing SavedModel")


def weights(text: str) -> list[float]:
    """A type for flags: numbers separated by commas."""
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"numbers separated by commas are expected, as 0.2,0.5,0.3, not {text!r}"
        ) from None


def run(args: argparse.Namespace) -> int:
    """Write the model."""
    source = flags.model_source(args)
    if args.mix_name is not None and args.mix is None:
        flags.usage_error(args, "--mix_name goes with --mix")
    import_tensorflow()
    from bilm.serving import export_saved_model, read_mix

    mix: Any = args.layer_weights
    if args.mix is not None:
        mix = read_mix(args.mix, args.mix_name)
    written = export_saved_model(
        source,
        args.output,
        mix=mix,
        vocab_file=args.vocab_file,
        embedding_weight_file=args.embedding_weight_file,
        precision=args.precision,
        warm_up=args.warm_up,
        overwrite=args.force,
    )
    print(written)
    return 0
