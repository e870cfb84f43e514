"""The results of a row, its speed relative to the machine, and the table of all rows."""

from __future__ import annotations

import dataclasses
import enum
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bilm.terminal import table

# Matmul GFLOP/s of the machine on which the original program's speeds were recorded.
ORIGINAL_PRODUCT = 200.0

T = TypeVar("T")


class Effort(enum.Enum):
    """FULL is for figures to publish, QUICK for the complete table within ten minutes on two cores.

    TRIAL checks that every row works, on the tiny network; its figures are meaningless.
    """

    FULL = "full"
    QUICK = "quick"
    TRIAL = "trial"

    def pick(self, full: T, quick: T, trial: T) -> T:
        """The value for this effort."""
        return {Effort.FULL: full, Effort.QUICK: quick, Effort.TRIAL: trial}[self]

    def preset(self, name: str) -> str:
        """The preset to measure: `name`, or the smallest one in a trial run."""
        return "tiny" if self is Effort.TRIAL else name


@dataclass(frozen=True)
class Speed:
    """The speed of work that consists of matmuls.

    Attributes:
        operations_per_token: unavoidable floating-point operations, see `operations`.
        precision: matmul precision, "float32" or "bfloat16".
        wanted: required tokens per second per GFLOP/s of the float32 matmul; None: no goal.
        original: tokens per second of the original program in TensorFlow 1.15, on a machine with
            `ORIGINAL_PRODUCT` GFLOP/s; None: not recorded.
    """

    tokens_per_second: float
    operations_per_token: float
    precision: str
    wanted: float | None
    original: float | None

    def record(self, products: dict[str, list[float]]) -> dict[str, Any]:
        """The fields, and the speed relative to the machine.

        Args:
            products: matmul GFLOP/s before and after the row, by precision.

        Returns:
            the fields, and
            per_gflops: tokens per second per GFLOP/s of the float32 matmul;
            share_of_ceiling: unavoidable operations per second, relative to the matmul speed in
                the row's precision;
            times_original: speed relative to the original program's, both per GFLOP/s.
        """
        per_gflops = self.tokens_per_second / statistics.mean(products["float32"])
        done = self.tokens_per_second * self.operations_per_token / 1e9
        return dataclasses.asdict(self) | {
            "per_gflops": per_gflops,
            "share_of_ceiling": done / statistics.mean(products[self.precision]),
            "times_original": self.original and per_gflops / (self.original / ORIGINAL_PRODUCT),
        }


@dataclass(frozen=True)
class Figure:
    """Any other figure. `wanted` is an upper bound if `at_most`, otherwise a lower bound."""

    name: str
    value: float
    unit: str
    wanted: float | None = None
    at_most: bool = True


@dataclass(frozen=True)
class Measured:
    """The result of a row's function; `details` goes into the JSON file only."""

    speed: Speed | None = None
    figures: Sequence[Figure] = ()
    details: dict[str, Any] = field(default_factory=dict)


# The table

_SPEED_HEAD = (
    "row", "tokens/s", "GFLOP/s", "per GFLOP/s", "wanted", "of ceiling", "original",
)  # fmt: skip
_FIGURE_HEAD = ("row", "figure", "measured", "wanted", "GFLOP/s")
_NOTES = """\
GFLOP/s      float32 matmul of 2048 x 2048 matrices in TensorFlow, mean of before and after the
             row; ~ if the two differ by more than a tenth: then measure the row again
per GFLOP/s  tokens per second divided by GFLOP/s
of ceiling   unavoidable operations per second, relative to the matmul (in bfloat16 rows, to the
             bfloat16 matmul)
original     speed relative to the original program in TensorFlow 1.15, both per GFLOP/s"""


def format_results(records: Sequence[dict[str, Any]]) -> str:
    """The table; a record is a result of `benchmarks.rows.measure`, or {"row", "failed"}."""
    measured = [record for record in records if "failed" not in record]
    parts = []
    speeds = [_speed_line(record) for record in measured if record["speed"] is not None]
    if speeds:
        parts += ["\n".join(table([_SPEED_HEAD, *speeds])), _NOTES]
    figures = [_figure_line(record, figure) for record in measured for figure in record["figures"]]
    if figures:
        parts.append("\n".join(table([_FIGURE_HEAD, *figures], left=2)))
    parts += [f"{r['row']}: failed: {r['failed']}" for r in records if "failed" in r]
    return "\n\n".join(parts)


def summary(record: dict[str, Any]) -> str:
    """The results of a row in one line."""
    if "failed" in record:
        return f"failed: {record['failed']}"
    speed = record["speed"]
    parts = [f"{speed['tokens_per_second']:,.0f} tokens/s"] if speed is not None else []
    parts += [f"{f['name']} {_number(f['value'])} {f['unit']}".strip() for f in record["figures"]]
    return f"{'; '.join(parts)} (in {record['seconds']:.0f} s)"


def _speed_line(record: dict[str, Any]) -> tuple[str, ...]:
    speed = record["speed"]
    return (
        record["row"],
        f"{speed['tokens_per_second']:,.0f}",
        _product(record),
        _number(speed["per_gflops"]),
        "" if speed["wanted"] is None else _number(speed["wanted"]),
        f"{100 * speed['share_of_ceiling']:.0f} %",
        "" if speed["times_original"] is None else f"{speed['times_original']:.1f} x",
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
    """Format with three significant digits; numbers from 100 are rounded to integers."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
