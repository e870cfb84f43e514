"""Flags of every verb with values of any text: taken as what they say, or refused briefly."""

from __future__ import annotations

import argparse
import importlib
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.cli import VERBS, main
from tests.anything import is_control, numbers, texts

# What a usage message may have, beside the usage itself.
LONGEST = 3000


class Flags(dict):
    """Stands in for a parser: the settings of each flag that a verb adds, by its name."""

    def add_argument(self, name, *names, **keywords):
        self[name] = keywords

    def add_argument_group(self, *names, **keywords):
        return self

    def add_mutually_exclusive_group(self, **keywords):
        return self

    def set_defaults(self, **keywords):
        pass


def flags_of(verb):
    flags = Flags()
    importlib.import_module(f"bilm.cli.{verb}").add_arguments(flags)
    return flags


TYPED = [
    (verb, flag, keywords["type"])
    for verb in VERBS
    for flag, keywords in flags_of(verb).items()
    if keywords.get("type") is not None and flag.startswith("--")
]
as_text = st.one_of(
    texts,
    numbers.map(str),
    st.lists(numbers.map(str)).map(",".join),
    st.sampled_from(
        ("9" * 5000, "-" * 9, "1e400", "0x1f", " 5 ", "1/2", "2/1", "0/0", "5%", "x" * 10**6)
    ),
)


def test_many_flags_have_types():
    assert len(TYPED) > 40
    assert {verb for verb, _, _ in TYPED} >= {"train", "embed", "export", "shard", "probe", "demo"}


def numbers_in(value):
    """All numbers of a flag's value."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numbers_in(inner)


@pytest.mark.parametrize(
    ("verb", "flag", "kind"), TYPED, ids=lambda x: x if isinstance(x, str) else ""
)
@given(text=as_text)
def test_a_value_is_a_number_in_range_or_refused(verb, flag, kind, text):
    try:
        value = kind(text)
    except argparse.ArgumentTypeError as error:
        assert "expected" in str(error)
        return
    for number in numbers_in(value):
        assert -math.inf < number < math.inf and (number >= 0 or flag == "--layer_weights")


# Each example makes the whole command line anew, and there are as many sets of them as verbs.
@settings(max_examples=settings().max_examples // 3)
@pytest.mark.parametrize("verb", VERBS)
@given(data=st.data())
def test_what_usage_errors_say(verb, data, capsys):
    flags = sorted({flag for of, flag, _ in TYPED if of == verb} | {"--no_such_flag"})
    flag, text = data.draw(st.sampled_from(flags)), data.draw(as_text)
    # Without what a verb requires nothing begins, whatever the value is; the demo requires nothing.
    needs = ["--tokenized"] if verb == "demo" else []
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main([verb, *needs, f"{flag}={text}"]))
    said = capsys.readouterr()
    assert ended.value.code in (1, 2) and said.out == ""
    message = said.err.rpartition("error: ")[2]
    assert 0 < len(message) < LONGEST
    assert not any(is_control(c) for c in message if c not in "\n\t")
