"""Word sense disambiguation by vectors: Peters et al. (2018), section 5.3.

    train = Occurrences.encoded(elmo, read_labelled_uses("train.txt"), context=True)
    test = Occurrences.encoded(elmo, read_labelled_uses("test.txt"), context=True)
    for row in sense_table(train, test, SenseSettings("prior")):
        print(row.representation, row.accuracy)

Each test use gets the sense of the most similar training uses of its word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.analysis.occurrences import Layer, Occurrences, indices_by_name, require_one_model, unit
from bilm.core.errors import InputError, one_of, real, require, require_at_least

if TYPE_CHECKING:
    from bilm.analysis.static_vectors import StaticVectors

METHODS = ("use", "votes", "mean", "prior")
CENTRES = ("all", "word", None)
UNSEEN = ("similar", "frequent", None)
WINDOW = 10
"""Tokens on either side whose mean static vector is the static context."""

KAPPAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
NEIGHBOURS = (1, 3, 5, 10, 20)
_FOLDS = 5
_EQUAL = 1e-5  # smaller differences of cosines are rounding errors
_SMALLEST_VOTE = 1e-3

# What counts as the word of each training use and of each test use.
WordLists = tuple[Sequence[str], Sequence[str]]
# Vectors of all training uses (n, dim) and all test uses (m, dim). Several blocks are concatenated,
# each centred and scaled to length 1.
Blocks = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class SenseSettings:
    """How the sense of a use is found.

    Attributes:
        method: "use": the sense of the nearest training use; "votes": the sense with most votes
            among the nearest uses, weighted by cosine; "mean": the sense whose mean vector is
            nearest, as in the paper; "prior": the highest log(n_s + a) + kappa cos(v, mean_s), for
            a sense s with n_s training uses; kappa 0 is the most frequent sense.
        centre: what is subtracted from the vectors: "all": the mean of all training uses;
            "word": the mean of the training uses of the same word; None: nothing.
        unseen: a word without training uses is treated as the training word whose layer 0, which
            sees its spelling only, is nearest ("similar"), or gets the most frequent of all
            senses ("frequent"), or no sense (None).
        shrinkage: m of "mean" and "prior": a sense's mean is that of its n_s uses and of m uses
            with the mean vector of the word.
        smoothing: a of "prior".
        kappa, neighbours: of "prior" and "votes"; None chooses the best of `KAPPAS` or
            `NEIGHBOURS` by cross-validation on the training uses.
    """

    method: str = "use"
    centre: str | None = "all"
    unseen: str | None = "similar"
    shrinkage: float = 0.0
    smoothing: float = 1.0
    kappa: float | None = None
    neighbours: int | None = None

    def __post_init__(self) -> None:
        for name, choices in {"method": METHODS, "centre": CENTRES, "unseen": UNSEEN}.items():
            require(one_of(choices), **{name: getattr(self, name)})
        numbers = {name: getattr(self, name) for name in ("shrinkage", "smoothing", "kappa")}
        require(real(0), **{name: value for name, value in numbers.items() if value is not None})
        require_at_least(1, neighbours=self.neighbours)


class SenseRow(NamedTuple):
    """How well a representation finds senses.

    Attributes:
        representation: "first sense", "static", "static context", "layer 0", "layers", ...
        accuracy: on all test uses.
        ambiguous_accuracy: on uses of words with several senses in training; None without any.
        macro_accuracy: mean over senses.
        by_kind: accuracy by part of speech or the like.
        parameter: kappa or the number of neighbours that was used.
    """

    representation: str
    accuracy: float
    ambiguous_accuracy: float | None
    macro_accuracy: float
    by_kind: Mapping[str, float] = {}
    parameter: float | None = None


@dataclass(frozen=True, eq=False)
class SenseResult:
    """Senses that were found for test uses.

    Attributes:
        senses: for each test use; None for none.
        gold: the correct senses; None without labels.
        seen: bool (n,): the word occurs in training.
        ambiguous: bool (n,): it has several senses there.
        parameter: kappa or the number of neighbours; None for other methods.
    """

    senses: list[str | None]
    gold: Sequence[str] | None
    seen: np.ndarray
    ambiguous: np.ndarray
    parameter: float | None = None

    @property
    def right(self) -> np.ndarray:
        """bool (n,): the sense is correct; an InputError without labels."""
        if self.gold is None:
            raise InputError("word sense: the test uses must have labels.")
        return np.array([s == gold for s, gold in zip(self.senses, self.gold, strict=True)], bool)

    @property
    def accuracy(self) -> float:
        """The proportion of test uses with the correct sense."""
        return float(self.right.mean())

    @property
    def ambiguous_accuracy(self) -> float | None:
        """The same for uses whose word has several senses in training; None if there are none."""
        return float(self.right[self.ambiguous].mean()) if self.ambiguous.any() else None

    @property
    def macro_accuracy(self) -> float:
        """The accuracy for each sense, mean over senses."""
        _, of = np.unique(np.array(self.gold or (), object), return_inverse=True)
        return float((np.bincount(of, self.right) / np.bincount(of)).mean())

    def row(self, representation: str, kinds: Sequence[str] | None = None) -> SenseRow:
        """The scores, also for each of `kinds`, such as the parts of speech of the test uses."""
        right, of = self.right, np.array(kinds or (), object)
        by_kind = {str(kind): float(right[of == kind].mean()) for kind in sorted(set(of))}
        return SenseRow(
            representation, self.accuracy, self.ambiguous_accuracy, self.macro_accuracy, by_kind,
            self.parameter,
        )  # fmt: skip


def nearest_sense(
    train: Occurrences,
    test: Occurrences,
    layer: Layer = "top",
    settings: SenseSettings = SenseSettings(),
    *,
    words: WordLists | None = None,
) -> SenseResult:
    """The senses of test uses, by comparison with the training uses of the same word in a layer.

    Ties are broken by the frequency of the sense in training.

    Args:
        train: uses with senses as labels.
        test: uses with vectors of the same model; labels are needed only for the accuracy.
        words: words of both, such as lemmas; None takes the tokens in lower case.

    Raises:
        InputError: the training uses have no labels, or the arguments differ in size or shape.
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
    return _SenseFinder(train, test, words, SenseSettings(unseen=unseen)).first()


def sense_table(
    train: Occurrences,
    test: Occurrences,
    settings: SenseSettings = SenseSettings(),
    *,
    static: StaticVectors | None = None,
    words: WordLists | None = None,
    kinds: Sequence[str] | None = None,
) -> list[SenseRow]:
    """Table 5 of the paper: each layer next to baselines and combinations.

    Args:
        train, test, settings, words: as for `nearest_sense`; both have labels.
        static: vectors of words. "static" is the vector of the word, "static context" the mean
            over ten tokens on either side.
        kinds: part of speech or the like of each test use, for `SenseRow.by_kind`.

    Returns:
        rows for "first sense"; "static" and "static context"; "layer 0", "layer 1", ...; "layers",
        all but layer 0 together; "layers, static context"; and "context", the states before and
        after the word, if the uses were encoded with them.
    """
    finder = _SenseFinder(train, test, words, settings)
    has_context = bool(train.about.get("context") and test.about.get("context"))
    n_layers = train.n_layers - has_context
    layers = [(train.layer(k), test.layer(k)) for k in range(n_layers)]
    found: dict[str, Blocks] = {}
    if static is not None:
        for name, window in (("static", 0), ("static context", WINDOW)):
            both = (with_static(uses, static, window).layer(0) for uses in (train, test))
            found[name] = [(next(both), next(both))]
    found |= {f"layer {k}": [pair] for k, pair in enumerate(layers)}
    if n_layers > 2:
        found["layers"] = layers[1:]
    if static is not None:
        found["layers, static context"] = [*layers[1:], *found["static context"]]
    if has_context:
        found["context"] = [(train.layer(n_layers), test.layer(n_layers))]
    rows = [finder.first().row("first sense", kinds)]
    return rows + [finder.senses(blocks).row(name, kinds) for name, blocks in found.items()]


def as_cells(rows: Sequence[SenseRow]) -> list[list[str]]:
    """The rows as text with a head, accuracies in per cent."""

    def shown(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f}"

    kinds = list(rows[0].by_kind)
    cells = [["", "all", "several senses", "by sense", *kinds, "parameter"]]
    for row in rows:
        accuracies = [row.accuracy, row.ambiguous_accuracy, row.macro_accuracy]
        accuracies += [row.by_kind[kind] for kind in kinds]
        parameter = "-" if row.parameter is None else f"{row.parameter:g}"
        cells.append([row.representation, *map(shown, accuracies), parameter])
    has_parameter = any(row.parameter is not None for row in rows)
    return cells if has_parameter else [row[:-1] for row in cells]


def with_static(
    occurrences: Occurrences, static: StaticVectors, window: int | None = 0
) -> Occurrences:
    """Occurrences with static vectors instead of a model's: one layer, (n, 1, static.dim).

    Args:
        occurrences: their own vectors are ignored.
        static: vectors of words; zeros for a word without a vector.
        window: 0: the vector of the word itself, which is the same for all its uses; n: the mean
            over n tokens on either side, without the word; None: over the sentence.
    """
    tokens = (token for n in np.unique(occurrences.positions[:, 0])
              for token in occurrences.sentences[n])  # fmt: skip
    types = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    table = static.table(list(types))
    has_vector: np.ndarray = np.any(table, axis=1)
    vectors = np.zeros((len(occurrences), 1, static.dim), np.float32)
    for k in range(len(occurrences)):
        left, right = occurrences.sides(k, window)
        around = [occurrences.word(k)] if window == 0 else [*left, *right]
        chosen = np.array([types[token] for token in around], np.int64)
        chosen = chosen[has_vector[chosen]]
        if len(chosen):
            vectors[k, 0] = table[chosen].mean(axis=0)
    return replace(occurrences, vectors=vectors, about={})


class _Evidence(NamedTuple):
    """What decides between the senses of a word, before kappa or the number of neighbours.

    Attributes:
        cosines: (m, c) of each asked use with the means of the senses, or with its nearest
            training uses, nearest first.
        senses: int (m, c): the sense of each of these.
        counts: (senses,): training uses of each sense, most frequent sense first.
    """

    cosines: np.ndarray
    senses: np.ndarray
    counts: np.ndarray

    def decide(self, settings: SenseSettings, parameter: float | None) -> np.ndarray:
        """The sense of each asked use: int (m,)."""
        scores = self.cosines
        if settings.method == "prior" and parameter is not None:
            scores = np.log(self.counts + settings.smoothing) + parameter * self.cosines
        elif settings.method in ("use", "votes"):
            k = 1 if parameter is None else int(parameter)
            scores = np.zeros((len(self.cosines), len(self.counts)))
            votes = np.maximum(self.cosines[:, :k], _SMALLEST_VOTE)
            np.add.at(scores, (np.arange(len(scores))[:, None], self.senses[:, :k]), votes)
        best = scores.max(axis=1, keepdims=True, initial=-np.inf)
        return np.argmax(scores >= best - _EQUAL, axis=1)


class _SenseFinder:
    """The training uses of each word, and the test uses that are compared with them."""

    def __init__(
        self, train: Occurrences, test: Occurrences, words: WordLists | None, how: SenseSettings
    ) -> None:
        if train.labels is None or not len(train):
            raise InputError("word sense: the training uses must have labels.")
        require_one_model(train, test)
        train_words, test_words = map(list, words or (train.words, test.words))
        if (len(train_words), len(test_words)) != (len(train), len(test)):
            raise InputError(
                f"words must have {len(train)} and {len(test)} entries, got {len(train_words)} and "
                f"{len(test_words)}."
            )
        self._settings, self._gold = how, test.labels
        self._labels = np.array(train.labels, object)
        self._train = indices_by_name(train_words)
        n_senses = {word: len(set(self._labels[own])) for word, own in self._train.items()}
        self._seen = np.array([word in n_senses for word in test_words], bool)
        self._ambiguous = np.array([n_senses.get(word, 0) > 1 for word in test_words], bool)
        if how.unseen == "similar" and not self._seen.all():
            self._replace_unseen(test_words, train.vectors[:, 0], test.vectors[:, 0])
        self._test = indices_by_name(test_words)
        # Contiguous parts of the training text, so that documents are rarely divided.
        self._fold = np.arange(len(train)) * _FOLDS // len(train)

    def _replace_unseen(self, words: list[str], train: np.ndarray, test: np.ndarray) -> None:
        """Replace each word without training uses by the training word nearest in layer 0."""
        names = list(self._train)
        means = np.stack([train[own].mean(axis=0) for own in self._train.values()])
        centre, unseen = means.mean(axis=0), np.flatnonzero(~self._seen)
        found = unit(test[unseen] - centre) @ unit(means - centre).T
        for row, best in zip(unseen, found.argmax(axis=1), strict=True):
            words[row] = names[best]

    def first(self) -> SenseResult:
        """The most frequent sense of each word."""
        return self._result(lambda ranks, own, rows: np.zeros(len(rows), np.int64))

    def senses(self, blocks: Blocks) -> SenseResult:
        """The sense of each test use."""
        settings, parameter = self._settings, None
        if settings.method == "prior":
            parameter = settings.kappa
            parameter = self._best_of(KAPPAS, blocks) if parameter is None else parameter
        elif settings.method == "votes":
            parameter = settings.neighbours or self._best_of(NEIGHBOURS, blocks)
        means = [train.mean(axis=0) for train, _ in blocks]

        def decide(ranks: np.ndarray, own: np.ndarray, rows: np.ndarray) -> np.ndarray:
            vectors = [(train[own], test[rows]) for train, test in blocks]
            return self._evidence(vectors, means, ranks).decide(settings, parameter)

        return self._result(decide, parameter)

    def _result(
        self,
        decide: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
        parameter: float | None = None,
    ) -> SenseResult:
        """`decide` gives the rank of the sense of some test uses of a word, from the ranks and the
        indices of its training uses.
        """
        common = Counter(self._labels.tolist()).most_common(1)[0][0]
        fallback = None if self._settings.unseen is None else common
        senses = np.full(len(self._seen), fallback, object)
        for word, rows in self._test.items():
            if word in self._train:
                own = self._train[word]
                names, ranks = _ranked(self._labels[own])
                senses[rows] = np.array(list(names), object)[decide(ranks, own, rows)]
        return SenseResult(senses.tolist(), self._gold, self._seen, self._ambiguous, parameter)

    def _best_of(self, grid: Sequence[float], blocks: Blocks) -> float:
        """The parameter with the highest accuracy on held-out folds of the training uses.

        The evidence of a word in a fold is computed once, for all parameters.
        """
        right = np.zeros(len(grid))
        for fold in range(_FOLDS):
            is_held_out = self._fold == fold
            if is_held_out.all():
                continue
            means = [train.mean(axis=0, where=~is_held_out[:, None]) for train, _ in blocks]
            for own in self._train.values():
                asked, known = own[is_held_out[own]], own[~is_held_out[own]]
                names, ranks = _ranked(self._labels[known])
                if not len(asked) or len(names) < 2:
                    continue
                vectors = [(train[known], train[asked]) for train, _ in blocks]
                evidence = self._evidence(vectors, means, ranks)
                gold = np.array([names.get(label, -1) for label in self._labels[asked]])
                right += [(evidence.decide(self._settings, p) == gold).sum() for p in grid]
        return grid[int(np.argmax(right))]

    def _evidence(
        self, blocks: Blocks, means: Sequence[np.ndarray], ranks: np.ndarray
    ) -> _Evidence:
        """Compare test uses with the training uses of one word, whose senses have these ranks."""
        scaled = []
        for (known, asked), mean in zip(blocks, means, strict=True):
            centre = {"all": mean, "word": known.mean(axis=0), None: 0 * mean}
            subtracted = centre[self._settings.centre]
            scaled.append((unit(known - subtracted), unit(asked - subtracted)))
        known, asked = (np.concatenate(sides, axis=1) for sides in zip(*scaled, strict=True))
        counts = np.bincount(ranks)
        if self._settings.method in ("mean", "prior"):
            sums = np.eye(len(counts))[ranks].T @ known  # (senses, dim)
            centres = unit(sums + self._settings.shrinkage * known.mean(axis=0))
            return _Evidence(unit(asked) @ centres.T, np.arange(len(counts)), counts)
        cosines = asked @ known.T / len(blocks)
        # Among equally near uses, those of frequent senses come first.
        by_rank = np.argsort(ranks, kind="stable")
        order = np.argsort(-np.round(cosines[:, by_rank] / _EQUAL), axis=1, kind="stable")
        nearest = by_rank[order[:, : max(*NEIGHBOURS, self._settings.neighbours or 1)]]
        return _Evidence(np.take_along_axis(cosines, nearest, axis=1), ranks[nearest], counts)


def _ranked(labels: np.ndarray) -> tuple[dict[str, int], np.ndarray]:
    """The senses by descending frequency with their ranks, earlier ones first among equals; and
    the rank of each label.
    """
    names = {sense: rank for rank, (sense, _) in enumerate(Counter(labels).most_common())}
    return names, np.array([names[label] for label in labels], np.int64)
