"""What a row gives: a speed, further figures, and what is worth keeping beside them."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass, field
from typing import Any

# The machine on which the original program's speeds were recorded: GFLOP/s of its product.
ORIGINAL_PRODUCT = 200.0


class NotAvailable(Exception):
    """A row cannot be measured here; the message says what is missing."""


@dataclass(frozen=True)
class Speed:
    """Tokens a second of work that consists of matrix products.

    Attributes:
        tokens_per_second: as measured.
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
    figures: tuple[Figure, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


def speed_record(speed: Speed, products: dict[str, list[float]]) -> dict[str, Any]:
    """A speed in relation to the machine.

    Args:
        speed: what was measured.
        products: GFLOP/s of the products before and after the row, by precision.

    Returns:
        the fields of `speed`, and
        per_gflops: tokens a second for each GFLOP/s of the float32 product;
        share_of_ceiling: operations that must be done, over what the product of the row's own
            precision would have done in the same time;
        times_original: multiple of the original's speed, both for each GFLOP/s.
    """
    per_gflops = speed.tokens_per_second / statistics.mean(products["float32"])
    done = speed.tokens_per_second * speed.operations_per_token / 1e9
    return dataclasses.asdict(speed) | {
        "per_gflops": per_gflops,
        "share_of_ceiling": done / statistics.mean(products[speed.precision]),
        "times_original": per_gflops / (speed.original / ORIGINAL_PRODUCT),
    }
