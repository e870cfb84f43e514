"""Checks of arguments and records; their messages name the rule, the value and the location."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bilm import InputError
from bilm.core.errors import (
    OBJECT,
    TEXT,
    WORDS,
    differences,
    integer,
    iterable,
    one_of,
    optional,
    real,
    require,
    require_at_least,
    shown,
)


@pytest.mark.parametrize(
    ("rule", "good", "bad", "text"),
    [
        (integer(), [1, np.int64(3)], [0, True, 1.0, "1", None, 2**63], "an integer >= 1"),
        (integer(0, 1000), [0, 1000], [-1, 1001, np.nan], "an integer from 0 to 1,000"),
        (real(), [0, -2.5, np.float32(3)], [math.inf, math.nan, True, "1"], "a finite number"),
        (real(0, 1), [0, 1, 0.5], [1.5, -0.1, 10**400], "a finite number from 0 to 1"),
        (one_of(("a", "b")), ["a"], ["c", None, ["a"]], "'a' or 'b'"),
        (one_of((1, 2, 3)), [3], [True, 4, "1"], "one of 1, 2, 3"),
        (optional(TEXT), ["", None], [b"a", 5], "text or null"),
        (OBJECT, [{}], [[], None], "a JSON object"),
    ],
)
def test_rules(rule, good, bad, text):
    for value in good:
        require(rule, name=value)
    for value in bad:
        with pytest.raises(InputError) as caught:
            require(rule, name=value)
        assert str(caught.value) == f"name must be {text}, got {shown(value)}."


def test_numbers_that_may_be_left_out():
    require_at_least(0, n=None)
    require_at_least(0, 9, n=9)
    with pytest.raises(InputError, match=r"^n must be an integer >= 0, got -1\.$"):
        require_at_least(0, n=-1)


def test_settings_that_differ():
    theirs, ours = {"seed": 0, "name": "a", "old": 1}, {"seed": 1, "name": "a", "new": [2]}
    assert differences(theirs, ours) == [
        "new is None there, [2] here", "old is 1 there, None here", "seed is 0 there, 1 here",
    ]  # fmt: skip
    assert differences({"n": 1}, {"n": 2}, "in a", "in b") == ["n is 1 in a, 2 in b"]
    assert differences(ours, ours) == []
    theirs, ours = {"lstm": {"dim": 8, "n": 2}}, {"lstm": {"dim": 16, "n": 2}}
    assert differences(theirs, ours) == ["lstm.dim is 8 there, 16 here"]


@pytest.mark.parametrize("value", ["text", b"bytes", {"a"}, {"a": 1}, [1], 5, None])
def test_what_is_no_list_of_words(value):
    with pytest.raises(InputError, match=r"^words must be a list of words, got "):
        require(WORDS, words=value)


@pytest.mark.parametrize("value", ["text", b"bytes", 5, None])
def test_what_cannot_be_gone_through(value):
    with pytest.raises(InputError, match=r"^ids must be an iterable of numbers, got "):
        require(iterable("numbers"), ids=value)
