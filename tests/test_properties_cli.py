"""Flags of every subcommand with values of any text: taken as what they say, or refused briefly."""

from __future__ import annotations

import argparse
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.cli import SUBCOMMANDS, main, module_of
from tests.anything import is_control, numbers, texts

# What a usage message may have, beside the usage itself.
LONGEST = 3000


class Flags(dict):
    """Stands in for a parser: the settings of each flag that a subcommand adds, by its name."""

    def add_argument(self, name, *names, **keywords):
        self[name] = keywords

    def add_argument_group(self, *names, **keywords):
        return self

    def add_mutually_exclusive_group(self, **keywords):
        return self

    def set_defaults(self, **keywords):
        pass


def flags_of(subcommand):
    flags = Flags()
    module_of(subcommand).add_arguments(flags)
    return flags


TYPED = [
    (subcommand, flag, keywords["type"])
    for subcommand in SUBCOMMANDS
    for flag, keywords in flags_of(subcommand).items()
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
    assert {subcommand for subcommand, _, _ in TYPED} >= {
        "train",
        "embed",
        "export",
        "shard",
        "probe",
        "demo",
    }


def numbers_in(value):
    """All numbers of a flag's value."""
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numbers_in(inner)


@pytest.mark.parametrize(
    ("subcommand", "flag", "kind"), TYPED, ids=lambda x: x if isinstance(x, str) else ""
)
@given(text=as_text)
def test_a_value_is_a_number_in_range_or_refused(subcommand, flag, kind, text):
    try:
        value = kind(text)
    except argparse.ArgumentTypeError as error:
        assert str(error).startswith("must ")
        return
    for number in numbers_in(value):
        assert -math.inf < number < math.inf and (number >= 0 or flag == "--layer_weights")


# Each example makes the whole command line anew, and there are as many sets of them as subcommands.
@settings(max_examples=settings().max_examples // 3)
@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
@given(data=st.data())
def test_what_usage_errors_say(subcommand, data, capsys):
    flags = sorted({flag for of, flag, _ in TYPED if of == subcommand} | {"--no_such_flag"})
    flag, text = data.draw(st.sampled_from(flags)), data.draw(as_text)
    # Without required arguments nothing begins, whatever the value is; the demo requires nothing.
    needs = ["--tokenized"] if subcommand == "demo" else []
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main([subcommand, *needs, f"{flag}={text}"]))
    said = capsys.readouterr()
    assert ended.value.code in (1, 2) and said.out == ""
    message = said.err.rpartition("error: ")[2]
    assert 0 < len(message) < LONGEST
    assert not any(is_control(c) for c in message if c not in "\n\t")
