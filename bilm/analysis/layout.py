"""Text for a terminal, in which Chinese characters are two columns wide."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from bilm.cli.terminal import table as table

_NARROWEST = 60
# Tokens, and the position of the word.
Line = tuple[Sequence[str], int]


def terminal_width() -> int:
    """Columns of the terminal, at least 60; 100 if neither a terminal nor COLUMNS sets them."""
    return max(_NARROWEST, shutil.get_terminal_size((100, 24)).columns)


def in_context(lines: Sequence[Line], width: int) -> list[str]:
    """Key word in context: one line each, with the [words] aligned.

    Args:
        lines: tokens, and the position of the word.
        width: columns of a line, half of which are on each side of the word.
    """
    from rich.cells import cell_len, set_cell_size

    words = [f"[{tokens[position]}]" for tokens, position in lines]
    middle = max(map(cell_len, words), default=0)
    side = max(8, (width - middle - 2) // 2)
    shown = []
    for word, (tokens, position) in zip(words, lines, strict=True):
        left = " ".join(reversed(_fitting(tokens[:position][::-1], side)))
        right = " ".join(_fitting(tokens[position + 1 :], side))
        blanks = " " * (side - cell_len(left))
        shown.append(f"{blanks}{left} {set_cell_size(word, middle)} {right}".rstrip())
    return shown


def _fitting(tokens: Sequence[str], width: int) -> list[str]:
    """The first tokens that fit into a width, separated by spaces."""
    from rich.cells import cell_len

    kept: list[str] = []
    for token in tokens:
        width -= cell_len(token) + bool(kept)
        if width < 0:
            break
        kept.append(token)
    return kept
