"""Describe a model.

MODEL is a folder or ZIP file with weights and options, a name or an address, or a folder of a
training run. The weights are loaded, so the description has been checked against them. A filter is
"width x number"; `parameters` are those of the network, without the softmax.

  bilm info elmo
  bilm info training-folder --json
"""

import argparse
import json
from typing import Any

from bilm.cli import flags
from bilm.files.model_files import local_source, require_known
from bilm.terminal import import_tensorflow, printable

_EMPTY: tuple[Any, ...] = (None, [], {})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_model_argument(parser)
    flags.add(parser, {"--json": "print a JSON object"})


def run(args: argparse.Namespace) -> int:
    flags.require_inputs(args)
    source = flags.model_source(args)
    if isinstance(source, str):  # errors before TensorFlow is imported
        require_known(source)
    source = local_source(source)
    import_tensorflow()
    from bilm.analysis.description import describe
    from bilm.files.model_files import open_model

    with open_model(source) as files:
        facts = describe(files)
    if args.json:
        print(printable(json.dumps(facts, ensure_ascii=False, indent=1)))
    else:
        for name, text in human_text(facts):
            print(f"{name:<16}{text}")
    return 0


def human_text(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts as text: pairs of a name and a description."""
    if "training" in facts:
        facts = facts | {"training": facts["training"] | {"log": None}}  # a line of the log
    known = ((name, value) for name, value in facts.items() if value is not None)
    return [(name.replace("_", " "), printable(_text(value))) for name, value in known]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        known = ((name, inner) for name, inner in value.items() if inner not in _EMPTY)
        return "; ".join(f"{name.replace('_', ' ')} {_text(inner)}" for name, inner in known)
    if isinstance(value, list | tuple):
        return ", ".join(
            " x ".join(map(str, inner)) if isinstance(inner, list | tuple) else _text(inner)
            for inner in value
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
