"""The exceptions of the package: what the user can mend, and a training run that must stop."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import numbers
import os
import reprlib
from collections.abc import Callable, Collection, KeysView, Mapping, Set
from typing import Any, TypeVar, cast

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


Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """Check arguments against their annotations, as far as these are numbers, text, paths, flags.

    For what users call: a wrong type would otherwise be an error of whatever trips over it first.

    Raises:
        InputError: (when the function is called) names the argument.
    """
    rules: dict[str, tuple[str, list[Callable[[Any], bool]]]] = {}
    for name, annotation in function.__annotations__.items():
        # A whole number is a number as well.
        kinds = [
            _KINDS.get(part) for part in annotation.replace("int | float", "float").split(" | ")
        ]
        if name != "return" and None not in kinds:
            known = [kind for kind in kinds if kind is not None]
            rules[name] = " or ".join(rule for rule, _ in known), [holds for _, holds in known]
    names = function.__code__.co_varnames[: function.__code__.co_argcount]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, value in itertools.chain(zip(names, args, strict=False), kwargs.items()):
            if name in rules and not any(holds(value) for holds in rules[name][1]):
                raise InputError(f"{name}: {rules[name][0]} is expected, not {shown(value)}.")
        return function(*args, **kwargs)

    call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # for Keras
    return cast(Function, call)


def require_iterable(what: str, **values: Any) -> None:
    """Refuse one text for several, and what cannot be gone through; errors as above.

    Args:
        what: what it should hold.
    """
    for name, value in values.items():
        try:
            is_right = not isinstance(value, str | bytes) and iter(value) is not None
        except TypeError:  # an array without axes has the method, and yet cannot
            is_right = False
        if not is_right:
            raise InputError(f"{name}: {what} are expected, not {shown(value)}.")


def require_words(**values: Any) -> None:
    """Refuse what is no list of text.

    Raises:
        InputError: names it.
    """
    for name, value in values.items():
        if not _are_words(value):
            raise InputError(f"{name}: a list of words is expected, not {shown(value)}.")


def _are_words(value: Any) -> bool:
    is_list = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
    is_list = is_list and (isinstance(value, KeysView) or not isinstance(value, Set))
    try:
        return is_list and all(map(_is_text, value))
    except TypeError:  # an array without axes
        return False


def _is_number(value: Any) -> bool:
    """Whether a value is a number that a float can be, infinities and nan not being numbers."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _is_int64(value: Any) -> bool:
    return _is_whole(value) and -(2**63) <= value < 2**63


def _is_flag(value: Any) -> bool:
    # Whole numbers as of old; NumPy's own are no numbers of Python's.
    return isinstance(value, int) or type(value).__name__ in ("bool", "bool_")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


# Of annotations what is checked, and how it is said.
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number", _is_int64),
    "bool": ("True or False", _is_flag),
    "float": ("a number", _is_number),
    "str": ("text", _is_text),
    "PathLike": ("a path", lambda value: isinstance(value, str | os.PathLike)),
    "Sequence[str]": ("a list of words", _are_words),
    "None": ("None", lambda value: value is None),
}


class TrainingError(RuntimeError):
    """A training run that cannot continue; the checkpoints that it has written stay."""


class NotFiniteError(TrainingError):
    """A loss or a variable is not finite."""


class WorkersError(TrainingError):
    """Another worker of the run has stopped."""


class WorkerLostError(WorkersError):
    """Another worker of the run cannot be reached any more."""
