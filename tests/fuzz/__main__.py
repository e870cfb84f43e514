"""Fuzz the readers of files for some minutes, or run a case again.

    python -m tests.fuzz --seed 1 --minutes 30 --store findings
    python -m tests.fuzz --seed 1 --case "token cache" 17

Ends with 1 if there are findings, whose files are in the folder of --store.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.fuzz.formats import FORMATS
from tests.fuzz.run import fuzz, in_turn, summary
from tests.fuzz.worker import FINDING, Reader


def main() -> int:
    """Read the flags and run."""
    parser = argparse.ArgumentParser(
        "python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="of all cases (default: 0)")
    parser.add_argument("--minutes", type=float, default=10, help="how long (default: 10)")
    names = ", ".join(FORMATS)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, metavar="NAME", help=names)
    parser.add_argument("--store", type=Path, help="folder for the files of findings")
    parser.add_argument(
        "--case", nargs=2, metavar=("FORMAT", "NUMBER"), help="run one case, in this process"
    )
    args = parser.parse_args()
    if args.case is not None:
        name, number = args.case
        with tempfile.TemporaryDirectory() as folder:
            outcome, signature, detail = Reader(Path(folder)).run(name, args.seed, int(number))
        print(f"{outcome} {signature}\n{detail}")
        return outcome == FINDING
    cases = in_turn(args.seed, args.formats or tuple(FORMATS))
    result = fuzz(cases, store=args.store, until=time.monotonic() + 60 * args.minutes)
    print(summary(result))
    return bool(result.findings)


if __name__ == "__main__":
    raise SystemExit(main())
