"""Word sense by nearest neighbour: Peters et al. (2018), section 5.3.

    train = Occurrences.encoded(elmo, read_labelled_uses("train.txt"))
    test = Occurrences.encoded(elmo, read_labelled_uses("test.txt"))
    nearest_sense(train, test, layer=1).accuracy

Each use in the test text gets the sense of what is nearest among the training uses of its word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bilm.analysis.occurrences import Layer, Occurrences, unit
from bilm.analysis.probing import WordVectors, static_table
from bilm.core.errors import InputError

# Cosines that differ by less are equal: those of the same word at layer 0.
_EQUAL = 1e-5

NEAREST = ("use", "mean")
CENTRES = ("all", "word", None)
UNSEEN = ("similar", "frequent", None)


@dataclass(frozen=True)
class SenseSettings:
    """How the sense of a use is found.

    Attributes:
        nearest: "use": the sense of the nearest training use; "mean": the sense whose uses have
            the nearest mean, as in the paper.
        centre: what is taken from the vectors before their cosines: "all": the mean of all
            training uses; "word": that of the training uses of the same word; None: nothing.
        unseen: a word without training uses is taken for the training word whose vector in layer
            0, which knows its spelling alone, is nearest ("similar"), or has the most frequent of
            all senses ("frequent"), or none (None).
    """

    nearest: str = "use"
    centre: str | None = "all"
    unseen: str | None = "similar"

    def check(self) -> None:
        """Raise an InputError unless all values are known."""
        for name, values in (("nearest", NEAREST), ("centre", CENTRES), ("unseen", UNSEEN)):
            value = getattr(self, name)
            if value not in values:
                raise InputError(
                    f"{name}: one of {', '.join(map(repr, values))} is expected, not {value!r}."
                )


@dataclass(frozen=True, eq=False)
class SenseResult:
    """Senses that were found for uses of words.

    Attributes:
        senses: for each test use; None for none.
        gold: the right ones; None without labels.
        seen: bool (n,): the word occurs in training.
        ambiguous: bool (n,): it has more than one sense there.
    """

    senses: list[str | None]
    gold: Sequence[str] | None
    seen: np.ndarray
    ambiguous: np.ndarray

    @property
    def right(self) -> np.ndarray:
        """bool (n,): the sense is the right one.

        Raises:
            InputError: the test uses have no labels.
        """
        if self.gold is None:
            raise InputError("word sense: test uses with labels are expected.")
        pairs = zip(self.senses, self.gold, strict=True)
        return np.array([sense == gold for sense, gold in pairs], bool)

    @property
    def accuracy(self) -> float:
        """The part of all uses whose sense is the right one."""
        return float(self.right.mean())

    @property
    def ambiguous_accuracy(self) -> float | None:
        """The same of uses whose word has several senses in training; None if there is none."""
        return float(self.right[self.ambiguous].mean()) if self.ambiguous.any() else None


class SenseRow(NamedTuple):
    """What a way of finding senses gets right.

    Attributes:
        representation: "first sense", "static", "static context", "layer 0", ...
        accuracy: of all test uses.
        ambiguous_accuracy: of those whose word has several senses in training; None of none.
    """

    representation: str
    accuracy: float
    ambiguous_accuracy: float | None


# For each text, what counts as the word of each use.
Words = tuple[Sequence[str], Sequence[str]]


def nearest_sense(
    train: Occurrences,
    test: Occurrences,
    layer: Layer = "top",
    settings: SenseSettings = SenseSettings(),
    *,
    words: Words | None = None,
) -> SenseResult:
    """The senses of test uses by what is nearest to them in training.

    Of several that are as near, the sense that is more frequent in training wins.

    Args:
        train: uses with their senses as labels.
        test: uses of the same model; labels are needed for the accuracy only.
        layer: the layer whose vectors are compared.
        settings: how.
        words: the words of both, such as lemmas; None takes the tokens in small letters.

    Raises:
        InputError: the training uses have no labels, or the arguments do not fit each other.
    """
    settings.check()
    known = _Training(train, test, words, settings.unseen)
    return known.nearest(train.layer(layer), test.layer(layer), settings)


def first_sense(
    train: Occurrences,
    test: Occurrences,
    *,
    unseen: str | None = "similar",
    words: Words | None = None,
) -> SenseResult:
    """The baseline: the sense that is most frequent in training, for each word.

    Args:
        train, test, words: as for `nearest_sense`.
        unseen: as for `SenseSettings`.
    """
    SenseSettings(unseen=unseen).check()
    return _Training(train, test, words, unseen).first()


def with_static(
    occurrences: Occurrences, static: WordVectors, window: int | None = 0
) -> Occurrences:
    """Occurrences with static vectors in place of a model's: one layer, (n, 1, static.dim).

    Args:
        occurrences: their own vectors are not looked at.
        static: vectors of words; a word without a vector has zeros.
        window: 0: the vector of the word itself, which cannot tell its uses apart; a number: the
            mean over so many tokens on either side, without the word; None: over the sentence.
    """
    types: dict[str, int] = {}
    for number in np.unique(occurrences.positions[:, 0]):
        for token in occurrences.sentences[number]:
            types.setdefault(token, len(types))
    table = static_table(static, list(types))
    has_vector: np.ndarray = np.any(table, axis=1)
    vectors = np.zeros((len(occurrences), 1, static.dim), np.float32)
    for k in range(len(occurrences)):
        chosen = np.array([types[token] for token in _around(occurrences, k, window)], np.int64)
        chosen = chosen[has_vector[chosen]]
        if len(chosen):
            vectors[k, 0] = table[chosen].mean(axis=0)
    return replace(occurrences, vectors=vectors, about={})


def sense_table(
    train: Occurrences,
    test: Occurrences,
    settings: SenseSettings = SenseSettings(),
    *,
    static: WordVectors | None = None,
    words: Words | None = None,
) -> list[SenseRow]:
    """Table 5 of the paper on uses of one's own: each layer beside the baselines.

    Args:
        train, test, settings, words: as for `nearest_sense`; both texts have labels.
        static: vectors of words: "static" has those of the word, "static context" the mean of the
            rest of the sentence.

    Raises:
        InputError: as for `nearest_sense`.
    """
    settings.check()
    known = _Training(train, test, words, settings.unseen)
    results = {"first sense": known.first()}
    if static is not None:
        for name, window in (("static", 0), ("static context", None)):
            vectors = with_static(train, static, window), with_static(test, static, window)
            results[name] = known.nearest(vectors[0].layer(0), vectors[1].layer(0), settings)
    for layer in range(train.n_layers):
        results[f"layer {layer}"] = known.nearest(train.layer(layer), test.layer(layer), settings)
    return [
        SenseRow(name, result.accuracy, result.ambiguous_accuracy)
        for name, result in results.items()
    ]


class _Training:
    """The training uses of each word, and the test uses that are looked for among them."""

    def __init__(
        self, train: Occurrences, test: Occurrences, words: Words | None, unseen: str | None
    ) -> None:
        if train.labels is None or not len(train):
            raise InputError("word sense: training uses with labels are expected.")
        shapes = train.vectors.shape[1:], test.vectors.shape[1:]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"word sense: vectors of one model are expected, not {shapes[0]} and {shapes[1]} "
                "(layers, dim)."
            )
        self.labels, self._gold, self._unseen = train.labels, test.labels, unseen
        train_words, test_words = (
            [str(word) for word in given] for given in words or (train.words, test.words)
        )
        for name, given, uses in (("train", train_words, train), ("test", test_words, test)):
            if len(given) != len(uses):
                raise InputError(f"words: {len(uses)} are expected for {name}, not {len(given)}.")
        self._uses = _numbers_of(train_words)
        n_senses = {
            word: len({self.labels[use] for use in uses}) for word, uses in self._uses.items()
        }
        self._seen = np.array([word in n_senses for word in test_words], bool)
        self._ambiguous = np.array([n_senses.get(word, 0) > 1 for word in test_words], bool)
        if unseen == "similar" and not self._seen.all():
            test_words = self._similar(train, test, test_words)
        self._rows = _numbers_of(test_words)

    def first(self) -> SenseResult:
        """The most frequent sense of each word."""
        senses = self._fallback()
        for uses, rows in self._groups():
            first = self._senses_of(uses)[0]
            for row in rows:
                senses[row] = first
        return self._result(senses)

    def nearest(
        self, train_vectors: np.ndarray, test_vectors: np.ndarray, settings: SenseSettings
    ) -> SenseResult:
        """The sense of what is nearest: vectors (n, dim) of all uses, and (m, dim)."""
        centre = train_vectors.mean(axis=0) if settings.centre == "all" else 0
        senses = self._fallback()
        for uses, rows in self._groups():
            names = self._senses_of(uses)
            rank = {sense: k for k, sense in enumerate(names)}
            ranks = np.array([rank[self.labels[use]] for use in uses])
            vectors, asked = train_vectors[uses] - centre, test_vectors[rows] - centre
            if settings.centre == "word":
                vectors, asked = vectors - vectors.mean(axis=0), asked - vectors.mean(axis=0)
            for row, found in zip(rows, _nearest(vectors, ranks, asked, settings), strict=True):
                senses[row] = names[found]
        return self._result(senses)

    def _groups(self) -> Iterator[tuple[list[int], list[int]]]:
        """Training uses and test uses of each word that has both."""
        for word, rows in self._rows.items():
            if word in self._uses:
                yield self._uses[word], rows

    def _senses_of(self, uses: Iterable[int]) -> list[str]:
        """The senses of training uses, by falling frequency; of equals the earlier one first."""
        return [sense for sense, _ in Counter(self.labels[use] for use in uses).most_common()]

    def _fallback(self) -> list[str | None]:
        """For each test use the most frequent of all senses, or nothing."""
        sense = None if self._unseen is None else self._senses_of(range(len(self.labels)))[0]
        return [sense] * len(self._seen)

    def _similar(self, train: Occurrences, test: Occurrences, words: list[str]) -> list[str]:
        """The test words, with training words in place of those that have no training uses."""
        names = list(self._uses)
        means = np.stack([train.vectors[uses, 0].mean(axis=0) for uses in self._uses.values()])
        centre = means.mean(axis=0)
        table = unit(means - centre)
        similar = list(words)
        for row in np.flatnonzero(~self._seen):
            similar[row] = names[int(np.argmax(table @ unit(test.vectors[row, :1] - centre)[0]))]
        return similar

    def _result(self, senses: list[str | None]) -> SenseResult:
        return SenseResult(senses, self._gold, self._seen, self._ambiguous)


def _numbers_of(words: Sequence[str]) -> dict[str, list[int]]:
    """Where each word is."""
    numbers: dict[str, list[int]] = {}
    for number, word in enumerate(words):
        numbers.setdefault(word, []).append(number)
    return numbers


def _nearest(
    vectors: np.ndarray, ranks: np.ndarray, asked: np.ndarray, settings: SenseSettings
) -> np.ndarray:
    """The rank of the sense that is nearest to each row.

    Args:
        vectors: (n, dim) of training uses of a word.
        ranks: int (n,): the rank of the sense of each, by falling frequency.
        asked: (m, dim).
        settings: whether uses are compared with, or the means of senses.
    """
    if settings.nearest == "mean":
        vectors = np.stack([vectors[ranks == rank].mean(axis=0) for rank in range(max(ranks) + 1)])
        ranks = np.arange(len(vectors))
    else:
        # By falling frequency: the first of equals is the one to take.
        order = np.argsort(ranks, kind="stable")
        vectors, ranks = vectors[order], ranks[order]
    cosines = unit(asked) @ unit(vectors).T
    best = cosines.max(axis=1, keepdims=True)
    return ranks[np.argmax(cosines >= best - _EQUAL, axis=1)]


def _around(occurrences: Occurrences, use: int, window: int | None) -> list[str]:
    sentence, position = occurrences.sentence(use), int(occurrences.positions[use, 1])
    if window == 0:
        return [sentence[position]]
    begin = 0 if window is None else max(0, position - window)
    end = len(sentence) if window is None else position + 1 + window
    return [*sentence[begin:position], *sentence[position + 1 : end]]
