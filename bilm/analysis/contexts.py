"""The contexts nearest to a word in a sentence, by layer: table 4 of the paper.

query = Occurrences.of_query(elmo, "they [play] cards")
nearest_contexts(query, occurrences, layers=[0, 1, 2])
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bilm.analysis.occurrences import Layer, Occurrences, Sample, Sentence


class Context(NamedTuple):
    """A word in a sentence.

    Attributes:
        cosine: with the vector of the query, both without the common mean of the occurrences it
            was searched among; None if there is but one, which has no mean of its own.
        sentence: the tokens.
        position: of the word among them.
    """

    cosine: float | None
    sentence: Sentence
    position: int


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
    """The contexts nearest to a query, in each of some layers.

    Uses of the word itself are compared with each other: without the mean of their own vectors,
    which is the larger part of each. Other words are compared without the mean of theirs.

    Args:
        query: one occurrence, from `Occurrences.of_query`.
        occurrences: where to search.
        layers: the layers, one after the other.
        n: how many contexts of each kind, from different sentences.
        any_word: search other words than the query's, too.

    Raises:
        InputError: there is no such layer.
    """
    is_same = occurrences.words == query.words[0]
    same = occurrences.select(is_same)
    others = occurrences.select(~is_same) if any_word else occurrences.select(np.array([], int))
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
            occurrences.sentence(use),
            int(occurrences.positions[use, 1]),
        )
        for cosine, use in found
    ]


def joined(first: Sample, second: Sample, without: Collection[str]) -> Sample:
    """The uses of two samples without labels.

    Args:
        first, second: the samples.
        without: words in small letters whose uses in the second sample are left out.
    """
    kept = [
        (number, position)
        for number, position in second.positions
        if second.sentences[number][position].lower() not in without
    ]
    shift = len(first.sentences)
    moved = np.array(kept, np.int64).reshape(-1, 2) + np.array([shift, 0])
    return replace(
        first,
        sentences=[*first.sentences, *second.sentences],
        positions=np.concatenate([first.positions, moved]),
        counts=first.counts | second.counts,
    )
