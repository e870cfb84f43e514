"""Word sense disambiguation by vectors: Peters et al. (2018), section 5.3.

Each test occurrence gets the sense of the most similar training occurrences of its word.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.analysis.occurrences import Layer, Occurrences, indices_by_name, require_one_kind, unit
from bilm.core.errors import InputError, one_of, real, require

if TYPE_CHECKING:
    from bilm.analysis.static_vectors import StaticVectors

METHODS = ("use", "mean", "prior")
UNSEEN = ("similar", None)
WINDOW = 10
"""Tokens on either side whose mean static vector is the static context."""

KAPPAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_FOLDS = 5
_EQUAL = 1e-5  # smaller differences of cosines are rounding errors

# The word of each training occurrence and of each test occurrence.
WordLists = tuple[Sequence[str], Sequence[str]]
# Vectors of training occurrences (n, dim) and test occurrences (m, dim). Several blocks are
# concatenated, each centred and scaled to length 1.
Blocks = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class SenseSettings:
    """How to find the sense of an occurrence.

    Attributes:
        method: "use": the sense of the nearest training occurrence; "mean": the sense whose mean
            vector is nearest, as in the paper; "prior": the highest
            log(n_s + 1) + kappa cos(v, mean_s), for a sense s with n_s training occurrences; kappa
            0 is the most frequent sense.
        unseen: "similar" treats a word without training occurrences as the training word nearest in
            layer 0, which sees only the spelling; None gives it no sense.
        kappa: for "prior"; None chooses the best of `KAPPAS` by cross-validation on the training
            occurrences.
    """

    method: str = "use"
    unseen: str | None = "similar"
    kappa: float | None = None

    def __post_init__(self) -> None:
        require(one_of(METHODS), method=self.method)
        require(one_of(UNSEEN), unseen=self.unseen)
        require(real(0), kappa=self.kappa or 0)


class SenseRow(NamedTuple):
    """How well a representation ("first sense", "static", "layer 0" ...) finds senses."""

    representation: str
    accuracy: float
    ambiguous_accuracy: float | None  # of words with several senses in training; None without any
    macro_accuracy: float  # mean over senses
    by_kind: Mapping[str, float] = {}  # accuracy by part of speech or the like
    kappa: float | None = None  # of the method "prior"


@dataclass(frozen=True, eq=False)
class SenseResult:
    """The predicted senses of n test occurrences."""

    senses: list[str | None]  # None: no sense
    gold: Sequence[str] | None  # the correct senses; None without labels
    seen: np.ndarray  # bool (n,): the word occurs in training
    ambiguous: np.ndarray  # bool (n,): the word has several senses in training
    kappa: float | None = None  # of the method "prior"

    @property
    def right(self) -> np.ndarray:
        """bool (n,): the sense is correct; an InputError without labels."""
        if self.gold is None:
            raise InputError("word sense: the test occurrences must have labels.")
        return np.array([s == gold for s, gold in zip(self.senses, self.gold, strict=True)], bool)

    @property
    def accuracy(self) -> float:
        """The proportion of correct senses."""
        return float(self.right.mean())

    @property
    def ambiguous_accuracy(self) -> float | None:
        """The proportion for `ambiguous` occurrences; None if there are none."""
        return float(self.right[self.ambiguous].mean()) if self.ambiguous.any() else None

    @property
    def macro_accuracy(self) -> float:
        """The mean over senses."""
        return float(np.mean(list(self._by(self.gold or ()).values())))

    def row(self, representation: str, kinds: Sequence[str] = ()) -> SenseRow:
        """The scores, also by the `kinds` of the test occurrences, such as parts of speech."""
        accuracies = (self.accuracy, self.ambiguous_accuracy, self.macro_accuracy)
        return SenseRow(representation, *accuracies, self._by(kinds), self.kappa)

    def _by(self, names: Sequence[str]) -> dict[str, float]:
        """The accuracy for each name of the uses."""
        right, rows = self.right, indices_by_name(names)
        return {name: float(right[rows[name]].mean()) for name in sorted(rows)}


def nearest_sense(
    train: Occurrences,
    test: Occurrences,
    layer: Layer = "top",
    settings: SenseSettings = SenseSettings(),
    *,
    words: WordLists | None = None,
) -> SenseResult:
    """The senses of test occurrences, by comparison with training occurrences of the same word.

    Ties are broken by the frequency of the sense in training.

    Args:
        train: occurrences with senses as labels.
        test: occurrences with vectors of the same model; labels are needed only for the accuracy.
        words: the words of both lists, such as lemmas; None takes the tokens in lower case.

    Raises:
        InputError: the training occurrences have no labels, or the arguments differ in size or
            shape.
    """
    finder = _SenseFinder(train, test, words, settings)
    return finder.senses([(train.layer(layer), test.layer(layer))])


def first_sense(
    train: Occurrences,
    test: Occurrences,
    *,
    unseen: str | None = "similar",
    words: WordLists | None = None,
) -> SenseResult:
    """The baseline: each word's most frequent sense in training; see `nearest_sense`."""
    frequencies = SenseSettings("prior", unseen=unseen, kappa=0)
    return replace(nearest_sense(train, test, 0, frequencies, words=words), kappa=None)


def sense_table(
    train: Occurrences,
    test: Occurrences,
    settings: SenseSettings = SenseSettings(),
    *,
    static: StaticVectors | None = None,
    words: WordLists | None = None,
    kinds: Sequence[str] = (),
) -> list[SenseRow]:
    """Table 5 of the paper: each layer next to baselines and combinations.

    Args:
        train, test, settings, words: as for `nearest_sense`; both have labels.
        static: vectors of words. "static" is the vector of the word, "static context" the mean
            over ten tokens on either side.
        kinds: part of speech or the like of each test occurrence, for `SenseRow.by_kind`.

    Returns:
        rows for "first sense"; "static" and "static context"; "layer 0", "layer 1", ...; "layers",
        all but layer 0 together; "layers, static context"; and "context", the states before and
        after the word, if the uses were encoded with them.
    """
    finder = _SenseFinder(train, test, words, settings)
    has_context = bool(train.about.get("context") and test.about.get("context"))
    n_layers = train.n_layers - has_context
    layers = [(train.layer(k), test.layer(k)) for k in range(train.n_layers)]
    by_name: dict[str, Blocks] = {}
    if static is not None:
        for name, window in (("static", 0), ("static context", WINDOW)):
            sides = [with_static(uses, static, window).layer(0) for uses in (train, test)]
            by_name[name] = [(sides[0], sides[1])]
    by_name |= {f"layer {k}": [layers[k]] for k in range(n_layers)}
    if n_layers > 2:
        by_name["layers"] = layers[1:n_layers]
    if static is not None:
        by_name["layers, static context"] = [*layers[1:n_layers], *by_name["static context"]]
    if has_context:
        by_name["context"] = layers[-1:]
    first = first_sense(train, test, unseen=settings.unseen, words=words)
    rows = [finder.senses(blocks).row(name, kinds) for name, blocks in by_name.items()]
    return [first.row("first sense", kinds), *rows]


def as_cells(rows: Sequence[SenseRow]) -> list[list[str]]:
    """The rows as text with a head, accuracies in per cent."""
    cells = [["", "all", "several senses", "by sense", *rows[0].by_kind, "kappa"]]
    for row in rows:
        accuracies = [row.accuracy, row.ambiguous_accuracy, row.macro_accuracy]
        accuracies += row.by_kind.values()
        percentages = ["-" if value is None else f"{100 * value:.1f}" for value in accuracies]
        kappa = "-" if row.kappa is None else f"{row.kappa:g}"
        cells.append([row.representation, *percentages, kappa])
    has_kappa = any(row.kappa is not None for row in rows)
    return cells if has_kappa else [row[:-1] for row in cells]


def with_static(
    occurrences: Occurrences, static: StaticVectors, window: int | None = 0
) -> Occurrences:
    """Occurrences with static vectors instead of a model's: one layer, (n, 1, static.dim).

    Args:
        occurrences: their own vectors are ignored.
        static: vectors of words; zeros for a word without a vector.
        window: 0: the vector of the word itself, which is the same for all its uses; n: the mean
            over n tokens on either side, without the word; None: over the whole sentence.
    """
    vectors = np.zeros((len(occurrences), 1, static.dim), np.float32)
    for k, row in enumerate(vectors):
        left, right = occurrences.sides(k, window)
        around = [occurrences.word(k)] if window == 0 else [*left, *right]
        if indices := [index for index in map(static.index, around) if index is not None]:
            row[0] = static.vectors[indices].mean(axis=0)
    return replace(occurrences, vectors=vectors, about={})


class _SenseFinder:
    """The training occurrences of each word, and the test occurrences to compare with them."""

    def __init__(
        self, train: Occurrences, test: Occurrences, words: WordLists | None, how: SenseSettings
    ) -> None:
        if train.labels is None or not len(train):
            raise InputError("word sense: the training occurrences must have labels.")
        require_one_kind(train, test)
        train_words, test_words = map(list, words or (train.words, test.words))
        if (len(train_words), len(test_words)) != (len(train), len(test)):
            raise InputError(
                f"words must have {len(train)} and {len(test)} entries, got {len(train_words)} and "
                f"{len(test_words)}."
            )
        self._settings, self._gold = how, test.labels
        self._labels = np.array(train.labels, object)
        self._train = indices_by_name(train_words)
        n_senses = {word: len(set(self._labels[uses])) for word, uses in self._train.items()}
        self._seen = np.array([word in n_senses for word in test_words], bool)
        self._ambiguous = np.array([n_senses.get(word, 0) > 1 for word in test_words], bool)
        if how.unseen == "similar" and not self._seen.all():
            self._replace_unseen(test_words, train.vectors[:, 0], test.vectors[:, 0])
        self._test = indices_by_name(test_words)

    def _replace_unseen(self, words: list[str], train: np.ndarray, test: np.ndarray) -> None:
        """Replace words without training occurrences by the training words nearest in layer 0."""
        names = list(self._train)
        means = np.stack([train[uses].mean(axis=0) for uses in self._train.values()])
        centre, unseen = means.mean(axis=0), np.flatnonzero(~self._seen)
        cosines = unit(test[unseen] - centre) @ unit(means - centre).T
        for row, best in zip(unseen, cosines.argmax(axis=1), strict=True):
            words[row] = names[best]

    def senses(self, blocks: Blocks) -> SenseResult:
        """The sense of each test occurrence."""
        train, test = _joined(blocks)
        kappas = self._kappas(train)
        senses = np.full(len(self._seen), None)
        for word, rows in self._test.items():
            if word in self._train:
                uses = self._train[word]
                names, ranks = _ranked(self._labels[uses])
                scores = _scores(train[uses], test[rows], ranks, self._settings.method, kappas)
                senses[rows] = names[_best(scores)[0]]
        kappa = kappas[0] if self._settings.method == "prior" else None
        return SenseResult(senses.tolist(), self._gold, self._seen, self._ambiguous, kappa)

    def _kappas(self, train: np.ndarray) -> Sequence[float]:
        """One value of kappa: the setting, or the best by cross-validation."""
        how = self._settings
        if how.method != "prior" or how.kappa is not None:
            return (how.kappa or 0.0,)
        # Contiguous parts of the training text, so that documents are rarely divided.
        folds = np.arange(len(self._labels)) * _FOLDS // len(self._labels)
        right = np.zeros(len(KAPPAS))
        for uses, fold in itertools.product(self._train.values(), range(_FOLDS)):
            heldout, rest = uses[folds[uses] == fold], uses[folds[uses] != fold]
            names, ranks = _ranked(self._labels[rest])
            if len(heldout) and len(names) > 1:
                best = _best(_scores(train[rest], train[heldout], ranks, how.method, KAPPAS))
                right += (names[best] == self._labels[heldout]).sum(axis=1)
        return (KAPPAS[int(np.argmax(right))],)


def _joined(blocks: Blocks) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of training and test occurrences whose dot products are mean cosines over the blocks,
    after subtracting the mean of the training occurrences."""
    sides = []
    for pair in blocks:
        mean = pair[0].mean(axis=0)
        sides.append([unit(uses - mean) / len(blocks) ** 0.5 for uses in pair])
    train, test = (np.concatenate(side, axis=1) for side in zip(*sides, strict=True))
    return train, test


def _scores(
    train: np.ndarray, test: np.ndarray, ranks: np.ndarray, method: str, kappas: Sequence[float]
) -> np.ndarray:
    """The score of each kappa, test occurrence and sense (kappas, m, senses) for one word.

    `ranks` has the rank of each training occurrence's sense; see `_ranked`.
    """
    counts = np.bincount(ranks)
    if method == "use":
        cosines = test @ train.T  # (m, n)
        return np.stack([cosines[:, ranks == k].max(axis=1) for k in range(len(counts))], axis=1)[
            np.newaxis
        ]
    means = unit(np.eye(len(counts))[ranks].T @ train)  # (senses, dim)
    cosines = (unit(test) @ means.T)[np.newaxis]
    if method == "mean":
        return cosines
    return np.log(counts + 1) + np.reshape(kappas, (-1, 1, 1)) * cosines


def _best(scores: np.ndarray) -> np.ndarray:
    """The rank of the sense with the highest score; ties go to the more frequent sense."""
    best = scores.max(axis=-1, keepdims=True)
    return np.argmax(scores >= best - _EQUAL, axis=-1)


def _ranked(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The senses by descending frequency, ties in order of occurrence, and each label's rank."""
    names = [sense for sense, _ in Counter(labels).most_common()]
    ranks = {sense: rank for rank, sense in enumerate(names)}
    return np.array(names, object), np.array([ranks[label] for label in labels], np.int64)
