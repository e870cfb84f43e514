"""List the models that have names.

A name stands for a model wherever a command takes one. Models that are not part of the package are
downloaded when they are first used, into Keras' cache ($KERAS_HOME or ~/.keras). Any other number
of NLPL's repository is a name too (nlpl-NNN); so are addresses, https://.../model.zip and
hf://OWNER/NAME[@REVISION]. The checksum is that of the weights or the ZIP file, where it is known:
NAME#CHECKSUM requires it. --json prints it in full, and the addresses.

  bilm models
  bilm embed text.txt vectors.hdf5 --model english
  bilm embed text.txt vectors.hdf5 --model original
"""

import argparse
import json

from bilm.cli import flags
from bilm.files.model_files import published_models
from bilm.terminal import show, table

_COLUMNS = {"name": "name", "language": "language, text", "megabytes": "MB", "tokens": "tokens",
            "licence": "licence", "checksum": "checksum", "present": "present",
            "note": "note"}  # fmt: skip
_CHECKSUM = len("sha256=") + 12  # the characters of a checksum that the table shows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"--json": "print a JSON list"})


def run(args: argparse.Namespace) -> int:
    models = [
        model._asdict() | {"present": model.folder if model.is_present else None}
        for model in published_models()
    ]
    if args.json:
        print(json.dumps(models, ensure_ascii=False, indent=1))
        return 0
    for model in models:
        model["checksum"] = model["checksum"] and model["checksum"][:_CHECKSUM] + "..."
    rows = [[str(model[key] or "") for key in _COLUMNS] for model in models]
    show(table([[*_COLUMNS.values()], *rows], left=len(_COLUMNS)))
    return 0
