"""The exceptions of the package: what the user can mend, and a training run that must stop."""

from __future__ import annotations

import numbers
from typing import Any


class InputError(ValueError):
    """Something that the user can mend: a file's content, an option, an argument.

    The message names the file, the line or dataset, the rule, and what was received. The command
    line prints it without a traceback. A path that does not exist is a ``FileNotFoundError``.
    """


def require_count(**values: Any) -> None:
    """Refuse what is no whole number from 1.

    Raises:
        InputError: names it.
    """
    for name, value in values.items():
        if not _is_whole(value) or value < 1:
            raise InputError(f"{name}: a whole number from 1 is expected, not {value!r}.")


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def require_at_least(least: int, **values: int | None) -> None:
    """Refuse what is no whole number, or below `least`; None is none.

    Raises:
        InputError: names it.
    """
    for name, value in values.items():
        if value is not None and (not _is_whole(value) or value < least):
            raise InputError(f"{name} must be {least} or more, not {value!r}.")


class TrainingError(RuntimeError):
    """A training run that cannot continue; the checkpoints that it has written stay."""


class NotFiniteError(TrainingError):
    """A loss or a variable is not finite."""


class WorkersError(TrainingError):
    """Another worker of the run has stopped."""


class WorkerLostError(WorkersError):
    """Another worker of the run cannot be reached any more."""
