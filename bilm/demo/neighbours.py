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
        self._of_word: dict[str, list[int]] = defaultdict(list)
        for index, place in enumerate(places):
            self._of_word[place.word.lower()].append(index)

    def frequent_words(self, words: Iterable[str], minimum: int) -> list[str]:
        """Those of `words` that occur `minimum` times or more."""
        return [word for word in words if len(self._of_word.get(word.lower(), ())) >= minimum]

    def neighbours(self, word: str, seed: int, n: int = 3) -> Neighbours:
        """The contexts nearest to one occurrence of `word`, drawn by `seed`.

        Raises:
            KeyError: the word does not occur.
        """
        own = self._of_word[word.lower()]
        if not own:
            raise KeyError(word)
        query = random.Random(seed).choice(own)
        cosines = self._vectors @ self._vectors[query]
        same: list[tuple[float, Occurrence]] = []
        other: list[tuple[float, Occurrence]] = []
        shown = {self._places[query].in_context()}
        for index in np.argsort(-cosines):
            place = self._places[index]
            found = same if place.word.lower() == word.lower() else other
            if len(found) < n and place.in_context() not in shown:
                found.append((float(cosines[index]), place))
                shown.add(place.in_context())
            if len(same) == len(other) == n:
                break
        return Neighbours(self._places[query], same, other)


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
