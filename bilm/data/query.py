"""A word in a sentence, as text: "they [play] cards"."""

from __future__ import annotations

import re

from bilm.core.errors import TEXT, InputError, require, shown

_MARKED = re.compile(r"\[(\S+)\]")


def parse_query(text: str) -> tuple[tuple[str, ...], int]:
    """The tokens of a sentence such as "they [play] cards", and the position of the marked
    token."""
    require(TEXT, text=text)
    tokens = text.split()
    marked = [k for k, token in enumerate(tokens) if _MARKED.fullmatch(token)]
    if len(marked) != 1:
        raise InputError(
            f"{shown(text)}: exactly one token must be in brackets, with spaces around it, as in "
            f'"they [play] cards"; got {len(marked)}.'
        )
    position = marked[0]
    tokens[position] = tokens[position][1:-1]
    return tuple(tokens), position
