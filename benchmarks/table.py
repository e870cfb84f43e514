"""Results as text: a table of speeds, and a list of the other figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

_SPEED_HEAD = (
    "row", "tokens/s", "GFLOP/s", "per GFLOP/s", "wanted", "of ceiling", "original",
)  # fmt: skip
_FIGURE_HEAD = ("row", "figure", "measured", "wanted", "GFLOP/s")
_NOTES = """\
GFLOP/s      a 2048-cubed float32 product of TensorFlow, around the row; ~ where it changed by
             more than a tenth meanwhile, so that the row is to be measured again
per GFLOP/s  tokens a second, divided by it
of ceiling   operations that must be done over time, against the product (in bfloat16 rows
             against the bfloat16 product)
original     multiple of the original program in TensorFlow 1.15, both per GFLOP/s"""


def format_results(records: Sequence[dict[str, Any]]) -> str:
    """The whole text; `records` are what `benchmarks.worker` gives."""
    measured = [record for record in records if record["status"] == "measured"]
    parts = []
    speeds = [_speed_line(record) for record in measured if record["speed"] is not None]
    if speeds:
        parts += [_aligned([_SPEED_HEAD, *speeds]), _NOTES]
    figures = [_figure_line(record, figure) for record in measured for figure in record["figures"]]
    if figures:
        parts.append(_aligned([_FIGURE_HEAD, *figures], left=2))
    missing = [r for r in records if r["status"] != "measured"]
    parts += [f"{r['row']}: {r['status']}: {r['reason']}" for r in missing]
    return "\n\n".join(parts)


def summary(record: dict[str, Any]) -> str:
    """One line on a row, for whoever waits."""
    if record["status"] != "measured":
        return f"{record['status']}: {record['reason']}"
    speed = record["speed"]
    said = [f"{speed['tokens_per_second']:,.0f} tokens/s"] if speed is not None else []
    said += [f"{f['name']} {_number(f['value'])} {f['unit']}".strip() for f in record["figures"]]
    return f"{'; '.join(said)} (in {record['seconds']:.0f} s)"


def _speed_line(record: dict[str, Any]) -> tuple[str, ...]:
    speed = record["speed"]
    return (
        record["row"],
        f"{speed['tokens_per_second']:,.0f}",
        _product(record),
        _number(speed["per_gflops"]),
        "" if speed["wanted"] is None else _number(speed["wanted"]),
        f"{100 * speed['share_of_ceiling']:.0f} %",
        f"{speed['times_original']:.1f} x",
    )


def _figure_line(record: dict[str, Any], figure: dict[str, Any]) -> tuple[str, ...]:
    wanted = ""
    if figure["wanted"] is not None:
        wanted = f"{'<=' if figure['at_most'] else '>='} {_number(figure['wanted'])}"
    value = f"{_number(figure['value'])} {figure['unit']}".strip()
    return record["row"], figure["name"], value, wanted, _product(record)


def _product(record: dict[str, Any]) -> str:
    before, after = record["products"]["float32"]
    unsteady = abs(after - before) > 0.1 * max(before, after)
    return f"{'~' if unsteady else ''}{statistics.mean((before, after)):.0f}"


def _number(value: float) -> str:
    """Three figures that count, and no fraction of large numbers."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _aligned(lines: Iterable[Sequence[str]], left: int = 1) -> str:
    """Columns of equal width, the first `left` of them flush left, the others flush right."""
    rows = list(lines)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
