"""The rules that values keep, as texts and as checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bilm.errors import InputError

COUNT = "a whole number from 1"
POSITIVE = "a number above 0"
PAIRS = "a list of [width, number]"


def is_number(value: object) -> bool:
    """Whether a value is a number, true and false not being numbers, nor infinity."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_positive(value: Any) -> bool:
    """Whether a value is a number above 0."""
    return is_number(value) and value > 0


def is_count(value: Any, low: int = 1) -> bool:
    """Whether a value is a whole number from `low`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def require(good: bool, key: str, rule: str, received: object) -> None:
    """Raise an InputError that names the key, its rule and what was received, unless `good`."""
    if not good:
        raise InputError(f"{key}: {rule} is expected, not {received!r}.")


def require_key(values: Mapping[str, Any], key: str, prefix: str, rule: str) -> None:
    """Raise an InputError unless `key` is there; `prefix` is the part of the file that it is in."""
    if key not in values:
        raise InputError(f"{prefix}{key}: {rule} is expected; it is missing.")
