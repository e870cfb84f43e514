#!/usr/bin/env python3
"""Measure a model's perplexity on held-out text: `bilm test` under its old name."""

from __future__ import annotations

import sys

from bilm.cli import main

if __name__ == "__main__":
    sys.exit(main(subcommand="test"))
