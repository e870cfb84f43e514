"""Write a model as a SavedModel that takes text and needs no Python.

MODEL is a folder or ZIP file with weights and options, a name or an address. OUT is the folder to
write. It has the signatures of TF-Hub's ELMo: `default` takes strings (batch,), which are split on
white space; `tokens` takes tokens (batch, time) with sequence_len (batch,). The outputs are
word_emb, lstm_outputs1 and so on, elmo, and default, the mean of elmo over a sentence's tokens.

  bilm export elmo served
  bilm export elmo served/1 --layer_weights 0.2,0.5,0.3
"""

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
    weights = "factors of the layers in the output `elmo`, the token layer first, which are not "
    weights += "normalised (default: the average of the layers)"
    flags.add(parser, {"--layer_weights W,W,...": weights}, type=_weights)
    flags.add(parser, flags.PRECISION, default="float32")
    flags.add(parser, {"--force": "replace a folder that holds a SavedModel and nothing else"})


def run(args: argparse.Namespace) -> int:
    flags.model_source(args)
    out = args.output
    flags.outputs(args, output=out, folders=[out], replaces=SAVED_MODEL_FILES)
    model = text_command.pretrained(args)
    from bilm.use.saved_model import export_saved_model

    print(export_saved_model(model, out, mix=args.layer_weights, overwrite=args.force))
    return 0
