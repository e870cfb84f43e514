"""Text layout for a terminal, where Chinese characters are two columns wide."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bilm.cli.terminal import table as table

if TYPE_CHECKING:
    from bilm.analysis.contexts import Context

_NARROWEST = 60


def terminal_width() -> int:
    """Columns of the terminal, at least 60; 100 if unknown."""
    return max(_NARROWEST, shutil.get_terminal_size((100, 24)).columns)


def in_context(contexts: Sequence[Context], width: int, cosines: bool = True) -> list[str]:
    """Key word in context: one line each, with the [words] aligned.

    Args:
        width: columns of a line.
        cosines: begin each line with the cosine.
    """
    from rich.cells import cell_len, set_cell_size

    width -= 7 * cosines
    words = [f"[{context.sentence[context.position]}]" for context in contexts]
    middle = max(map(cell_len, words), default=0)
    side = max(8, (width - middle - 2) // 2)
    lines = []
    for word, (cosine, tokens, position) in zip(words, contexts, strict=True):
        left = " ".join(reversed(_fitting(tokens[:position][::-1], side)))
        right = " ".join(_fitting(tokens[position + 1 :], side))
        blanks = " " * (side - cell_len(left))
        line = f"{blanks}{left} {set_cell_size(word, middle)} {right}".rstrip()
        number = "" if cosine is None else f"{cosine:.2f}"
        lines.append(f"{number:>5}  {line}" if cosines else line)
    return lines


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
