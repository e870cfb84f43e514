"""The package's exceptions, and checks of arguments and of records read from files."""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Callable, Collection, KeysView, Mapping, Set
from typing import Any, NamedTuple

# Longest message in characters: names and values from files may have millions.
_LONGEST = 20_000
# Random numbers are drawn by TensorFlow as well, whose seeds are signed 64-bit integers.
MOST_SEED = 2**63 - 1
_VALUES = reprlib.Repr()
_VALUES.maxstring = _VALUES.maxother = _VALUES.maxlong = 200


class InputError(ValueError):
    """Something that the user can fix: the content of a file, an option, an argument.

    The message states what must hold, what was given, and where; it is cut at 20,000 characters.
    The command line prints it without a traceback. A path that does not exist is a
    ``FileNotFoundError``.
    """

    def __init__(self, message: str) -> None:
        n_more = len(message) - _LONGEST
        if n_more > 0:
            message = f"{message[:_LONGEST]} ... ({n_more:,} characters more)"
        super().__init__(message)


class TrainingError(RuntimeError):
    """A training run cannot continue; its checkpoints stay."""


class NotFiniteError(TrainingError):
    """A loss or a variable is not finite."""


class WorkersError(TrainingError):
    """Another worker of the run has stopped."""


class WorkerLostError(WorkersError):
    """Another worker of the run cannot be reached any more."""


def shown(value: object) -> str:
    """A value as messages show it: long, deep and large values are cut."""
    if isinstance(value, int) and abs(value) >= 10**100:
        return "a number of more than 100 digits"  # Python refuses to write thousands of them
    try:
        return _VALUES.repr(value)
    except Exception:  # the __repr__ of any class may fail
        return f"an object of type {type(value).__name__}"


# Rules


class Rule(NamedTuple):
    """A requirement for a value.

    Attributes:
        text: completes "must be ...".
        holds: returns whether a value meets it.
    """

    text: str
    holds: Callable[[Any], bool]


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _bounds(least: float, most: float) -> str:
    if most == math.inf:
        return "" if least == -math.inf else f" >= {least:,}"
    return f" from {least:,} to {most:,}"


def integer(least: int = 1, most: float = 2**63 - 1) -> Rule:
    """A Python or NumPy integer, but not a bool."""
    text = f"an integer{_bounds(least, math.inf if most == 2**63 - 1 else most)}"
    return Rule(text, lambda value: _is_integer(value) and least <= value <= most)


def real(least: float = -math.inf, most: float = math.inf) -> Rule:
    """A finite number, but not a bool."""
    text = f"a finite number{_bounds(least, most)}"
    return Rule(text, lambda value: _is_finite(value) and least <= value <= most)


def one_of(choices: Collection[Any]) -> Rule:
    """One of some values, of the same type."""
    names = [repr(choice) for choice in choices]
    text = f"one of {', '.join(names)}" if len(names) > 2 else " or ".join(names)
    types = {type(choice) for choice in choices}
    return Rule(text, lambda value: type(value) in types and value in choices)


def optional(rule: Rule) -> Rule:
    """A value for which a rule holds, or None (null in JSON)."""
    return Rule(f"{rule.text} or null", lambda value: value is None or rule.holds(value))


TEXT = Rule("text", lambda value: isinstance(value, str))
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
OBJECT = Rule("a JSON object", lambda value: isinstance(value, Mapping))


def require(rule: Rule, /, **values: Any) -> None:
    """Require that values meet a rule.

    Raises:
        InputError: Names the first value that does not.
    """
    for name, value in values.items():
        if not rule.holds(value):
            raise InputError(f"{name} must be {rule.text}, got {shown(value)}.")


def require_record(values: Any, rules: Mapping[str, Rule], source: str) -> None:
    """Require that a record read from a file meets a rule for each key.

    Args:
        values: the record, which must be an object.
        rules: the rule of each key; all keys are required. "run.seed" is the key "seed" of the
            object "run", whose own rule must come before.
        source: name of the record, for messages.

    Raises:
        InputError: Names the first key that is missing or wrong.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{source} must be {OBJECT.text}, got {shown(values)}.")
    for key, rule in rules.items():
        value: Any = values
        for part in key.split("."):
            if part not in value:
                raise InputError(f"{source}: {key} is missing; it must be {rule.text}.")
            value = value[part]
        if not rule.holds(value):
            raise InputError(f"{source}: {key} must be {rule.text}, got {shown(value)}.")


def differences(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], there: str = "there", here: str = "here"
) -> list[str]:
    """The settings that differ, as "seed is 0 there, 1 here"; a missing setting is None."""
    return [
        f"{name} is {shown(theirs.get(name))} {there}, {shown(ours.get(name))} {here}"
        for name in sorted({*theirs, *ours})
        if theirs.get(name) != ours.get(name)
    ]


# Arguments


def require_count(most: float = math.inf, /, **values: Any) -> None:
    """Require integers >= 1, and <= `most`; errors as for `require`."""
    require(integer(1, min(most, 2**63 - 1)), **values)


def require_at_least(least: int, most: float = math.inf, /, **values: int | None) -> None:
    """Require integers in [least, most], or None; errors as for `require`."""
    given = {name: value for name, value in values.items() if value is not None}
    require(integer(least, min(most, 2**63 - 1)), **given)


def require_iterable(what: str, **values: Any) -> None:
    """Require iterables of `what`, not a single string; errors as for `require`."""
    require(Rule(f"an iterable of {what}", _is_iterable), **values)


def _is_iterable(value: Any) -> bool:
    try:
        return not isinstance(value, str | bytes) and iter(value) is not None
    except TypeError:  # a 0-d array has __iter__, but cannot be iterated
        return False


def require_words(**values: Any) -> None:
    """Require lists of text; errors as for `require`."""
    require(WORDS, **values)


def _are_words(value: Any) -> bool:
    is_list = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
    is_list = is_list and (isinstance(value, KeysView) or not isinstance(value, Set))
    return is_list and _is_iterable(value) and all(map(TEXT.holds, value))


WORDS = Rule("a list of words", _are_words)
