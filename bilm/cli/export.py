"""Write a model as a SavedModel that takes text and needs no Python.

MODEL is a folder or ZIP file with weights and options; a pair of files is named by --options_file
and --weight_file. OUT is the folder to write, as TF-Hub's ELMo is: its signatures are `default`,
strings (batch,) split on white space, and `tokens`, tokens (batch, time) with sequence_len
(batch,); their outputs are word_emb, lstm_outputs1 and so on, elmo, and default, the mean of elmo
over a sentence's tokens.

  bilm export elmo served
  bilm export elmo served/1 --mix tagger.keras      with the mix that a Keras model trained
"""

from __future__ import annotations

import argparse
from typing import Any

from bilm.cli import arguments, model_arguments
from bilm.cli.tensorflow_import import import_tensorflow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm export`."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help="folder or ZIP file")
    parser.add_argument("output", metavar="OUT", help="folder to write")
    model_arguments.add_pair(parser.add_argument_group("in place of MODEL"))
    model_arguments.add_words(parser.add_argument_group("words"))
    model_arguments.add_warm_up(parser)
    group = parser.add_argument_group("the mix of layers that `elmo` is (default: their average)")
    choice = group.add_mutually_exclusive_group()
    choice.add_argument(
        "--mix",
        metavar="FILE.keras",
        help="the trained mix in a model that Keras saved: that of ELMoEmbedding or weight_layers",
    )
    choice.add_argument(
        "--layer_weights",
        type=weights,
        metavar="W,W,...",
        help="a weight for each layer, that of the tokens first; used as they are",
    )
    group.add_argument("--mix_name", metavar="NAME", help="which mix, if FILE.keras has several")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32",
                        help="what matrix products are computed in (default: float32)")  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace a SavedModel that is there")


def weights(text: str) -> list[float]:
    """A type for flags: numbers with commas between."""
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"numbers with commas between are expected, as 0.2,0.5,0.3, not {text!r}"
        ) from None


def run(args: argparse.Namespace) -> int:
    """Write the model."""
    source = model_arguments.model_source(args)
    if args.mix_name is not None and args.mix is None:
        arguments.usage_error(args, "--mix_name goes with --mix")
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
