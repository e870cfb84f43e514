"""What files, callers and shells may give, as strategies of Hypothesis; and how it is refused."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from bilm.cli.terminal import printable
from bilm.core.errors import InputError
from tests.fuzz.changes import STRANGE

LONGEST_MESSAGE = 20_100

# Any Unicode, lone surrogates and control characters among it; seldom very long.
characters = st.characters()
texts = st.one_of(st.text(characters, max_size=12), st.sampled_from(STRANGE))
tokens = texts.filter(lambda text: text.split() == [text])
sentences = st.lists(tokens, max_size=6)

whole_numbers = st.one_of(
    st.integers(-2, 70),
    st.sampled_from((2**16, 2**20, 2**31, 2**63, 2**64, 10**12, 10**30, -(2**63), 10**400)),
)
numbers = st.one_of(
    whole_numbers,
    st.floats(),
    st.sampled_from((0.5, 1.5, 3.4e38, 1e39, 1e-320, float("nan"), float("inf"))),
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
_shapes = st.sampled_from(((), (0,), (2,), (2, 3), (1, 2, 3)))
_dtypes = st.sampled_from(("f4", "f8", "i4", "?", "U3", "O"))
# Of each kind that a caller can take for another one; no file is called so.
values: st.SearchStrategy[Any] = st.one_of(
    json_values,
    st.just(10**5000),  # which Python does not write as text
    st.binary(max_size=4),
    st.tuples(numbers, numbers),
    st.sets(texts, max_size=2),
    st.sampled_from((Path("nowhere"), range(3), 1j, object, print, np.float32(2.5), np.int64(3))),
    st.builds(object),
    st.builds(np.zeros, _shapes, _dtypes),
    st.builds(iter, st.lists(texts, max_size=2)),
)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value in which one value, at any depth, is another one, has gone, or is new."""
    whole = [json.loads(json.dumps(value))]
    part, key = whole, 0
    while isinstance(part[key], list | dict) and part[key] and draw(st.integers(0, 4)):
        part = part[key]
        key = draw(st.sampled_from(list(part) if isinstance(part, dict) else range(len(part))))
    how = draw(st.integers(0, 5))
    if how == 0 and isinstance(part, dict):
        del part[key]
    elif how == 1 and isinstance(part, dict):
        part[draw(texts)] = draw(json_values)
    else:
        part[key] = draw(json_values)
    return whole[0]


@contextlib.contextmanager
def works_or_refuses(*also: type[Exception]) -> Iterator[None]:
    """The block either works, or raises an error for users, with a message to read; or `also`."""
    try:
        yield
    except (InputError, FileNotFoundError) as error:
        message = str(error)
        assert 0 < len(message) <= LONGEST_MESSAGE
        assert all(c.isprintable() or c in "\n\t" or not is_control(c) for c in printable(message))
    except also:
        pass
    except OSError as error:
        assert error.errno == errno.ENAMETOOLONG  # the system's own


def is_control(character: str) -> bool:
    """Whether a terminal would take a character for a command, or turn the direction of text."""
    number = ord(character)
    return number < 32 or 127 <= number < 160 or character in "\u061c\u200e\u200f\u2028\u2029" or (
        0x202A <= number <= 0x202E or 0x2066 <= number <= 0x2069 or 0xD800 <= number <= 0xDFFF
    )  # fmt: skip
