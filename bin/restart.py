#!/usr/bin/env python3
"""Continue training from the last checkpoint: `bilm restart` under its old name."""

from __future__ import annotations

import sys

from bilm.cli import main

if __name__ == "__main__":
    sys.exit(main(subcommand="restart"))
