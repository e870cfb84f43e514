"""`python -m bilm` is the `bilm` command."""

import sys

from bilm.cli import main

if __name__ == "__main__":
    sys.exit(main())
