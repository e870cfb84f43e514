"""The exceptions of the package: what the user can mend, and a training run that must stop."""

from __future__ import annotations

import math
import numbers
import reprlib
from typing import Any

# Characters of a message: a name or a value from a file may have millions.
_LONGEST = 20_000
# Random numbers are drawn by TensorFlow as well, whose seeds have 64 bits and a sign.
MOST_SEED = 2**63 - 1
_VALUES = reprlib.Repr()
_VALUES.maxstring = _VALUES.maxother = _VALUES.maxlong = 200


class InputError(ValueError):
    """Something that the user can mend: a file's content, an option, an argument.

    The message names the file, the line or dataset, the rule, and what was received; of a very
    long one 20,000 characters are kept. The command line prints it without a traceback. A path
    that does not exist is a ``FileNotFoundError``.
    """

    def __init__(self, message: str) -> None:
        n_more = len(message) - _LONGEST
        if n_more > 0:
            message = f"{message[:_LONGEST]} ... ({n_more:,} characters more)"
        super().__init__(message)


def shown(value: object) -> str:
    """A value in a message: what is long, deep or large is cut."""
    if isinstance(value, int) and abs(value) >= 10**100:
        return "a number of more than 100 digits"  # Python refuses to write thousands of them
    try:
        return _VALUES.repr(value)
    except Exception:  # whatever an object of somebody's own raises
        return f"an object of type {type(value).__name__}"


def require_count(most: float = math.inf, /, **values: Any) -> None:
    """Refuse what is no whole number from 1, or above `most`.

    Raises:
        InputError: names it.
    """
    for name, value in values.items():
        if not _is_whole(value) or not 1 <= value <= most:
            up_to = "" if most == math.inf else f" to {most}"
            raise InputError(
                f"{name}: a whole number from 1{up_to} is expected, not {shown(value)}."
            )


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def require_at_least(least: int, most: float = math.inf, /, **values: int | None) -> None:
    """Refuse what is no whole number, below `least` or above `most`; None is none.

    Raises:
        InputError: names it.
    """
    for name, value in values.items():
        if value is not None and (not _is_whole(value) or not least <= value <= most):
            up_to = "" if most == math.inf else f", up to {most}"
            raise InputError(f"{name} must be {least} or more{up_to}, not {shown(value)}.")


class TrainingError(RuntimeError):
    """A training run that cannot continue; the checkpoints that it has written stay."""


class NotFiniteError(TrainingError):
    """A loss or a variable is not finite."""


class WorkersError(TrainingError):
    """Another worker of the run has stopped."""


class WorkerLostError(WorkersError):
    """Another worker of the run cannot be reached any more."""
