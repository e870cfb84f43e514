"""The contexts nearest to a word in a sentence, by layer: table 4 of the paper.

query = Occurrences.of_query(elmo, "they [play] cards")
nearest_contexts(query, occurrences, layers=[0, 1, 2])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bilm.analysis.occurrences import Layer, Occurrences, Sentence


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
