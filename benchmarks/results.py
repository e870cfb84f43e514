"""What a row returns, how much work it does for it, and the table of all rows."""

from __future__ import annotations

import dataclasses
import enum
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bilm.cli.terminal import table

# The machine on which the original program's speeds were recorded: GFLOP/s of its product.
ORIGINAL_PRODUCT = 200.0

T = TypeVar("T")


class Effort(enum.Enum):
    """FULL is for figures to publish, QUICK for the complete table within ten minutes on two cores.

    TRIAL shows that every row works, on the tiny network; its figures mean nothing.
    """

    FULL = "full"
    QUICK = "quick"
    TRIAL = "trial"

    def pick(self, full: T, quick: T, trial: T) -> T:
        """The value of this effort."""
        return {Effort.FULL: full, Effort.QUICK: quick, Effort.TRIAL: trial}[self]

    def preset(self, name: str) -> str:
        """The preset to measure in a row about the preset `name`."""
        return "tiny" if self is Effort.TRIAL else name


@dataclass(frozen=True)
class Speed:
    """Tokens a second of work that consists of matrix products.

    Attributes:
        operations_per_token: floating-point operations that must be done, see `operations`.
        precision: "float32" or "bfloat16", of the products.
        wanted: tokens a second for each GFLOP/s of the float32 product; None is no goal.
        original: tokens a second of the original program in TensorFlow 1.15, on a machine of
            `ORIGINAL_PRODUCT`.
    """

    tokens_per_second: float
    operations_per_token: float
    precision: str
    wanted: float | None
    original: float

    def record(self, products: dict[str, list[float]]) -> dict[str, Any]:
        """The fields, and the speed in relation to the machine.

        Args:
            products: GFLOP/s of the products before and after the row, by precision.

        Returns:
            the fields, and
            per_gflops: tokens a second for each GFLOP/s of the float32 product;
            share_of_ceiling: operations that must be done, over what the product of the row's own
                precision would have done in the same time;
            times_original: multiple of the original's speed, both for each GFLOP/s.
        """
        per_gflops = self.tokens_per_second / statistics.mean(products["float32"])
        done = self.tokens_per_second * self.operations_per_token / 1e9
        return dataclasses.asdict(self) | {
            "per_gflops": per_gflops,
            "share_of_ceiling": done / statistics.mean(products[self.precision]),
            "times_original": per_gflops / (self.original / ORIGINAL_PRODUCT),
        }


@dataclass(frozen=True)
class Figure:
    """Any other figure. `wanted` is a bound: the most if `at_most`, otherwise the least."""

    name: str
    value: float
    unit: str
    wanted: float | None = None
    at_most: bool = True


@dataclass(frozen=True)
class Measured:
    """What the function of a row returns; `details` goes into the JSON file only."""

    speed: Speed | None = None
    figures: Sequence[Figure] = ()
    details: dict[str, Any] = field(default_factory=dict)


# The table

_SPEED_HEAD = (
    "row", "tokens/s", "GFLOP/s", "per GFLOP/s", "wanted", "of ceiling", "original",
)  # fmt: skip
_FIGURE_HEAD = ("row", "figure", "measured", "wanted", "GFLOP/s")
_NOTES = """\
GFLOP/s      a 2048-cubed float32 product of TensorFlow, around the row; ~ where it changed by
             more than a tenth meanwhile, so that the row has to be measured again
per GFLOP/s  tokens a second, divided by it
of ceiling   operations that must be done over time, against the product (in bfloat16 rows
             against the bfloat16 product)
original     multiple of the original program in TensorFlow 1.15, both per GFLOP/s"""


def format_results(records: Sequence[dict[str, Any]]) -> str:
    """The table; `records` are what `benchmarks.rows.measure` returns, or {"row", "failed"}."""
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
    """A row in one line."""
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
    """Three significant figures, and no fraction of large numbers."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
