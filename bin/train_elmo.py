#!/usr/bin/env python3
"""Train a model: `bilm train` under its old name, by default the original's size and recipe."""

from __future__ import annotations

import sys

from bilm.cli import main


def with_defaults(arguments: list[str]) -> list[str]:
    """The arguments, with the original's size and recipe unless they choose a model."""
    chosen = ("--preset", "--recipe", "--options", "--init")
    if any(argument.startswith(chosen) for argument in arguments):
        return arguments
    return ["--preset", "original", "--recipe", "original", *arguments]


if __name__ == "__main__":
    sys.exit(main(with_defaults(sys.argv[1:]), subcommand="train"))
