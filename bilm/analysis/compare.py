"""A word in two sentences: cosines by layer, and what they say about pairs with a gold answer.

    pairs = [pair_of_queries("they [play] cards", "his first [play]")]
    cosines(elmo, pairs)["layer 1"]

Pilehvar and Camacho-Collados (2019), "WiC: the Word-in-Context dataset for evaluating
context-sensitive meaning representations".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.core.errors import InputError
from bilm.data.query import parse_query
from bilm.extras import import_extra
from bilm.files.reading import PathLike, read_lines

if TYPE_CHECKING:
    from bilm.analysis.static_vectors import StaticVectors
    from bilm.use.elmo import ELMo

STATIC = "static"
_ANSWERS = {"t": 1.0, "true": 1.0, "f": 0.0, "false": 0.0}


class InSentence(NamedTuple):
    """A token in a sentence, by its 0-based position."""

    tokens: tuple[str, ...]
    position: int

    @property
    def word(self) -> str:
        """The token."""
        return self.tokens[self.position]


class WordPair(NamedTuple):
    """Two words in their sentences; usually two occurrences of one word."""

    first: InSentence
    second: InSentence


class Gold(NamedTuple):
    """Gold answers for pairs.

    Attributes:
        values: float64 (n,).
        is_binary: whether all are 0 (different meanings) or 1 (the same meaning).
    """

    values: np.ndarray
    is_binary: bool


class LayerResult(NamedTuple):
    """How well the cosines of a layer agree with gold answers.

    Attributes:
        name: such as "layer 1".
        n: pairs with a cosine; a static model may lack words.
        accuracy: proportion of these pairs that the threshold puts on the right side; None for
            graded answers.
        threshold: pairs with a higher cosine count as one meaning; None for graded answers.
        spearman: Spearman's correlation of cosines and answers; nan if all cosines are equal.
    """

    name: str
    n: int
    accuracy: float | None
    threshold: float | None
    spearman: float


def pair_of_queries(first: str, second: str) -> WordPair:
    """A pair of sentences such as "they [play] cards"; see `parse_query`."""
    return WordPair(InSentence(*parse_query(first)), InSentence(*parse_query(second)))


def read_word_pairs(path: PathLike) -> list[WordPair]:
    """Read pairs in WiC's form: word, part of speech, positions, and two sentences, by tabs.

    Positions are those of the two words in their sentences, as in 2-5, 0-based; tokens are
    separated by spaces.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: a line is not of this form (names file and line), or there is none.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        fields = line.split("\t")
        positions = fields[2].split("-") if len(fields) == 5 else []
        if len(positions) != 2 or not all(map(str.isdecimal, positions)):
            raise InputError(
                f"{path}, line {number}: must be a word, its part of speech, positions such as "
                "2-5, and two sentences, separated by tabs."
            )
        words = [
            InSentence(tuple(text.split()), int(position))
            for text, position in zip(fields[3:], positions, strict=True)
        ]
        for word in words:
            if word.position >= len(word.tokens):
                raise InputError(
                    f"{path}, line {number}: positions must be below the number of tokens, "
                    f"{len(word.tokens)}, got {word.position}."
                )
        pairs.append(WordPair(*words))
    if not pairs:
        raise InputError(f"{path}: there must be at least one pair.")
    return pairs


def read_gold(path: PathLike, n: int) -> Gold:
    """Read one answer per line: T or F, or a number.

    Args:
        n: the number of pairs.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: a line is neither, or there are not `n` lines.
    """
    values = []
    for number, line in enumerate(read_lines(path), start=1):
        text = line.strip()
        if not text:
            continue
        try:
            value = _ANSWERS[text.lower()] if text.lower() in _ANSWERS else float(text)
        except ValueError:
            value = np.nan
        if not np.isfinite(value):
            raise InputError(f"{path}, line {number}: must be T, F or a number, got {text[:40]!r}.")
        values.append(value)
    if len(values) != n:
        raise InputError(
            f"{path}: must have one answer for each of {n:,} pairs, got {len(values):,}."
        )
    return Gold(np.array(values), set(values) <= {0.0, 1.0})


def cosines(
    elmo: ELMo,
    pairs: Sequence[WordPair],
    static: StaticVectors | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, np.ndarray]:
    """The cosines of the words of pairs, by layer.

    Args:
        static: vectors that do not see the sentence, for comparison.
        progress: called with the number of pairs so far.

    Returns:
        float64 (pairs,) under "layer 0", "layer 1", ... and "average", and under "static" if
        `static` is given: there nan for words without a vector.
    """
    rows = []
    for one, other in _vectors(elmo, pairs):
        rows.append(_cosine(one, other))
        if progress is not None:
            progress(len(rows))
    names = [*(f"layer {layer}" for layer in range(elmo.n_layers)), "average"]
    result = dict(zip(names, np.array(rows).T, strict=True))
    if static is not None:
        result[STATIC] = np.array([_static_cosine(static, pair) for pair in pairs])
    return result


def _vectors(elmo: ELMo, pairs: Sequence[WordPair]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For both words of each pair all layers and their average: float64 (n_layers + 1, dim)."""
    words = [word for pair in pairs for word in pair]
    encoded = elmo.encode_iter(((word, word.tokens) for word in words), "all", with_ids=True)
    layers = (vectors[:, word.position].astype(np.float64) for word, vectors in encoded)
    found = (np.append(vectors, vectors.mean(axis=0, keepdims=True), axis=0) for vectors in layers)
    yield from zip(found, found, strict=True)


def _cosine(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Cosines of rows, without the digits that rounding errors change."""
    lengths = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    return np.round((one * other).sum(axis=-1) / np.maximum(lengths, 1e-12), 5)


def _static_cosine(static: StaticVectors, pair: WordPair) -> float:
    one, other = (_static_vector(static, word.word) for word in pair)
    return float("nan") if one is None or other is None else float(_cosine(one, other))


def _static_vector(static: StaticVectors, word: str) -> np.ndarray | None:
    vector = static.vector(word)
    return static.vector(word.lower()) if vector is None else vector


def best_threshold(values: np.ndarray, answers: np.ndarray) -> float:
    """The threshold above which most cosines have the answer 1 and below which most have 0.

    Args:
        values: cosines, float64 (n,), n >= 1.
        answers: 0 or 1, (n,).

    Returns:
        a number between two neighbouring cosines, or just beyond the lowest or highest.
    """
    order = np.argsort(values, kind="stable")
    values, answers = values[order], answers[order]
    # Right answers if the k lowest are 0: only where a cosine differs from the next one.
    right = np.append(0, np.cumsum(answers == 0)) + answers.sum() - np.append(0, np.cumsum(answers))
    bounds = np.concatenate([[values[0] - 1e-6], (values[1:] + values[:-1]) / 2, [values[-1]]])
    possible = np.concatenate([[True], values[1:] > values[:-1], [True]])
    return float(bounds[np.argmax(np.where(possible, right, -1))])


def agreement_with_gold(
    found: Mapping[str, np.ndarray],
    gold: Gold,
    thresholds: Mapping[str, float] | None = None,
) -> list[LayerResult]:
    """How well the cosines of each layer agree with gold answers.

    Args:
        found: from `cosines`.
        gold: the answers.
        thresholds: for each layer, for instance the `best_threshold` of training pairs. None takes
            for each half of the pairs (even and odd numbers) the best threshold of the other half;
            the reported threshold is then that of all pairs.

    Raises:
        InputError: there are fewer than 4 pairs; scipy is not installed.
    """
    stats = import_extra("scipy.stats", "Comparing with gold answers")
    results = []
    for name, values in found.items():
        known = np.isfinite(values)
        values, answers = values[known], gold.values[known]
        if len(values) < 4:
            raise InputError(f"{name}: at least 4 pairs must have a cosine, got {len(values)}.")
        accuracy = threshold = None
        if gold.is_binary:
            if thresholds is None:
                accuracy = _accuracy_of_halves(values, answers)
                threshold = best_threshold(values, answers)
            else:
                threshold = thresholds[name]
                accuracy = float(((values > threshold) == answers).mean())
        spearman = np.nan
        if np.ptp(values) > 0 and np.ptp(answers) > 0:
            spearman = float(stats.spearmanr(values, answers).statistic)
        results.append(LayerResult(name, len(values), accuracy, threshold, spearman))
    return results


def _accuracy_of_halves(values: np.ndarray, answers: np.ndarray) -> float:
    right = 0
    for own, other in ((0, 1), (1, 0)):
        threshold = best_threshold(values[other::2], answers[other::2])
        right += ((values[own::2] > threshold) == answers[own::2]).sum()
    return float(right / len(values))
