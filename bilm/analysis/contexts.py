"""A word in its sentence: the nearest contexts (table 4 of the paper), and how they are shown.

    query = Occurrences.of_query(elmo, "they [play] cards")
    nearest_contexts(query, occurrences, layers=[0, 1, 2])

In a terminal, Chinese characters are two columns wide.
"""

from __future__ import annotations

import html
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # `bilm --help` imports this file, and shall not import NumPy
    from bilm.analysis.occurrences import Layer, Occurrences, Sentence

_NARROWEST = 60


class Context(NamedTuple):
    """A word in a sentence.

    Attributes:
        cosine: cosine with the query after subtracting the mean of the searched vectors; None for
            a single vector, which equals its mean.
        sentence: the tokens.
        position: 0-based position of the word.
    """

    cosine: float | None
    sentence: Sentence
    position: int

    @classmethod
    def of(cls, occurrences: Occurrences, number: int, cosine: float | None = None) -> Context:
        """The context of an occurrence."""
        position = int(occurrences.positions[number, 1])
        return cls(cosine, occurrences.sentence(number), position)

    def as_dict(self) -> dict[str, Any]:
        """The context for JSON."""
        cosine = None if self.cosine is None else round(self.cosine, 4)
        return {"cosine": cosine, "sentence": list(self.sentence), "position": self.position}


class LayerContexts(NamedTuple):
    """The nearest contexts in one layer: of the same word, and of other words."""

    layer: Layer
    same_word: list[Context]
    other_words: list[Context]

    def as_dict(self) -> dict[str, Any]:
        """The contexts for JSON."""
        return {
            "layer": self.layer,
            "same_word": [context.as_dict() for context in self.same_word],
            "other_words": [context.as_dict() for context in self.other_words],
        }


def nearest_contexts(
    query: Occurrences,
    occurrences: Occurrences,
    layers: Sequence[Layer] = ("top",),
    n: int = 5,
    any_word: bool = False,
) -> list[LayerContexts]:
    """The `n` contexts nearest to a query in each layer, from different sentences.

    The mean of the word's vectors, which is the larger part of each, is subtracted before they are
    compared. Occurrences of other words (only with `any_word`) are centred on their own.
    """
    is_same = occurrences.words == query.words[0]
    both = [occurrences.select(is_same), occurrences.select(~is_same & any_word)]

    def nearest(side: int, layer: Layer) -> list[Context]:
        own = both[side]
        found = own.neighbours(query, n, layer)[side] if len(own) else []
        return [Context.of(own, k, cosine if len(own) > 1 else None) for cosine, k in found]

    return [LayerContexts(layer, nearest(0, layer), nearest(1, layer)) for layer in layers]


# Shown in a terminal and on a page


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


def line_markup(context: Context, width: int | None = None) -> str:
    """A list item: the cosine, and the word with `width` tokens (None: all) on each side."""
    tokens, position = context.sentence, context.position
    start = 0 if width is None else max(0, position - width)
    sides = " ".join(tokens[start:position]), " ".join(tokens[position + 1 :][:width])
    left, right = map(html.escape, sides)
    cosine = "" if context.cosine is None else f"{context.cosine:.2f}"
    return (
        f'<li><span class="mark">{cosine}</span><span class="left"><bdi>{left}</bdi></span> '
        f'<b>{html.escape(tokens[position])}</b> <span class="right">{right}</span></li>'
    )
