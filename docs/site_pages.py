"""Pages of the site that are generated: the command line, from the parsers of its subcommands."""

from __future__ import annotations

import argparse
import os
from typing import Any

from mkdocs.structure.files import File, Files

os.environ["COLUMNS"] = "96"


def on_files(files: Files, config: Any) -> Files:
    """Add the page of the command line."""
    files.append(File.generated(config, "cli.md", content=_command_line()))
    return files


def _command_line() -> str:
    from bilm.cli import make_parser

    parser = make_parser()
    (subcommands,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    page = "# Command line\n\n*Reference.* `bilm SUBCOMMAND --help` prints the same.\n"
    for name, subparser in subcommands.choices.items():
        page += f"\n## bilm {name}\n\n```text\n{subparser.format_help()}```\n"
    return page
