"""What each layer knows of labels: linear probes beside baselines and a control task.

    train = Occurrences.encoded(elmo, read_labelled("train.conllu", "UPOS"))
    test = Occurrences.encoded(elmo, read_labelled("test.conllu", "UPOS"))
    for cell in probe(train, test, ProbeSettings(sizes=(100, 1000, None))):
        ...

A softmax on the vectors of one layer tells how much of the labels can be read off them linearly
(tables 5 and 6 of Peters et al., 2018, figures 1 and 2 with several sizes and the mix). What it
reads off may be the word itself: in the control task of Hewitt and Liang (2019) each word has a
random label, and the difference of the two accuracies, the selectivity, is what is not that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from bilm.core.errors import InputError

if TYPE_CHECKING:
    from bilm.analysis.occurrences import Occurrences
    from bilm.analysis.softmax_probe import Mix, SoftmaxProbe

MAJORITY, WORD_MAJORITY, STATIC, MIX = "majority", "word's majority", "static", "mix"


class WordVectors(Protocol):
    """What is needed of static vectors; `StaticVectors` has it."""

    dim: int

    def vector(self, word: str) -> np.ndarray | None:
        """float32 (dim,); None for a word that has none."""


@dataclass(frozen=True)
class ProbeSettings:
    """What is measured.

    Attributes:
        sizes: sentences of the training text that are drawn; None is all of them.
        seeds: each draws other sentences, other labels of the control task, another order.
        control: measure the control task too, which takes as long as the task.
        least_steps: steps in which each probe is fitted, at least; None is as many as
            `SoftmaxProbe` has.
    """

    sizes: Sequence[int | None] = (None,)
    seeds: Sequence[int] = (0, 1, 2)
    control: bool = True
    least_steps: int | None = None


@dataclass(frozen=True)
class ProbeCell:
    """One probe, or baseline, and what it gets right of the test text.

    Attributes:
        representation: "majority" (the most frequent label), "word's majority" (of each word; of
            all for words that were not seen), "static", "layer 0", "layer 1", ..., "mix".
        size: sentences it is fitted on; None is all.
        seed: of the draw.
        accuracy: of the labels of the test text.
        macro_f1: mean of the F1 of the labels that occur in the test text.
        control_accuracy: of the control task; None if it is not measured.
        weights: s_j of the mix, which add up to 1; None of all others.
        gamma: the factor of the mix.
    """

    representation: str
    size: int | None
    seed: int
    accuracy: float
    macro_f1: float
    control_accuracy: float | None = None
    weights: list[float] | None = None
    gamma: float | None = None

    @property
    def key(self) -> tuple[str, int | None, int]:
        """What tells it from the others."""
        return self.representation, self.size, self.seed

    @property
    def selectivity(self) -> float | None:
        """How much better the task is done than the control task."""
        return None if self.control_accuracy is None else self.accuracy - self.control_accuracy

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, from which `ProbeCell(**values)` makes it again."""
        return asdict(self)


def representations(n_layers: int, has_static: bool) -> list[str]:
    """The names of what is compared, baselines first."""
    static = [STATIC] if has_static else []
    return [MAJORITY, WORD_MAJORITY, *static, *(f"layer {k}" for k in range(n_layers)), MIX]


def keys(names: Iterable[str], settings: ProbeSettings) -> list[tuple[str, int | None, int]]:
    """The keys of all cells, in the order in which `probe` gives them."""
    names = list(names)
    return [
        (name, size, seed) for size in settings.sizes for seed in settings.seeds for name in names
    ]


def check_sizes(sizes: Iterable[int | None], n_sentences: int) -> None:
    """Raise an InputError unless so many sentences can be drawn."""
    for size in sizes:
        if size is not None and not 1 <= size <= n_sentences:
            raise InputError(
                f"sizes: {size:,} sentences are asked for; the training text has {n_sentences:,} "
                "with labels."
            )


def probe(
    train: Occurrences,
    test: Occurrences,
    settings: ProbeSettings = ProbeSettings(),
    *,
    static: WordVectors | None = None,
    done: Iterable[tuple[str, int | None, int]] = (),
) -> Iterator[ProbeCell]:
    """Fit probes and measure them, one after the other.

    In memory are the vectors that are given, those of `static` for the same tokens, and some
    thousand rows more.

    Args:
        train, test: all labelled tokens of two texts, with their vectors.
        settings: what is measured.
        static: vectors of words, to compare with; zeros for words that have none.
        done: keys of cells that are not wanted any more.

    Yields:
        a cell for each of `keys`, less those that are done.

    Raises:
        InputError: there are no labels, the vectors differ in shape, or there are fewer sentences
            than a size asks for.
    """
    if train.labels is None or test.labels is None:
        raise InputError("probe: occurrences with labels are expected.")
    if train.vectors.shape[1:] != test.vectors.shape[1:]:
        raise InputError(
            f"probe: vectors of one model are expected, not {train.vectors.shape[1:]} and "
            f"{test.vectors.shape[1:]} (layers, dim)."
        )
    check_sizes(settings.sizes, len(np.unique(train.positions[:, 0])))
    return _probe(train, test, settings, static, set(done))


def _probe(
    train: Occurrences,
    test: Occurrences,
    settings: ProbeSettings,
    static: WordVectors | None,
    done: set[tuple[str, int | None, int]],
) -> Iterator[ProbeCell]:
    job = _Job(train, test, static, settings.least_steps)
    for key in keys(representations(train.n_layers, static is not None), settings):
        if key not in done:
            yield job.cell(*key, control=settings.control)


class _Labels(NamedTuple):
    """A labelling of both texts: int64 (n,), -1 for a label that is not in the training text."""

    train: np.ndarray
    test: np.ndarray


class _Job:
    """The texts and their labels, and the probes, each of which is made once."""

    def __init__(
        self,
        train: Occurrences,
        test: Occurrences,
        static: WordVectors | None,
        least_steps: int | None,
    ) -> None:
        self._least_steps = least_steps
        self._texts = train, test
        self._static = static
        words = [[text.word(k) for k in range(len(text))] for text in self._texts]
        types = {word: k for k, word in enumerate(sorted({*words[0], *words[1]}))}
        self._types = list(types)
        self._words = _Labels(*(np.array([types[word] for word in text]) for text in words))
        names = {label: k for k, label in enumerate(sorted(set(train.labels or ())))}
        self._labels = _Labels(
            *(np.array([names.get(label, -1) for label in text.labels or ()]) for text in
              self._texts)
        )  # fmt: skip
        # Of test labels that were never seen, one number more tells them from each other.
        seen = set(names)
        unseen = sorted({label for label in test.labels or () if label not in seen})
        self._names = {**names, **{label: len(names) + k for k, label in enumerate(unseen)}}
        self._n_labels = len(names)
        self._sentences = np.unique(train.positions[:, 0])
        self._probes: dict[tuple[int, ...], SoftmaxProbe] = {}
        self._static_vectors: tuple[np.ndarray, np.ndarray] | None = None

    def cell(self, name: str, size: int | None, seed: int, control: bool) -> ProbeCell:
        """Measure one representation."""
        rows = self._drawn(size, seed)
        if name in (MAJORITY, WORD_MAJORITY):
            answers = self._most_frequent(rows, by_word=name == WORD_MAJORITY)
            return ProbeCell(name, size, seed, *self._scores(answers))
        train, test = self._vectors(name)
        fitted = self._probe_of(train.shape[1:])
        fitted.fit(train, rows, self._labels.train[rows], seed)
        scores = self._scores(fitted.predict(test))
        mix: Mix | None = fitted.learned_mix()
        control_accuracy = None
        if control:
            labels = self._control_labels(seed)
            fitted.fit(train, rows, labels.train[rows], seed)
            control_accuracy = float((fitted.predict(test) == labels.test).mean())
        return ProbeCell(name, size, seed, *scores, control_accuracy, *(mix or (None, None)))

    def _drawn(self, size: int | None, seed: int) -> np.ndarray:
        """The tokens of sentences that are drawn; those of a smaller size are among them."""
        positions = self._texts[0].positions
        if size is None:
            return np.arange(len(positions))
        rng = np.random.default_rng((seed, 0))
        order = rng.permutation(self._sentences)
        return np.flatnonzero(np.isin(positions[:, 0], order[:size]))

    def _control_labels(self, seed: int) -> _Labels:
        """A label for each word, drawn with the frequencies that the labels have."""
        counts = np.bincount(self._labels.train, minlength=self._n_labels)
        rng = np.random.default_rng((seed, 1))
        of_word = rng.choice(self._n_labels, len(self._types), p=counts / counts.sum())
        return _Labels(of_word[self._words.train], of_word[self._words.test])

    def _most_frequent(self, rows: np.ndarray, by_word: bool) -> np.ndarray:
        """The most frequent label of the rows, or of each word in them; the first of equals."""
        labels = self._labels.train[rows]
        common = Counter(labels.tolist()).most_common(1)[0][0]
        of_word = np.full(len(self._types), common)
        if by_word:
            counts: dict[int, Counter[int]] = {}
            for word, label in zip(self._words.train[rows].tolist(), labels.tolist(), strict=True):
                counts.setdefault(word, Counter())[label] += 1
            for word, counter in counts.items():
                of_word[word] = counter.most_common(1)[0][0]
        return of_word[self._words.test]

    def _vectors(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of both texts: float32 (n, dim), of the mix (n, layers, dim)."""
        if name == MIX:
            return self._texts[0].vectors, self._texts[1].vectors
        if name != STATIC:
            layer = int(name.removeprefix("layer "))
            return self._texts[0].vectors[:, layer], self._texts[1].vectors[:, layer]
        if self._static_vectors is None:
            table = static_table(self._static, self._types)
            self._static_vectors = table[self._words.train], table[self._words.test]
        return self._static_vectors

    def _probe_of(self, shape: tuple[int, ...]) -> SoftmaxProbe:
        if shape not in self._probes:
            from bilm.analysis.softmax_probe import SoftmaxProbe

            self._probes[shape] = SoftmaxProbe(shape, self._n_labels, self._least_steps)
        return self._probes[shape]

    def _scores(self, answers: np.ndarray) -> tuple[float, float]:
        """Accuracy, and macro-F1 over the labels of the test text."""
        right = answers == self._labels.test
        gold = np.array([self._names[label] for label in self._texts[1].labels or ()])
        n = len(self._names)
        n_right = np.bincount(gold[right], minlength=n)
        n_gold, n_answers = np.bincount(gold, minlength=n), np.bincount(answers, minlength=n)
        occurs = n_gold > 0
        f1 = 2 * n_right[occurs] / (n_gold + n_answers)[occurs]
        return float(right.mean()), float(f1.mean())


def static_table(static: WordVectors | None, words: Sequence[str]) -> np.ndarray:
    """The static vectors of words: float32 (words, dim), zeros for those that have none."""
    if static is None:
        raise InputError("static: vectors of words are expected.")
    table = np.zeros((len(words), static.dim), np.float32)
    for k, word in enumerate(words):
        vector = static.vector(word)
        if vector is not None:
            table[k] = vector
    return table


class Summary(NamedTuple):
    """Mean and deviation over seeds.

    Attributes:
        mean: of the cells.
        deviation: standard deviation with n - 1; 0 of one cell.
        n: how many cells.
    """

    mean: float
    deviation: float
    n: int


def summary(values: Iterable[float]) -> Summary | None:
    """Mean and standard deviation of numbers; None of none."""
    numbers = np.array(list(values), np.float64)
    if not len(numbers):
        return None
    deviation = float(numbers.std(ddof=1)) if len(numbers) > 1 else 0.0
    return Summary(float(numbers.mean()), deviation, len(numbers))


def summarised(
    cells: Iterable[ProbeCell], measure: Callable[[ProbeCell], float | None]
) -> dict[tuple[str, int | None], Summary]:
    """What `measure` says of the cells, over their seeds, by representation and size."""
    values: dict[tuple[str, int | None], list[float]] = {}
    for cell in cells:
        value = measure(cell)
        if value is not None:
            values.setdefault((cell.representation, cell.size), []).append(value)
    found = {key: summary(numbers) for key, numbers in values.items()}
    return {key: value for key, value in found.items() if value is not None}


def mix_weights(cells: Iterable[ProbeCell]) -> dict[int | None, list[Summary]]:
    """The weight of each layer in the mix, over the seeds, by size."""
    rows: dict[int | None, list[list[float]]] = {}
    for cell in cells:
        if cell.weights is not None:
            rows.setdefault(cell.size, []).append(cell.weights)
    summaries = {
        size: [summary(layer) for layer in zip(*weights, strict=True)]
        for size, weights in rows.items()
    }
    return {size: [value for value in row if value] for size, row in summaries.items()}
