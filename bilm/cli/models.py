"""List the models that have names.

A name stands for a model wherever a command takes one. Models that are not part of the package are
downloaded when they are first used, into Keras' cache ($KERAS_HOME or ~/.keras). Any other number
of NLPL's repository is a name too (nlpl-NNN); so are addresses, https://.../model.zip and
hf://OWNER/NAME[@REVISION].

  bilm models
  bilm embed text.txt vectors.hdf5 --model wiki-en
  bilm embed text.txt vectors.hdf5 --model original
"""

from __future__ import annotations

import argparse
import json
import sys

from bilm.cli import flags
from bilm.files.published import published_models

_WIDE = 1000  # columns of an output that is not a terminal: no line is wrapped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"--json": "print a JSON list"})


def run(args: argparse.Namespace) -> int:
    models = [
        {
            "name": model.name,
            "language": model.language,
            "tokens": model.tokens,
            "megabytes": model.megabytes,
            "licence": model.licence,
            "present": model.folder if model.is_present else None,
            "files": model.files,
            "softmax": model.softmax,
        }
        for model in published_models()
    ]
    if args.json:
        print(json.dumps(models, ensure_ascii=False, indent=1))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "language, text", "MB", "tokens", "licence", "present", box=None)
    for model in models:
        fields = ("name", "language", "megabytes", "tokens", "licence", "present")
        table.add_row(*("" if model[field] is None else str(model[field]) for field in fields))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE)
    console.print(table, highlight=False, markup=False)
    return 0
