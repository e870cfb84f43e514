"""How well labels can be predicted from each layer: linear probes, baselines and a control task.

Peters et al. (2018), tables 5 and 6; with several sizes and the mix, figures 1 and 2. A probe can
also memorise words. In the control task of Hewitt and Liang (2019) each word has a random label;
selectivity, the accuracy minus the control task's accuracy, discounts memorised words.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.analysis.occurrences import Occurrences, indices_by_name, require_one_kind
from bilm.core.errors import InputError
from bilm.files.reading import PathLike, read_json_object
from bilm.files.writing import write_json

if TYPE_CHECKING:
    from bilm.analysis.static_vectors import StaticVectors

MAJORITY, WORD_MAJORITY, STATIC, MIX = "majority", "word's majority", "static", "mix"
_FORMAT = "bilm probe 1"

# Representation, training sentences (None is all), seed.
Key = tuple[str, int | None, int]


@dataclass(frozen=True)
class ProbeSettings:
    """The probes to fit."""

    sizes: Sequence[int | None] = (None,)  # numbers of training sentences; None is all
    seeds: Sequence[int] = (0, 1, 2)  # for drawing sentences, the control task and the order
    control: bool = True  # also measure the control task, which doubles the time
    min_steps: int = 1000  # lowest number of optimiser steps of each probe


@dataclass(frozen=True)
class ProbeCell:
    """The scores of one probe, or baseline, on the test text.

    The representation is "majority" (the most frequent label), "word's majority" (the most frequent
    label of each word; for unseen words, of all words), "static", "layer 0", "layer 1", ..., "mix".
    """

    representation: str
    size: int | None  # number of training sentences; None is all
    seed: int
    accuracy: float  # proportion of correct labels
    macro_f1: float  # mean F1 over the labels of the test text
    control_accuracy: float | None = None  # on the control task; None if not measured
    weights: list[float] | None = None  # of the layers in the mix, with sum 1
    gamma: float | None = None  # factor of the mix

    @property
    def key(self) -> Key:
        """Representation, size and seed."""
        return self.representation, self.size, self.seed

    @property
    def selectivity(self) -> float | None:
        """Accuracy minus accuracy on the control task."""
        return None if self.control_accuracy is None else self.accuracy - self.control_accuracy


def representations(n_layers: int, has_static: bool) -> list[str]:
    """The names of all representations, baselines first."""
    layers = [f"layer {k}" for k in range(n_layers)]
    return [MAJORITY, WORD_MAJORITY, *[STATIC] * has_static, *layers, MIX]


def keys(names: Iterable[str], settings: ProbeSettings) -> list[Key]:
    """The keys of all cells, in the order of `probe`."""
    product = itertools.product(settings.sizes, settings.seeds, names)
    return [(name, size, seed) for size, seed, name in product]


def check_sizes(sizes: Iterable[int | None], n_sentences: int) -> None:
    """Raise an InputError if a size exceeds the training text."""
    for size in sizes:
        if size is not None and not 1 <= size <= n_sentences:
            raise InputError(
                f"sizes must be at most {n_sentences:,}, the training sentences with labels, got "
                f"{size:,}."
            )


def probe(
    train: Occurrences,
    test: Occurrences,
    settings: ProbeSettings = ProbeSettings(),
    *,
    static: StaticVectors | None = None,
    done: Iterable[Key] = (),
) -> Iterator[ProbeCell]:
    """Fit and measure probes one after the other: a cell for each of `keys` not in `done`.

    Args:
        train, test: all labelled tokens of two texts, with their vectors.
        static: static vectors to compare with; zeros for words without one.

    Raises:
        InputError: labels are missing, the vectors differ in shape, or a size exceeds the training
            text; raised by the call, before the first cell.
    """
    if train.labels is None or test.labels is None:
        raise InputError("probe: the occurrences must have labels.")
    require_one_kind(train, test)
    check_sizes(settings.sizes, len(np.unique(train.positions[:, 0])))
    names = representations(train.n_layers, static is not None)
    earlier = set(done)
    missing = [key for key in keys(names, settings) if key not in earlier]
    task = _ProbeTask(train, test, static, settings.min_steps)
    return (task.cell(*key, control=settings.control) for key in missing)


class _ProbeTask:
    """The texts as arrays, and the probes, traced once for each shape."""

    def __init__(
        self, train: Occurrences, test: Occurrences, static: StaticVectors | None, min_steps: int
    ) -> None:
        from bilm.analysis.softmax_probe import SoftmaxProbe

        self._texts, self._static = (train, test), static
        words = [[text.word(k) for k in range(len(text))] for text in self._texts]
        labels = [list(text.labels or ()) for text in self._texts]
        self._types = sorted({*words[0], *words[1]})
        # The labels of the training text come first; a probe predicts only these.
        train_labels = sorted(set(labels[0]))
        names = [*train_labels, *sorted(set(labels[1]) - set(train_labels))]
        self._n_labels, self._n_names = len(train_labels), len(names)
        # int64 (n,) for each text
        self._words = [_numbered(self._types, tokens) for tokens in words]
        self._labels = [_numbered(names, values) for values in labels]
        self._probe_of = functools.cache(
            lambda shape: SoftmaxProbe(shape, self._n_labels, min_steps)
        )

    def cell(self, name: str, size: int | None, seed: int, control: bool) -> ProbeCell:
        """Measure one representation."""
        rows = self._draw(size, seed)
        if name in (MAJORITY, WORD_MAJORITY):
            answers = self._most_frequent(rows, by_word=name == WORD_MAJORITY)
            return ProbeCell(name, size, seed, *self._scores(answers))
        train, test = self._vectors(name)
        fitted = self._probe_of(train.shape[1:])
        fitted.fit(train, rows, self._labels[0][rows], seed)
        scores, mix = self._scores(fitted.predict(test)), fitted.learned_mix()
        control_accuracy = None
        if control:
            by_word = self._control_labels(seed)
            fitted.fit(train, rows, by_word[self._words[0]][rows], seed)
            control_accuracy = float((fitted.predict(test) == by_word[self._words[1]]).mean())
        return ProbeCell(name, size, seed, *scores, control_accuracy, *(mix or (None, None)))

    def _draw(self, size: int | None, seed: int) -> np.ndarray:
        """The tokens of `size` drawn sentences; a larger size includes the smaller ones."""
        sentences = self._texts[0].positions[:, 0]
        rng = np.random.default_rng((seed, 0))
        order = rng.permutation(np.unique(sentences))
        return np.flatnonzero(np.isin(sentences, order[:size]))

    def _control_labels(self, seed: int) -> np.ndarray:
        """A random label for each word, from the distribution of the labels."""
        counts = np.bincount(self._labels[0], minlength=self._n_labels)
        rng = np.random.default_rng((seed, 1))
        return rng.choice(self._n_labels, len(self._types), p=counts / counts.sum())

    def _most_frequent(self, rows: np.ndarray, by_word: bool) -> np.ndarray:
        """The most frequent label of the rows, or of each word; ties go to the first."""
        labels = self._labels[0][rows]
        answers = np.full(len(self._types), _mode(labels))
        if by_word:
            for word, indices in indices_by_name(self._words[0][rows]).items():
                answers[word] = _mode(labels[indices])
        return answers[self._words[1]]

    def _vectors(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of both texts: float32 (n, dim), for the mix (n, layers, dim)."""
        train, test = (text.vectors for text in self._texts)
        if name == MIX:
            return train, test
        if name == STATIC and self._static is not None:
            table = self._static.table(self._types)
            return table[self._words[0]], table[self._words[1]]
        layer = int(name.removeprefix("layer "))
        return train[:, layer], test[:, layer]

    def _scores(self, answers: np.ndarray) -> tuple[float, float]:
        """Accuracy, and macro-F1 over the labels of the test text."""
        gold, n = self._labels[1], self._n_names
        right = answers == gold
        n_gold, n_answers = np.bincount(gold, minlength=n), np.bincount(answers, minlength=n)
        occurs = n_gold > 0
        f1 = 2 * np.bincount(gold[right], minlength=n)[occurs] / (n_gold + n_answers)[occurs]
        return float(right.mean()), float(f1.mean())


def _mode(values: np.ndarray) -> int:
    return int(Counter(values.tolist()).most_common(1)[0][0])


def _numbered(names: Sequence[str], values: Sequence[str]) -> np.ndarray:
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers[value] for value in values], np.int64)


def read_cells(path: PathLike) -> tuple[dict[str, Any], list[ProbeCell]]:
    """The settings and cells of a file of results."""
    value = read_json_object(path, "file of results")
    try:
        if value["format"] != _FORMAT:
            raise ValueError("another format")
        return dict(value["settings"]), [ProbeCell(**cell) for cell in value["cells"]]
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path}: not a file of results of `bilm probe`, or damaged: {error}."
        ) from error


def write_cells(path: PathLike, settings: dict[str, Any], cells: Iterable[ProbeCell]) -> None:
    """Write a file of results, with JSON-able settings that the cells depend on."""
    values = [asdict(cell) for cell in cells]
    write_json(path, {"format": _FORMAT, "settings": settings, "cells": values})


class Summary(NamedTuple):
    """Mean and sample standard deviation (0 for a single number)."""

    mean: float
    deviation: float


def summarised(
    cells: Iterable[ProbeCell], measure: Callable[[ProbeCell], float | None]
) -> dict[tuple[str, int | None], Summary]:
    """A measure over the seeds, by representation and size; cells with None are skipped."""
    values: defaultdict[tuple[str, int | None], list[float]] = defaultdict(list)
    for cell in cells:
        if (value := measure(cell)) is not None:
            values[cell.representation, cell.size].append(value)
    return {key: _summary(numbers) for key, numbers in values.items()}


def mix_weights(cells: Iterable[ProbeCell]) -> dict[int | None, list[Summary]]:
    """The weight of each layer in the mix over the seeds, by size."""
    rows: defaultdict[int | None, list[list[float]]] = defaultdict(list)
    for cell in cells:
        if cell.weights is not None:
            rows[cell.size].append(cell.weights)
    return {size: [_summary(layer) for layer in zip(*weights, strict=True)]
            for size, weights in rows.items()}  # fmt: skip


def _summary(values: Sequence[float] | np.ndarray) -> Summary:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return Summary(float(np.mean(values)), deviation)
