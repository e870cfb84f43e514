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
from typing import NamedTuple

import numpy as np

from bilm.analysis.occurrences import Layer, Occurrences, unit
from bilm.analysis.probing import WordVectors, static_table
from bilm.core.errors import InputError

METHODS = ("use", "votes", "mean", "prior")
CENTRES = ("all", "word", None)
UNSEEN = ("similar", "frequent", None)
WINDOW = 10
"""Tokens on either side whose mean static vector is the static context."""

KAPPAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
NEIGHBOURS = (1, 3, 5, 10, 20)
_FOLDS = 5
_EQUAL = 1e-5  # cosines that differ by less are equal, as those of one word in layer 0
_SMALLEST_VOTE = 1e-3


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

    Raises:
        InputError: a value is not one of the above, or below 0 (`neighbours`: 1).
    """

    method: str = "use"
    centre: str | None = "all"
    unseen: str | None = "similar"
    shrinkage: float = 0.0
    smoothing: float = 1.0
    kappa: float | None = None
    neighbours: int | None = None

    def __post_init__(self) -> None:
        allowed = {"method": METHODS, "centre": CENTRES, "unseen": UNSEEN}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise InputError(
                    f"{name} must be one of {', '.join(map(repr, values))}, got "
                    f"{getattr(self, name)!r}."
                )
        for name, least in {"shrinkage": 0, "smoothing": 0, "kappa": 0, "neighbours": 1}.items():
            value = getattr(self, name)
            if value is not None and not least <= value < np.inf:
                raise InputError(f"{name} must be a number >= {least}, got {value!r}.")


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
        """bool (n,): the sense is correct.

        Raises:
            InputError: the test uses have no labels.
        """
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
        """The mean over senses of the proportion of their test uses that are found."""
        _, of = np.unique(np.array(self.gold or (), object), return_inverse=True)
        return float((np.bincount(of, self.right) / np.bincount(of)).mean())

    def row(self, representation: str, kinds: Sequence[str] | None = None) -> SenseRow:
        """The scores; `kinds` divides the test uses, by part of speech for example."""
        right, of = self.right, np.array(kinds or (), object)
        by_kind = {str(kind): float(right[of == kind].mean()) for kind in sorted(set(of))}
        return SenseRow(
            representation, self.accuracy, self.ambiguous_accuracy, self.macro_accuracy, by_kind,
            self.parameter,
        )  # fmt: skip


class SenseRow(NamedTuple):
    """How well a representation finds senses.

    Attributes:
        representation: "first sense", "static", "static context", "layer 0", "layers", ...
        accuracy: on all test uses.
        ambiguous_accuracy: on those whose word has several senses in training; None without any.
        macro_accuracy: the mean over senses.
        by_kind: accuracy by part of speech or the like.
        parameter: kappa or the number of neighbours that was used.
    """

    representation: str
    accuracy: float
    ambiguous_accuracy: float | None
    macro_accuracy: float
    by_kind: Mapping[str, float] = {}
    parameter: float | None = None


# For the training and the test uses, what counts as the word of each.
Words = tuple[Sequence[str], Sequence[str]]
# Vectors of all training uses (n, dim) and all test uses (m, dim). Several are concatenated, each
# centred and scaled to length 1.
Blocks = Sequence[tuple[np.ndarray, np.ndarray]]


def nearest_sense(
    train: Occurrences,
    test: Occurrences,
    layer: Layer = "top",
    settings: SenseSettings = SenseSettings(),
    *,
    words: Words | None = None,
) -> SenseResult:
    """The senses of test uses, by a layer's vectors of the training uses of the same word.

    Between equally good senses, the one more frequent in training wins.

    Args:
        train: uses with their senses as labels.
        test: uses with vectors of the same model; only the accuracy needs labels.
        layer: the layer whose vectors are compared.
        settings: how.
        words: the words of both, such as lemmas; None takes the tokens in lower case.

    Raises:
        InputError: the training uses have no labels, or the arguments do not fit each other.
    """
    uses = _Uses(train, test, words, settings)
    return uses.senses([(train.layer(layer), test.layer(layer))])


def first_sense(
    train: Occurrences,
    test: Occurrences,
    *,
    unseen: str | None = "similar",
    words: Words | None = None,
) -> SenseResult:
    """The baseline: each word's most frequent sense in training.

    Args:
        train, test, words: as for `nearest_sense`.
        unseen: as for `SenseSettings`.
    """
    return _Uses(train, test, words, SenseSettings(unseen=unseen)).first()


def sense_table(
    train: Occurrences,
    test: Occurrences,
    settings: SenseSettings = SenseSettings(),
    *,
    static: WordVectors | None = None,
    words: Words | None = None,
    kinds: Sequence[str] | None = None,
) -> list[SenseRow]:
    """Table 5 of the paper: each layer next to baselines and combinations.

    Args:
        train, test, settings, words: as for `nearest_sense`; both have labels.
        static: vectors of words. "static" is the vector of the word, "static context" the mean
            over ten tokens on either side.
        kinds: for each test use its part of speech or the like, for `SenseRow.by_kind`.

    Returns:
        rows for "first sense"; "static" and "static context"; "layer 0", "layer 1", ...; "layers",
        all but layer 0 together; "layers, static context"; and "context", if the uses were encoded
        with it: the states before and after the word.

    Raises:
        InputError: as for `nearest_sense`.
    """
    uses = _Uses(train, test, words, settings)
    has_context = bool(train.about.get("context") and test.about.get("context"))
    n_layers = train.n_layers - has_context
    layers = [(train.layer(k), test.layer(k)) for k in range(n_layers)]
    found: dict[str, Blocks] = {}
    around: Blocks = []
    if static is not None:
        for name, window in (("static", 0), ("static context", WINDOW)):
            around = [(with_static(train, static, window).layer(0),
                       with_static(test, static, window).layer(0))]  # fmt: skip
            found[name] = around
    found |= {f"layer {k}": [pair] for k, pair in enumerate(layers)}
    if n_layers > 2:
        found["layers"] = layers[1:]
    if around:
        found["layers, static context"] = [*layers[1:], *around]
    if has_context:
        found["context"] = [(train.layer(n_layers), test.layer(n_layers))]
    rows = [uses.first().row("first sense", kinds)]
    return rows + [uses.senses(blocks).row(name, kinds) for name, blocks in found.items()]


def as_cells(rows: Sequence[SenseRow]) -> list[list[str]]:
    """The rows as text with a head, accuracies in per cent."""

    def shown(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f}"

    kinds = list(rows[0].by_kind)
    has_parameter = any(row.parameter is not None for row in rows)
    head = ["", "all", "several senses", "by sense", *kinds, *["parameter"] * has_parameter]
    cells = [
        [
            row.representation,
            *map(shown, (row.accuracy, row.ambiguous_accuracy, row.macro_accuracy)),
            *(shown(row.by_kind[kind]) for kind in kinds),
            *["-" if row.parameter is None else f"{row.parameter:g}"] * has_parameter,
        ]
        for row in rows
    ]
    return [head, *cells]


def with_static(
    occurrences: Occurrences, static: WordVectors, window: int | None = 0
) -> Occurrences:
    """Occurrences with static vectors instead of a model's: one layer, (n, 1, static.dim).

    Args:
        occurrences: their own vectors are ignored.
        static: vectors of words; zeros for a word without a vector.
        window: 0: the vector of the word itself, which is the same for all its uses; n: the mean
            over n tokens on either side, without the word; None: over the sentence.
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


def _around(occurrences: Occurrences, use: int, window: int | None) -> list[str]:
    sentence, position = occurrences.sentence(use), int(occurrences.positions[use, 1])
    if window == 0:
        return [sentence[position]]
    begin = 0 if window is None else max(0, position - window)
    end = len(sentence) if window is None else position + 1 + window
    return [*sentence[begin:position], *sentence[position + 1 : end]]


@dataclass(eq=False)
class _Evidence:
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


class _Uses:
    """The training uses of each word, and the test uses that are compared with them."""

    def __init__(
        self,
        train: Occurrences,
        test: Occurrences,
        words: Words | None,
        settings: SenseSettings,
    ) -> None:
        if train.labels is None or not len(train):
            raise InputError("word sense: the training uses must have labels.")
        shapes = train.vectors.shape[1:], test.vectors.shape[1:]
        if shapes[0] != shapes[1]:
            raise InputError(
                "word sense: both must have vectors of one model, got (layers, dim) "
                f"{shapes[0]} and {shapes[1]}."
            )
        self._settings, self._gold = settings, test.labels
        self._labels = np.array(train.labels, object)
        train_words, test_words = (
            [str(word) for word in given] for given in words or (train.words, test.words)
        )
        for name, given, uses in (("train", train_words, train), ("test", test_words, test)):
            if len(given) != len(uses):
                raise InputError(
                    f"words must have {len(uses)} entries for {name}, got {len(given)}."
                )
        self._train = _indices(train_words)
        n_senses = {word: len(set(self._labels[own])) for word, own in self._train.items()}
        self._seen = np.array([word in n_senses for word in test_words], bool)
        self._ambiguous = np.array([n_senses.get(word, 0) > 1 for word in test_words], bool)
        if settings.unseen == "similar" and not self._seen.all():
            test_words = self._similar(train, test, test_words)
        self._test = _indices(test_words)
        # Contiguous parts of the training text, so that a document is mostly in one of them.
        self._fold = np.arange(len(train)) * _FOLDS // len(train)

    def first(self) -> SenseResult:
        """The most frequent sense of each word."""
        return self._result(lambda names, own, rows: np.zeros(len(rows), np.int64))

    def senses(self, blocks: Blocks) -> SenseResult:
        """The sense of each test use."""
        settings, parameter = self._settings, None
        chosen = {"prior": (settings.kappa, KAPPAS), "votes": (settings.neighbours, NEIGHBOURS)}
        if settings.method in chosen:
            parameter, grid = chosen[settings.method]
            if parameter is None:
                parameter = self._cross_validated(blocks, grid)
        overall = [train.mean(axis=0) for train, _ in blocks]

        def decide(ranks: np.ndarray, own: np.ndarray, rows: np.ndarray) -> np.ndarray:
            vectors = [(train[own], test[rows]) for train, test in blocks]
            return self._evidence(vectors, overall, ranks).decide(settings, parameter)

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
        senses: list[str | None] = [fallback] * len(self._seen)
        for word, rows in self._test.items():
            if word in self._train:
                own = self._train[word]
                names, ranks = _ranked(self._labels[own])
                found = np.array(list(names), object)[decide(ranks, own, rows)]
                for row, sense in zip(rows, found, strict=True):
                    senses[row] = sense
        return SenseResult(senses, self._gold, self._seen, self._ambiguous, parameter)

    def _cross_validated(self, blocks: Blocks, grid: Sequence[float]) -> float:
        """The parameter with the highest accuracy on held-out folds of the training uses.

        The evidence of a fold is computed once, and serves all parameters.
        """
        right = np.zeros(len(grid))
        for fold in range(_FOLDS):
            is_held_out = self._fold == fold
            rest = len(is_held_out) - is_held_out.sum()
            overall = [
                (train.sum(axis=0) - train[is_held_out].sum(axis=0)) / max(rest, 1)
                for train, _ in blocks
            ]
            for own in self._train.values():
                asked, known = own[is_held_out[own]], own[~is_held_out[own]]
                if not len(asked) or not len(known):
                    continue
                names, ranks = _ranked(self._labels[known])
                if len(names) == 1:
                    continue
                vectors = [(train[known], train[asked]) for train, _ in blocks]
                evidence = self._evidence(vectors, overall, ranks)
                gold = np.array([names.get(label, -1) for label in self._labels[asked]])
                for k, parameter in enumerate(grid):
                    right[k] += (evidence.decide(self._settings, parameter) == gold).sum()
        return grid[int(np.argmax(right))]

    def _evidence(
        self, blocks: Blocks, overall: Sequence[np.ndarray], ranks: np.ndarray
    ) -> _Evidence:
        """Compare test uses with the training uses of one word, whose senses have these ranks."""
        parts = []
        for (known, asked), mean in zip(blocks, overall, strict=True):
            own = known.mean(axis=0)
            centre = {"all": mean, "word": own, None: np.zeros_like(own)}[self._settings.centre]
            parts.append((unit(known - centre), unit(asked - centre)))
        known, asked = (np.concatenate(sides, axis=1) for sides in zip(*parts, strict=True))
        counts = np.bincount(ranks)
        if self._settings.method in ("mean", "prior"):
            sums = np.stack([known[ranks == rank].sum(axis=0) for rank in range(len(counts))])
            means = sums + self._settings.shrinkage * known.mean(axis=0)
            return _Evidence(unit(asked) @ unit(means).T, np.arange(len(counts)), counts)
        cosines = asked @ known.T / len(blocks)
        # Among equally near uses, those of frequent senses come first.
        by_rank = np.argsort(ranks, kind="stable")
        order = np.argsort(-np.round(cosines[:, by_rank] / _EQUAL), axis=1, kind="stable")
        nearest = by_rank[order[:, : max(*NEIGHBOURS, self._settings.neighbours or 1)]]
        return _Evidence(np.take_along_axis(cosines, nearest, axis=1), ranks[nearest], counts)

    def _similar(self, train: Occurrences, test: Occurrences, words: list[str]) -> list[str]:
        """The test words; for those without training uses the training word nearest in layer 0."""
        names = list(self._train)
        means = np.stack([train.vectors[own, 0].mean(axis=0) for own in self._train.values()])
        centre = means.mean(axis=0)
        unseen = np.flatnonzero(~self._seen)
        found = unit(test.vectors[unseen, 0] - centre) @ unit(means - centre).T
        similar = list(words)
        for row, best in zip(unseen, found.argmax(axis=1), strict=True):
            similar[row] = names[best]
        return similar


def _indices(words: Sequence[str]) -> dict[str, np.ndarray]:
    """The indices of each word."""
    found: dict[str, list[int]] = {}
    for index, word in enumerate(words):
        found.setdefault(word, []).append(index)
    return {word: np.array(indices) for word, indices in found.items()}


def _ranked(labels: np.ndarray) -> tuple[dict[str, int], np.ndarray]:
    """The senses by descending frequency with their ranks, earlier ones first among equals; and
    the rank of each label.
    """
    names = {sense: rank for rank, (sense, _) in enumerate(Counter(labels).most_common())}
    return names, np.array([names[label] for label in labels])
