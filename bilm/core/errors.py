"""The package's exceptions, checks of arguments, and imports of optional packages."""

import importlib
import math
import numbers
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, KeysView, Mapping, Set
from typing import Any, NamedTuple

# TensorFlow's seeds are signed 64-bit integers.
MOST_SEED = 2**63 - 1
# An address, also with mistakes: scheme, slashes, and the rest.
ADDRESS = re.compile(r"\b([A-Za-z][\w+.-]+:/+)([^\s'\"]*)")
_VALUES = reprlib.Repr()
_VALUES.maxstring = _VALUES.maxother = _VALUES.maxlong = 200


class InputError(ValueError):
    """An error that the user can fix: in the content of a file, an option or an argument.

    The message states the requirement, the actual value, and where it is. The command line prints
    it without a traceback. A missing path is a ``FileNotFoundError``.
    """


class TrainingError(RuntimeError):
    """A training run cannot continue; its checkpoints are kept."""


class NotFiniteError(TrainingError):
    """A loss or a variable is not finite."""


class WorkerLostError(TrainingError):
    """Another worker of the run cannot be reached."""


def not_finite(results: str) -> InputError:
    """The error for results of a model that are NaN or infinite, such as "the model's vectors"."""
    return InputError(
        f"{results} are not finite: its weights are damaged, or its training diverged."
    )


def shown(value: object) -> str:
    """A value for messages; long, deep and large values are shortened."""
    return without_secrets(_VALUES.repr(value))


def without_secrets(text: str) -> str:
    """A text whose addresses have no user, password, query and fragment; their schemes are in lower
    case."""
    return ADDRESS.sub(_plain_address, text)


def _plain_address(match: re.Match[str]) -> str:
    scheme, rest = match[1].lower(), match[2]
    if scheme.startswith("hf:") and ":" not in rest:  # a revision follows @
        return f"{scheme}{rest.partition('#')[0]}"
    # A password may have any character, so that a part of it looks like a path.
    return scheme + re.sub(r"[?#].*", "", rest.rpartition("@")[2])


def plain(value: Any) -> Any:
    """A NumPy number as the Python number that JSON can hold; other values as they are."""
    is_numpy = isinstance(value, numbers.Number) and hasattr(value, "item")
    return value.item() if is_numpy else value


# Rules


class Rule(NamedTuple):
    """A requirement for a value."""

    text: str  # completes "must be ..."
    holds: Callable[[Any], bool]  # returns whether a value meets it


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_number and abs(value) < math.inf


def _bounds(least: float, most: float) -> str:
    if most in (MOST_SEED, math.inf):
        return "" if least == -math.inf else f" >= {least:,}"
    return f" from {least:,} to {most:,}"


def integer(least: int = 1, most: int = MOST_SEED) -> Rule:
    """A Python or NumPy integer, but not a bool."""
    text = f"an integer{_bounds(least, most)}"
    return Rule(text, lambda value: _is_integer(value) and least <= value <= most)


def real(least: float = -math.inf, most: float = math.inf) -> Rule:
    """A finite number, but not a bool."""
    text = f"a finite number{_bounds(least, most)}"
    return Rule(text, lambda value: _is_finite(value) and least <= value <= most)


def one_of(choices: Collection[Any]) -> Rule:
    """One of `choices`, of the same type."""
    names = [repr(choice) for choice in choices]
    text = f"one of {', '.join(names)}" if len(names) > 2 else " or ".join(names)
    types = {type(choice) for choice in choices}
    return Rule(text, lambda value: type(value) in types and value in choices)


def optional(rule: Rule) -> Rule:
    """A value for which a rule holds, or None (null in JSON)."""
    return Rule(f"{rule.text} or null", lambda value: value is None or rule.holds(value))


def iterable(values: str) -> Rule:
    """An iterable, but not a single string; `values` names its values."""
    return Rule(f"an iterable of {values}", _is_iterable)


def _is_iterable(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def is_ordered(value: Any) -> bool:
    """Whether a value is an iterable with an order, but not a single string."""
    has_order = isinstance(value, KeysView) or not isinstance(value, Set | Mapping)
    return has_order and _is_iterable(value)


def _are_words(value: Any) -> bool:
    return isinstance(value, Collection) and is_ordered(value) and all(map(TEXT.holds, value))


TEXT = Rule("text", lambda value: isinstance(value, str))
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
OBJECT = Rule("a JSON object", lambda value: isinstance(value, Mapping))
WORDS = Rule("a list of words", _are_words)
SENTENCES = Rule("a list of sentences", is_ordered)


def require(rule: Rule, /, **values: Any) -> None:
    """Require that values meet a rule; an `InputError` names the first value that does not."""
    for name, value in values.items():
        if not rule.holds(value):
            raise InputError(f"{name} must be {rule.text}, got {shown(value)}.")


def require_at_least(least: int, most: int = MOST_SEED, /, **values: int | None) -> None:
    """Require integers in [least, most], or None; errors as for `require`."""
    integers = {name: value for name, value in values.items() if value is not None}
    require(integer(least, most), **integers)


def differences(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], there: str = "there", here: str = "here"
) -> list[str]:
    """The settings that differ, as "lstm.dim is 8 there, 16 here"; a missing setting is None."""
    theirs, ours = _flat(theirs), _flat(ours)
    return [
        f"{name} is {shown(theirs.get(name))} {there}, {shown(ours.get(name))} {here}"
        for name in sorted({*theirs, *ours})
        if theirs.get(name) != ours.get(name)
    ]


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with names such as "lstm.dim" instead of the object "lstm"."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": inner for key, inner in _flat(value).items()}
        else:
            flat[name] = value
    return flat


# What to install for a module; for others the package of that name.
_PACKAGES = dict.fromkeys(
    ("gensim", "scipy", "sklearn", "threadpoolctl"), "scikit-learn gensim matplotlib"
)


class MissingPackageError(InputError):
    """A package that not everybody needs is not installed."""


def import_extra(module: str, purpose: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: such as "sklearn.cluster".
        purpose: the feature that needs it, such as "bilm project".

    Raises:
        MissingPackageError: the package is not installed; the message has the command to do so.
        InputError: it cannot be imported; the message has the reason.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise InputError(
                f"{purpose} needs the Python module {package}, which is installed but cannot be "
                f"imported: {error}."
            ) from error
        install = f"pip install {_PACKAGES.get(package, package)}"
        raise MissingPackageError(
            f"{purpose} needs the Python module {package}: `{install}` installs it."
        ) from error
