"""Words in context and the contexts nearest to them, by the cosine of contextual vectors."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bilm.demo.sentences import Sentence

Embed = Callable[[Sequence[Sentence]], list[np.ndarray]]
"""Sentences to one float32 array (tokens, dimension) each."""


class Occurrence(NamedTuple):
    """A token of a sentence; `position` counts from 0."""

    sentence: Sentence
    position: int

    @property
    def word(self) -> str:
        """The token itself."""
        return self.sentence[self.position]

    def in_context(self, width: int = 6) -> str:
        """The token in brackets among `width` tokens on each side."""
        left = self.sentence[max(0, self.position - width) : self.position]
        right = self.sentence[self.position + 1 : self.position + 1 + width]
        before = "... " if self.position > width else ""
        after = " ..." if self.position + 1 + width < len(self.sentence) else ""
        return f"{before}{' '.join([*left, f'[{self.word}]', *right])}{after}"


@dataclass(frozen=True)
class Neighbours:
    """What is nearest to an occurrence: pairs of a cosine and an occurrence, nearest first."""

    query: Occurrence
    same_word: list[tuple[float, Occurrence]]
    other_words: list[tuple[float, Occurrence]]


class Contexts:
    """Occurrences of words with their vectors, to be searched for neighbours.

    The mean of all vectors is taken off before the cosine: what every place shares would
    otherwise make all places alike.

    Args:
        sentences: the pool.
        embed: gives their vectors.
    """

    def __init__(self, sentences: Sequence[Sentence], embed: Embed) -> None:
        places, vectors = [], []
        for sentence, rows in zip(sentences, embed(sentences), strict=True):
            for position, row in enumerate(rows):
                if is_word(sentence[position]):
                    places.append(Occurrence(sentence, position))
                    vectors.append(row)
        self._places = places
        centred = np.stack(vectors) - np.mean(vectors, axis=0)
        norms = np.linalg.norm(centred, axis=1, keepdims=True)
        self._vectors = centred / np.maximum(norms, 1e-12)
        of_word: dict[str, list[int]] = defaultdict(list)
        for index, place in enumerate(places):
            of_word[place.word.lower()].append(index)
        self._of_word = dict(of_word)

    def frequent_words(self, words: Iterable[str], minimum: int) -> list[str]:
        """Those of `words` that occur `minimum` times or more."""
        return [word for word in words if len(self._of_word.get(word.lower(), ())) >= minimum]

    def apart(self, word: str) -> tuple[Occurrence, Occurrence]:
        """Two occurrences of `word` in contexts as different as most of its contexts allow.

        They stand a tenth of the way from either end of the line along which the word's vectors
        differ most (their first principal component); the ends themselves are oddities.

        Raises:
            KeyError: the word does not occur.
        """
        own = self._indices(word)
        vectors = self._vectors[own]
        _, _, components = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
        order = np.argsort(vectors @ components[0], kind="stable")
        tenth = len(own) // 10
        return self._places[own[order[tenth]]], self._places[own[order[-1 - tenth]]]

    def neighbours(self, query: Occurrence, n: int = 3) -> Neighbours:
        """The contexts nearest to an occurrence, in sentences other than its own.

        Raises:
            KeyError: it is not one of the pool's occurrences.
        """
        index = next((k for k in self._indices(query.word) if self._places[k] is query), None)
        if index is None:
            raise KeyError(query)
        cosines = self._vectors @ self._vectors[index]
        same: list[tuple[float, Occurrence]] = []
        other: list[tuple[float, Occurrence]] = []
        # Much text is written again with few changes: one place for each pair of next words.
        shown = {query.in_context(1)}
        for k in np.argsort(-cosines):
            place = self._places[k]
            found = same if place.word.lower() == query.word.lower() else other
            if (
                len(found) < n
                and place.sentence is not query.sentence
                and place.in_context(1) not in shown
            ):
                found.append((float(cosines[k]), place))
                shown.add(place.in_context(1))
            if len(same) == len(other) == n:
                break
        return Neighbours(query, same, other)

    def _indices(self, word: str) -> list[int]:
        return self._of_word[word.lower()]


def is_word(token: str) -> bool:
    """Whether a token is a word and not a number, a mark or a name in code."""
    return token.isalpha() and (len(token) > 1 or not token.isascii())


def sample_with(
    sentences: Sequence[Sentence], words: Iterable[str], n_sentences: int, seed: int
) -> list[Sentence]:
    """Up to `n_sentences` sentences, drawn by `seed`; those with one of `words` come first."""
    wanted = {word.lower() for word in words}
    order = list(sentences)
    random.Random(seed).shuffle(order)
    order.sort(key=lambda sentence: wanted.isdisjoint(token.lower() for token in sentence))
    return order[:n_sentences]


def telling_words(sentences: Iterable[Sentence], n: int) -> list[str]:
    """Frequent longer words, which have contexts to compare; the most frequent are left out."""
    counts: dict[str, int] = defaultdict(int)
    for sentence in sentences:
        for token in sentence:
            if is_word(token) and token.islower():
                counts[token] += 1
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    skipped = min(100, len(ranked) // 4)
    return [word for word in ranked[skipped:] if len(word) > 3][:n]
