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
        cosine: cosine with the query after subtracting the mean of the searched vectors; None if
            there is only one, which has no mean to subtract.
        sentence: the tokens.
        position: 0-based position of the word.
    """

    cosine: float | None
    sentence: Sentence
    position: int

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
    """The contexts nearest to a query in each layer.

    Occurrences of the same word are compared after subtracting the mean of that word's vectors,
    which is the larger part of each; occurrences of other words after subtracting their mean.

    Args:
        query: one occurrence, from `Occurrences.of_query`.
        occurrences: the occurrences to search.
        layers: the layers to compare in.
        n: number of contexts of each kind, from different sentences.
        any_word: search other words as well.

    Raises:
        InputError: there is no such layer.
    """
    is_same = occurrences.words == query.words[0]
    same, others = occurrences.select(is_same), occurrences.select(~is_same & any_word)
    found = []
    for layer in layers:
        occurrences.layer_number(layer)
        same_word = same.neighbours(query, n, layer).same_word if len(same) else []
        other_words = others.neighbours(query, n, layer).other_words if len(others) else []
        found.append(
            LayerContexts(layer, _contexts(same, same_word), _contexts(others, other_words))
        )
    return found


def _contexts(occurrences: Occurrences, found: list[tuple[float, int]]) -> list[Context]:
    return [
        Context(
            cosine if len(occurrences) > 1 else None,
            occurrences.sentence(number),
            int(occurrences.positions[number, 1]),
        )
        for cosine, number in found
    ]
