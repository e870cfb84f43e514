"""Measure one row in this process and write down what came out.

`python -m benchmarks.worker ROW RESULT --work FOLDER --corpus FILE --effort EFFORT`
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.effort import Effort
from benchmarks.product import measure_product
from benchmarks.results import Measured, NotAvailable, speed_record
from benchmarks.rows import ROWS, Row
from benchmarks.workspace import Workspace


def measure(row: Row, workspace: Workspace, effort: Effort) -> dict[str, Any]:
    """The row's record, fit for JSON; `status` is "measured", "not available" or "failed"."""
    start = time.perf_counter()
    record: dict[str, Any] = {"row": row.name, "about": row.about}
    try:
        before = {precision: measure_product(precision) for precision in row.precisions}
        measured = row.measure(workspace, effort)
        products = {
            precision: [before[precision], measure_product(precision)]
            for precision in row.precisions
        }
        record |= {"status": "measured", "products": products} | _fields(measured, products)
    except NotAvailable as error:
        record |= {"status": "not available", "reason": str(error)}
    except Exception as error:  # one row that fails is no reason to lose the others
        traceback.print_exc()
        record |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    return record | {"seconds": time.perf_counter() - start}


def _fields(measured: Measured, products: dict[str, list[float]]) -> dict[str, Any]:
    speed = measured.speed
    return {
        "speed": None if speed is None else speed_record(speed, products),
        "figures": [dataclasses.asdict(figure) for figure in measured.figures],
        "details": measured.details,
    }


def main() -> int:
    """Read the arguments, measure, write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("result", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--effort", type=Effort, required=True)
    args = parser.parse_args()
    record = measure(ROWS[args.row], Workspace(args.work, args.corpus), args.effort)
    args.result.write_text(json.dumps(record), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
