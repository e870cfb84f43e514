"""How well labels can be predicted from each layer: linear probes and baselines.

Peters et al. (2018), table 6; with several sizes and the mix, figures 1 and 2. A probe can also
memorise words, so that the accuracy on words that it has not seen stands apart.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.analysis.occurrences import Occurrences, comparison_form, require_one_kind
from bilm.analysis.pictures import new_figure
from bilm.core.errors import InputError, import_extra
from bilm.progress import ShowStage, counted, quiet

if TYPE_CHECKING:
    from bilm.analysis.static_vectors import StaticVectors

MAJORITY, WORD_MAJORITY, STATIC, MIX = "majority", "word's majority", "static", "mix"

_BATCH = 256
_EPOCHS = 10
_MIN_STEPS = 1000  # small training texts get more epochs, because the mix needs many steps
_LEARNING_RATE = 0.01
_DECAYS = (0.9, 0.999)  # of Adam's averages
_ROWS_AT_ONCE = 4096
_STANDARDISED = 20_000  # rows, at most, whose moments standardise the dimensions
_RESAMPLES = 1000


class Score(NamedTuple):
    """A proportion with its 95 % interval, by a bootstrap over test sentences and seeds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ProbeRow:
    """The scores of one representation, or baseline, on the test text.

    The representation is "majority" (the most frequent label), "word's majority" (the most frequent
    label of each word; for unseen words, of all words), "static", "layer 0", "layer 1", ..., "mix".
    """

    representation: str
    size: int | None  # number of training sentences; None is all
    accuracy: Score  # proportion of correct labels
    unseen: Score | None  # of words that the training sentences lack; None if there are none
    macro_f1: float  # mean F1 over the labels of the test text, mean over the seeds
    by_seed: list[float]  # accuracy with each seed
    weights: list[float] | None = None  # of the layers in the mix, with sum 1; mean over the seeds
    gamma: float | None = None  # factor of the mix


def probe(
    train: Occurrences,
    test: Occurrences,
    *,
    sizes: Sequence[int | None] = (None,),
    seeds: Sequence[int] = (0, 1, 2),
    static: StaticVectors | None = None,
    progress: ShowStage = quiet,
) -> list[ProbeRow]:
    """Fit and measure a probe on each representation.

    Args:
        train, test: all labelled tokens of two texts, with their vectors.
        sizes: numbers of training sentences; None is all.
        seeds: each draws other training sentences; with all sentences, only the first is used.
        static: static vectors to compare with; zeros for words without one.
        progress: called with a `Stage` of probes.

    Raises:
        InputError: labels are missing, the vectors differ in shape, or a size exceeds the training
            text.
    """
    if train.labels is None or test.labels is None:
        raise InputError("probe: the occurrences must have labels.")
    require_one_kind(train, test)
    check_sizes(sizes, len(train.sentences))
    task = _Task(train, test, static)
    names = [MAJORITY, WORD_MAJORITY, *[STATIC] * (static is not None)]
    names += [*(f"layer {number}" for number in range(train.n_layers)), MIX]
    cells = list(itertools.product(sizes, names))
    rows = (task.row(name, size, seeds if size else seeds[:1]) for size, name in cells)
    return list(counted(rows, progress, "probing", len(cells), "probes"))


def check_sizes(sizes: Sequence[int | None], n_sentences: int) -> None:
    """Raise an InputError if a size exceeds the training text."""
    for size in sizes:
        if size is not None and not 1 <= size <= n_sentences:
            raise InputError(
                f"sizes must be at most {n_sentences:,}, the training sentences with labels, got "
                f"{size:,}."
            )


class _Task:
    """Both texts as arrays."""

    def __init__(self, train: Occurrences, test: Occurrences, static: StaticVectors | None) -> None:
        self._train, self._test, self._static = train, test, static
        # The labels of the training text come first; a probe predicts only these.
        names = dict.fromkeys([*sorted(set(train.labels or ())), *(test.labels or ())])
        numbers = {name: number for number, name in enumerate(names)}
        self._labels, self._gold = (
            np.array([numbers[label] for label in text.labels or ()]) for text in (train, test)
        )
        self._n_labels = len(set(train.labels or ()))
        _, self._sentence = np.unique(test.positions[:, 0], return_inverse=True)

    def row(self, name: str, size: int | None, seeds: Sequence[int]) -> ProbeRow:
        """Measure one representation."""
        answers, unseen, mixes = [], [], []
        predict = self._baseline if name in (MAJORITY, WORD_MAJORITY) else self._probe
        for seed in seeds:
            drawn = np.random.default_rng(seed).permutation(len(self._train.sentences))[:size]
            rows = np.flatnonzero(np.isin(self._train.positions[:, 0], drawn))
            labels, mix = predict(name, rows, seed)
            answers.append(labels)
            mixes.append(mix)
            words = {comparison_form(w) for k in drawn for w in self._train.sentences[k]}
            unseen.append([word not in words for word in self._test.words])
        right = np.array(answers) == self._gold  # bool (seeds, n)
        everywhere = np.ones_like(right)
        mix = np.mean(mixes, axis=0).tolist()
        f1_score = import_extra("sklearn.metrics", "bilm probe").f1_score
        settings = {"labels": np.unique(self._gold), "average": "macro"}
        macro_f1 = [f1_score(self._gold, labels, **settings) for labels in answers]
        return ProbeRow(
            name,
            size,
            self._score(right, everywhere),
            self._score(right, np.array(unseen)) if np.any(unseen) else None,
            float(np.mean(macro_f1)),
            right.mean(axis=1).tolist(),
            *((mix[1:], mix[0]) if name == MIX else ()),
        )

    def _baseline(self, name: str, rows: np.ndarray, seed: int) -> tuple[np.ndarray, list[float]]:
        """The most frequent label of the rows, or of each word; ties go to the first."""
        by_word: dict[str, Counter[int]] = {}
        for row in rows if name == WORD_MAJORITY else ():
            by_word.setdefault(self._train.word(row), Counter())[int(self._labels[row])] += 1
        modes = {word: counts.most_common(1)[0][0] for word, counts in by_word.items()}
        mode = Counter(self._labels[rows].tolist()).most_common(1)[0][0]
        test = self._test
        return np.array([modes.get(test.word(k), mode) for k in range(len(test))]), []

    def _probe(self, name: str, rows: np.ndarray, seed: int) -> tuple[np.ndarray, list[float]]:
        """Predictions (n,) of a probe, and gamma with the weights of its layers."""
        train, test = (self._vectors(name, text) for text in (self._train, self._test))
        fitted = SoftmaxProbe(train, rows, self._labels[rows], self._n_labels, seed)
        return fitted.predict(test), [fitted.gamma, *fitted.weights]

    def _vectors(self, name: str, text: Occurrences) -> np.ndarray:
        """The vectors of a text: float32 (n, layers, dim)."""
        if name == STATIC and self._static is not None:
            return self._static.table([*map(text.word, range(len(text)))])[:, np.newaxis]
        if name == MIX:
            return text.vectors
        layer = int(name.removeprefix("layer "))
        return text.vectors[:, layer : layer + 1]

    def _score(self, right: np.ndarray, counted: np.ndarray) -> Score:
        """The proportion of right answers among the counted ones, both bool (seeds, n)."""
        n = self._sentence.max() + 1
        hits, totals = (
            np.stack([np.bincount(self._sentence, row, n) for row in values])
            for values in (right & counted, counted)
        )  # (seeds, sentences)
        rng = np.random.default_rng(0)
        ratios = []
        for _ in range(_RESAMPLES):
            seeds = np.bincount(rng.integers(len(right), size=len(right)), minlength=len(right))
            sentences = np.bincount(rng.integers(n, size=n), minlength=n)
            if total := seeds @ totals @ sentences:
                ratios.append(seeds @ hits @ sentences / total)
        low, high = np.quantile(ratios, (0.025, 0.975))
        return Score(float(hits.sum() / totals.sum()), float(low), float(high))


class SoftmaxProbe:
    """A softmax without a hidden layer on the mix of layers, equation (1) of the paper.

    The objective is scikit-learn's for `LogisticRegression` with C = 1: the mean cross-entropy plus
    |gamma W|^2 / (2 n). Adam minimises it on batches, because scikit-learn is too slow for 200,000
    tokens of 1,024 dimensions, and does not learn the mix. Each dimension is standardised.

    Args:
        vectors: float32 (n, layers, dim); with one layer, gamma is 1.
        rows: the training rows (m,).
        labels: their 0-based labels (m,).
        seed: sets the order of the rows.

    Attributes:
        weights: of the layers, with sum 1.
        gamma: factor of the mix.
    """

    def __init__(
        self, vectors: np.ndarray, rows: np.ndarray, labels: np.ndarray, n_labels: int, seed: int
    ) -> None:
        n_layers, dim = vectors.shape[1:]
        rng = np.random.default_rng(seed)
        sample = vectors[rng.permutation(rows)[:_STANDARDISED]].astype(np.float64)
        self._mean = sample.mean(axis=0).astype(np.float32)
        deviation = sample.std(axis=0)
        is_constant = deviation <= 1e-6 + 1e-5 * np.abs(self._mean)
        self._deviation = np.where(is_constant, 1, deviation).astype(np.float32)
        self._W = np.zeros((dim, n_labels), np.float32)
        self._b = np.zeros(n_labels, np.float32)
        self._w, self._gamma = np.zeros(n_layers, np.float32), np.ones(1, np.float32)
        trained = [self._W, self._b, self._w, self._gamma][: 4 if n_layers > 1 else 2]
        averages = [np.zeros((2, *array.shape), np.float32) for array in trained]
        n, size = len(rows), min(_BATCH, len(rows))
        n_steps = max(_MIN_STEPS, _EPOCHS * n // _BATCH)
        order = np.concatenate([rng.permutation(n) for _ in range(-(-size * n_steps // n))])
        for step, batch in enumerate(order[: size * n_steps].reshape(n_steps, size)):
            gradients = self._gradients(vectors[rows[batch]], labels[batch], 1 / n)
            # A cosine from the highest learning rate to zero.
            rate = _LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / n_steps))
            rate *= (1 - _DECAYS[1] ** (step + 1)) ** 0.5 / (1 - _DECAYS[0] ** (step + 1))
            for array, gradient, (mean, square) in zip(trained, gradients, averages, strict=False):
                mean += (1 - _DECAYS[0]) * (gradient - mean)
                square += (1 - _DECAYS[1]) * (gradient * gradient - square)
                array -= np.float32(rate) * mean / (np.sqrt(square) + 1e-7)
        self.weights: list[float] = _softmax(self._w).tolist()
        self.gamma = float(self._gamma[0])

    def predict(self, vectors: np.ndarray) -> np.ndarray:
        """The likeliest label of each row of (n, layers, dim): int64 (n,)."""
        blocks = (vectors[k : k + _ROWS_AT_ONCE] for k in range(0, len(vectors), _ROWS_AT_ONCE))
        return np.concatenate([self._read(block)[2].argmax(axis=1) for block in blocks])

    def _read(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Standardised layers (m, layers, dim), their mix (m, dim) and logits (m, labels)."""
        layers = (vectors - self._mean) / self._deviation
        mix = _softmax(self._w) @ layers
        return layers, mix, self._gamma * mix @ self._W + self._b

    def _gradients(
        self, vectors: np.ndarray, labels: np.ndarray, penalty: float
    ) -> tuple[np.ndarray, ...]:
        """The gradients of W, b, the weights before their softmax, and gamma."""
        layers, mix, logits = self._read(vectors)
        errors = _softmax(logits)  # (m, labels)
        errors[np.arange(len(labels)), labels] -= 1
        errors /= len(labels)
        W, weights, gamma = self._W, _softmax(self._w), self._gamma
        by_mix = errors @ W.T  # (m, dim)
        by_weight = gamma * (layers @ by_mix[:, :, np.newaxis]).sum(axis=(0, 2))
        return (
            gamma * mix.T @ errors + penalty * gamma**2 * W,
            errors.sum(axis=0),
            weights * (by_weight - weights @ by_weight),
            np.sum(by_mix * mix) + penalty * gamma * np.sum(W**2),
        )


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def probe_chart(rows: Sequence[ProbeRow], n_sentences: int) -> Any:
    """A figure of the accuracy by training size with 95 % intervals, a line per representation,
    and of the weights of the mix.

    Args:
        rows: from `probe`.
        n_sentences: number of sentences of the complete training text.
    """
    figure = new_figure(9, 4)
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    sizes = list(dict.fromkeys(row.size or n_sentences for row in rows))
    # The majority baseline is so low that the other curves would be indistinguishable.
    for name in dict.fromkeys(
        row.representation for row in rows if row.representation != "majority"
    ):
        curve = [row for row in rows if row.representation == name]
        x = [row.size or n_sentences for row in curve] if len(sizes) > 1 else [name]
        values, lows, highs = 100 * np.transpose([row.accuracy for row in curve])
        # A mean over seeds can lie outside its interval by rounding.
        errors = np.maximum([values - lows, highs - values], 0)
        left.errorbar(x, values, errors, marker="o", label=name)
    left.set_ylabel("accuracy, %")
    left.grid(alpha=0.3)
    if len(sizes) > 1:
        left.set_xscale("log")
        left.set_xticks(sizes, [f"{size:,}" for size in sizes])
        left.minorticks_off()
        left.set_xlabel("training sentences")
        left.legend(fontsize="small")
    else:
        left.tick_params(axis="x", rotation=30)
    mixes = [row for row in rows if row.weights is not None]
    width = 0.8 / len(mixes)
    for k, row in enumerate(mixes):
        layers = np.arange(len(row.weights or ()))
        label = f"{row.size or n_sentences:,} sentences"
        right.bar(layers + (k + 0.5) * width - 0.4, row.weights, width, label=label)
        right.set_xticks(layers, [f"layer {number}" for number in layers])
    right.set_ylabel("weight in the mix")
    right.margins(y=0.3)  # space for the legend above the bars
    right.legend(fontsize="small")
    return figure
