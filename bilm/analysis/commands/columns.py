"""Text in columns of a terminal, in which Chinese characters are two columns wide."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

_NARROWEST = 60
_GAP = "   "
# Tokens, and the position of the one in the middle.
Line = tuple[Sequence[str], int]


def terminal_width() -> int:
    """The columns of the terminal; 100 where there is none and COLUMNS does not say."""
    return max(_NARROWEST, shutil.get_terminal_size((100, 24)).columns)


def width_of(text: str) -> int:
    """The columns that a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, width: int, right: bool = False) -> str:
    """A text with blanks up to a width, after it or before it."""
    blanks = " " * max(0, width - width_of(text))
    return blanks + text if right else text + blanks


def in_context(lines: Sequence[Line], width: int) -> list[str]:
    """Key word in context: a line each, with the words in brackets one below the other.

    Args:
        lines: tokens, and the position of the word.
        width: columns of a whole line, of which each side of the word gets half.
    """
    words = [f"[{tokens[position]}]" for tokens, position in lines]
    middle = max(map(width_of, words), default=0)
    side = max(8, (width - middle - 2) // 2)
    return [
        f"{padded(_last(tokens[:position], side), side, right=True)} "
        f"{padded(word, middle)} {_first(tokens[position + 1 :], side)}".rstrip()
        for word, (tokens, position) in zip(words, lines, strict=True)
    ]


def beside(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """Two columns of lines."""
    width = max(map(width_of, left), default=0)
    pairs = zip_longest(left, right, fillvalue="")
    return [f"{padded(first, width)}{_GAP}{second}".rstrip() for first, second in pairs]


def count(n: int, what: str) -> str:
    """A number of things: "1 use", "1,000 uses"."""
    return f"{n:,} {what}{'s' * (n != 1)}"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equal length as lines: the first column on the left, the others on the right."""
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    return [
        _GAP.join(
            padded(cell, width, right=number > 0)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _first(tokens: Sequence[str], width: int) -> str:
    return " ".join(_fitting(tokens, width))


def _last(tokens: Sequence[str], width: int) -> str:
    return " ".join(reversed(list(_fitting(reversed(tokens), width))))


def _fitting(tokens: Iterable[str], width: int) -> Iterator[str]:
    """As many of the first tokens as fit with blanks between them."""
    left = width
    for token in tokens:
        left -= width_of(token)
        if left < 0:
            return
        yield token
        left -= 1
