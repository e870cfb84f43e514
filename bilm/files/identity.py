"""Fingerprints of models, to check that files belong to the same model.

Token caches, files of vectors and job records hold the fingerprint of the model that created them.
Files of other programs hold no fingerprint, so only their shapes can be checked.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from bilm.core.errors import InputError

FACTS = "bilm"
"""The name of the JSON object in files of vectors whose "model" is a fingerprint."""


def fingerprint(arrays: Iterable[np.ndarray], facts: Any) -> str:
    """8 hexadecimal digits of arrays, in their order, and of facts as JSON."""
    value = zlib.crc32(json.dumps(facts, sort_keys=True).encode())
    for array in arrays:
        value = zlib.crc32(np.ascontiguousarray(array).data, value)
    return f"{value:08x}"


def require_same_model(one: str, model: str | None, other: str, other_model: str | None) -> None:
    """Require the same fingerprint of two things, `one` and `other` in the message; an unknown
    fingerprint (None) passes.

    Raises:
        InputError: the fingerprints differ.
    """
    if None not in (model, other_model) and model != other_model:
        raise InputError(
            f"{one} and {other} must belong to the same model, got the fingerprints {model} and "
            f"{other_model}."
        )
