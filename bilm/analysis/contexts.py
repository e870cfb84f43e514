"""A word in its sentence: the nearest contexts (table 4 of the paper), and their display.

    query = Occurrences.of_query(elmo, "they [play] cards")
    nearest_contexts(query, occurrences, layers=[0, 1, 2])

In a terminal, Chinese characters are two columns wide.
"""

from __future__ import annotations

import html
import itertools
import shutil
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `bilm --help` imports this file, and must not import NumPy
    from bilm.analysis.occurrences import Layer, Occurrences, Sentence


@dataclass(frozen=True)
class Context:
    """A word in a sentence."""

    # With the query, after subtracting the mean of the searched vectors; None if there is only one.
    cosine: float | None
    sentence: Sentence
    position: int  # of the word, 0-based

    @classmethod
    def of(cls, occurrences: Occurrences, number: int, cosine: float | None = None) -> Context:
        """The context of an occurrence."""
        cosine = None if cosine is None else round(cosine, 4)
        return cls(cosine, occurrences.sentence(number), int(occurrences.positions[number, 1]))


@dataclass(frozen=True)
class LayerContexts:
    """The nearest contexts in one layer: of the same word, and of other words."""

    layer: Layer
    same_word: list[Context]
    other_words: list[Context]


def nearest_contexts(
    query: Occurrences,
    occurrences: Occurrences,
    layers: Sequence[Layer] = ("top",),
    n: int = 5,
    *,
    any_word: bool = False,
    match_case: bool = False,
) -> list[LayerContexts]:
    """The `n` contexts nearest to a query in each layer, from different sentences.

    The query is from `Occurrences.of_query`, such as "they [play+plays] cards" for two forms.

    The mean of the word's vectors is subtracted first. Occurrences of other words (only with
    `any_word`) are centred separately.
    """
    target = query.targets[0] if query.targets else query.word(0)
    same = occurrences.select(occurrences.of(target, match_case=match_case))
    others = set(range(len(occurrences))) - {*occurrences.of(target).tolist()}
    other = occurrences.select(sorted(others) if any_word else [])

    def nearest(searched: Occurrences, layer: Layer) -> list[Context]:
        near = searched.neighbours(query, n, layer) if len(searched) else ()
        has_mean = len(searched) > 1
        return [Context.of(searched, k, cosine if has_mean else None) for cosine, k in near]

    return [LayerContexts(layer, nearest(same, layer), nearest(other, layer)) for layer in layers]


# In a terminal and on a page


def in_context(contexts: Sequence[Context], margin: int = 0, cosines: bool = True) -> list[str]:
    """Lines with the [words] aligned, after the cosines, that leave a margin in the terminal."""
    from rich.cells import cell_len, set_cell_size

    # At least 60 columns; 100 if the width is unknown.
    width = max(60, shutil.get_terminal_size((100, 24)).columns) - margin - 7 * cosines
    words = [f"[{context.sentence[context.position]}]" for context in contexts]
    middle = max(map(cell_len, words), default=0)
    side = max(8, (width - middle - 2) // 2)
    lines = []
    for word, context in zip(words, contexts, strict=True):
        left = " ".join(reversed(_fitting(context.sentence[: context.position][::-1], side)))
        right = " ".join(_fitting(context.sentence[context.position + 1 :], side))
        blanks = " " * (side - cell_len(left))
        line = f"{blanks}{left} {set_cell_size(word, middle)} {right}".rstrip()
        number = "" if context.cosine is None else f"{context.cosine:.2f}"
        lines.append(f"{number:>5}  {line}" if cosines else line)
    return lines


def _fitting(tokens: Sequence[str], width: int) -> list[str]:
    """The first tokens that fit into a width, separated by spaces."""
    from rich.cells import cell_len

    ends = itertools.accumulate(cell_len(token) + 1 for token in tokens)
    return [token for token, end in zip(tokens, ends, strict=True) if end <= width + 1]


def direction(tokens: Sequence[str]) -> str:
    """The direction in which most letters of a sentence are written: "ltr" or "rtl"."""
    kinds = Counter(unicodedata.bidirectional(c) for token in tokens for c in token)
    return "rtl" if kinds["R"] + kinds["AL"] > kinds["L"] else "ltr"


def line_markup(context: Context) -> str:
    """A list item: the word in its sentence."""
    tokens, position = context.sentence, context.position
    left = html.escape(" ".join(tokens[:position]))
    right = html.escape(" ".join(tokens[position + 1 :]))
    return (
        f'<li dir="{direction(tokens)}"><span class="mark"></span>'
        f'<span class="left"><bdi>{left}</bdi></span> '
        f'<b>{html.escape(tokens[position])}</b> <span class="right">{right}</span></li>'
    )
