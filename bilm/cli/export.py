"""Write a model as a SavedModel that takes text and needs no Python.

MODEL is a folder or ZIP file with weights and options, a name or an address; --options_file and
--weight_file name a pair of files instead. OUT is the folder to write. It has the
signatures of TF-Hub's ELMo: `default` takes strings (batch,), which are split on white space;
`tokens` takes tokens (batch, time) with sequence_len (batch,). The outputs are word_emb,
lstm_outputs1 and so on, elmo, and default, the mean of elmo over a sentence's tokens.

  bilm export elmo served
  bilm export elmo served/1 --mix tagger.keras  # the mix of a Keras model
"""

from __future__ import annotations

import argparse
import math

from bilm.cli import flags, text_command
from bilm.files.reading import SAVED_MODEL_FILES

_weights = flags.value(
    lambda text: [float(number) for number in text.split(",")],
    "must be finite numbers separated by commas, such as 0.2,0.5,0.3",
    lambda weights: all(map(math.isfinite, weights)),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_model_argument(parser)
    flags.add(parser, {"output OUT": "folder to write"})
    flags.add(parser.add_argument_group("words"), flags.WORDS)
    group = parser.add_argument_group("layer mix of the output `elmo` (default: the average)")
    choice = group.add_mutually_exclusive_group()
    saved = "a model that Keras saved: its trained mix (of ELMoEmbedding or weight_layers) is used"
    flags.add(choice, {"--mix FILE.keras": saved})
    weights = "a weight for each layer, the token layer first; they are not normalised"
    flags.add(choice, {"--layer_weights W,W,...": weights}, type=_weights)
    flags.add(group, {"--mix_name NAME": "name of the mix, if FILE.keras has several"})
    flags.add(parser, flags.PRECISION, default="float32")
    flags.add(parser, {"--force": "replace a folder that holds a SavedModel and nothing else"})


def run(args: argparse.Namespace) -> int:
    flags.model_source(args)
    if args.mix is None:
        flags.require_effect(args, "--mix", "mix_name")
    out = args.output
    flags.outputs(args, output=out, folders=[out], replaces=SAVED_MODEL_FILES)
    model = text_command.pretrained(args)
    from bilm.use.saved_model import export_saved_model, read_mix

    mix = args.layer_weights if args.mix is None else read_mix(args.mix, args.mix_name)
    print(export_saved_model(model, args.output, mix=mix, overwrite=args.force))
    return 0
