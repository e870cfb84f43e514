"""`python -m bilm` is the `bilm` command."""

from __future__ import annotations

import sys

from bilm.cli import main

if __name__ == "__main__":
    sys.exit(main())
