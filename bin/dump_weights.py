#!/usr/bin/env python3
"""Write a trained model's weights for use: `bilm dump` under its old name."""

from __future__ import annotations

import sys

from bilm.cli import main

if __name__ == "__main__":
    sys.exit(main(subcommand="dump"))
