"""Fingerprints of models and digests of texts: whether two things belong together.

Token caches, files of vectors, records of jobs and occurrences hold the fingerprint of their model;
training folders, records and files of vectors hold the digest of their text (`new_digest`,
`text_digest`). Files of other programs have neither, and earlier versions wrote fingerprints of 8
digits instead of 32: they can't be compared, so they pass.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from bilm.core.errors import InputError
from bilm.files.reading import new_digest

FACTS = "bilm"
"""The name of the JSON object in files of vectors whose "model" is a fingerprint."""


def fingerprint(names: Iterable[str], value: Callable[[str], Any]) -> str:
    """The fingerprint of a network: its weights by their names in `bilm.files.weights`, and
    initial states, which may be zeros; `value` returns the array of a name."""
    digest = new_digest()
    for name in sorted(names):
        array = np.ascontiguousarray(value(name), "<f4")
        if array.any() or not name.startswith("states/"):
            digest.update(json.dumps([name, array.shape]).encode())
            digest.update(array.data)
    return digest.hexdigest()


def facts_digest(facts: Any) -> str:
    """A digest of facts as JSON, such as options and words, which the fingerprint ignores."""
    digest = new_digest()
    digest.update(json.dumps(facts, sort_keys=True).encode())
    return digest.hexdigest()


def require_same_model(one: str, model: str | None, other: str, other_model: str | None) -> None:
    """Require the same fingerprint of two things, `one` and `other` in the message; fingerprints
    that are missing or of an old format pass.

    Raises:
        InputError: the fingerprints differ.
    """
    if model and other_model and len(model) == len(other_model) and model != other_model:
        raise InputError(
            f"{one} and {other} must belong to the same model, got the fingerprints {model} and "
            f"{other_model}."
        )


def without_old_digests(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """The record `theirs` with its digests of an old format replaced by those of `ours`."""
    return {
        name: ours[name] if name in ours and re.fullmatch("[0-9a-f]{8}", str(value)) else value
        for name, value in theirs.items()
    }
