"""Words in context and the contexts nearest to them, by the cosine of contextual vectors."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bilm.errors import InputError

Sentences = Sequence[Sequence[str]]


class Neighbours(NamedTuple):
    """What is nearest to an occurrence: pairs of a cosine and an occurrence, nearest first."""

    same_word: list[tuple[float, int]]
    other_words: list[tuple[float, int]]


@dataclass(frozen=True, eq=False)
class Occurrences:
    """The words of sentences, where they occur, with their vectors.

    An occurrence is a number from 0, the index into these arrays:

    Attributes:
        sentences: the sentences, which hold other tokens too.
        positions: (n, 2) integers: the number of the sentence, and of the token in it.
        vectors: (n, dim) float32.
    """

    sentences: Sentences
    positions: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of_words(cls, sentences: Sentences, vectors: Sequence[np.ndarray]) -> Occurrences:
        """All words of sentences, without numbers, punctuation marks and names in code.

        Args:
            vectors: for each sentence float32 (tokens, dim), as `ELMo.encode` gives them.

        Raises:
            InputError: there is no word in the sentences.
        """
        positions = [
            (number, position)
            for number, sentence in enumerate(sentences)
            for position, token in enumerate(sentence)
            if is_word(token)
        ]
        if not positions:
            raise InputError("the text has no words, only numbers and marks.")
        rows = [vectors[number][position] for number, position in positions]
        return cls(sentences, np.array(positions), np.stack(rows))

    def word(self, occurrence: int) -> str:
        """The token itself."""
        number, position = self.positions[occurrence]
        return self.sentences[number][position]

    def in_context(self, occurrence: int, width: int = 6) -> str:
        """The token in brackets among `width` tokens on each side."""
        number, position = self.positions[occurrence]
        sentence = self.sentences[number]
        left = sentence[max(0, position - width) : position]
        right = sentence[position + 1 : position + 1 + width]
        before = "... " if position > width else ""
        after = " ..." if position + 1 + width < len(sentence) else ""
        return f"{before}{' '.join([*left, f'[{sentence[position]}]', *right])}{after}"

    def of(self, word: str) -> np.ndarray:
        """The occurrences of a word, however it is capitalised: integers, ascending."""
        return np.flatnonzero(self._words == word.lower())

    def contrasting_pair(self, word: str) -> tuple[int, int]:
        """Two occurrences of `word` in contexts as different as most of its contexts allow.

        They are a tenth of the way from either end of the line along which the word's vectors
        differ most (their first principal component); the ends themselves are oddities.

        Raises:
            KeyError: the word does not occur.
        """
        own = self.of(word)
        if not len(own):
            raise KeyError(word)
        vectors = self._directions[own]
        _, _, components = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
        order = np.argsort(vectors @ components[0], kind="stable")
        tenth = len(own) // 10
        return int(own[order[tenth]]), int(own[order[-1 - tenth]])

    def neighbours(self, occurrence: int, n: int = 3) -> Neighbours:
        """The `n` nearest contexts of the same word and of other words, in other sentences.

        Much text is repeated with few changes: of contexts that have the word before and after
        them in common, one is taken.
        """
        cosines = self._directions @ self._directions[occurrence]
        found = Neighbours([], [])
        seen = {self.in_context(occurrence, 1)}
        for other in map(int, np.argsort(-cosines)):
            is_same = self._words[other] == self._words[occurrence]
            nearest = found.same_word if is_same else found.other_words
            is_elsewhere = self.positions[other, 0] != self.positions[occurrence, 0]
            context = self.in_context(other, 1)
            if len(nearest) < n and is_elsewhere and context not in seen:
                nearest.append((float(cosines[other]), other))
                seen.add(context)
            if len(found.same_word) == len(found.other_words) == n:
                break
        return found

    @cached_property
    def _words(self) -> np.ndarray:
        """The words in small letters."""
        return np.array([self.word(k).lower() for k in range(len(self.positions))])

    @cached_property
    def _directions(self) -> np.ndarray:
        """The vectors without their mean, at length 1: (n, dim) float32.

        What all vectors share would otherwise make all contexts alike.
        """
        centred = self.vectors - self.vectors.mean(axis=0)
        norms = np.linalg.norm(centred, axis=1, keepdims=True)
        return centred / np.maximum(norms, 1e-12)


def is_word(token: str) -> bool:
    """Whether a token is a word and not a number, a mark or a name in code."""
    return token.isalpha() and (len(token) > 1 or not token.isascii())


def sample_with(
    sentences: Iterable[Sequence[str]], words: Iterable[str], n_sentences: int, seed: int = 0
) -> list[Sequence[str]]:
    """Up to `n_sentences` sentences, drawn by `seed`; those with one of `words` come first."""
    wanted = {word.lower() for word in words}
    order = list(sentences)
    random.Random(seed).shuffle(order)
    order.sort(key=lambda sentence: wanted.isdisjoint(map(str.lower, sentence)))
    return order[:n_sentences]


def frequent_words(sentences: Iterable[Sequence[str]], n: int) -> list[str]:
    """Frequent longer words, which have contexts to compare; the most frequent are left out."""
    tokens = (token for sentence in sentences for token in sentence)
    counts = Counter(token for token in tokens if is_word(token) and token.islower())
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    skipped = min(100, len(ranked) // 4)
    return [word for word in ranked[skipped:] if len(word) > 3][:n]
