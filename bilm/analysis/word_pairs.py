"""A word in two sentences: cosines by layer, and how well they agree with gold answers.

Occurrences 2k and 2k + 1 of a sample are pair k.

Pilehvar and Camacho-Collados (2019), "WiC: the Word-in-Context dataset for evaluating
context-sensitive meaning representations".
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.analysis.occurrences import Occurrences, Sample, parse_target, unit
from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.files.reading import PathLike, read_lines
from bilm.progress import ShowStage, quiet

if TYPE_CHECKING:
    from bilm.analysis.static_vectors import StaticVectors
    from bilm.use.elmo import ELMo

_ANSWERS = {"t": 1.0, "true": 1.0, "f": 0.0, "false": 0.0}


class LayerResult(NamedTuple):
    """How well the cosines of a layer agree with gold answers.

    Accuracy and threshold are None for graded answers.
    """

    name: str
    n: int  # pairs with a cosine; words may be missing from a static model
    accuracy: float | None  # proportion of correct answers
    threshold: float | None  # cosines above it count as one meaning
    spearman: float  # nan if all cosines are equal


def pairs_of_queries(queries: Sequence[str]) -> Sample:
    """Every two of some sentences such as "they [play] cards"; see `parse_target`."""
    parsed = [parse_target(query)[:2] for query in queries]
    return _sample([found for pair in itertools.combinations(parsed, 2) for found in pair])


def read_word_pairs(path: PathLike) -> Sample:
    """Read pairs in WiC's form: word, part of speech, positions, and two sentences, by tabs.

    Positions are 0-based, as in 2-5 for the two sentences; tokens are separated by spaces.
    """
    words: list[tuple[tuple[str, ...], int]] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            _, _, positions, *texts = line.split("\t")
            numbers = list(map(int, positions.split("-")))
            pair = [(tuple(text.split()), k) for text, k in zip(texts, numbers, strict=True)]
            is_right = len(pair) == 2 and all(0 <= k < len(tokens) for tokens, k in pair)
        except ValueError:
            is_right = False
        if not is_right:
            raise InputError(
                f"{path}, line {number}: must be a word, its part of speech, positions such as "
                "2-5, and two sentences with tokens there, separated by tabs."
            )
        words += pair
    if not words:
        raise InputError(f"{path}: there must be at least one pair.")
    return _sample(words)


def _sample(words: Sequence[tuple[tuple[str, ...], int]]) -> Sample:
    positions = [(number, position) for number, (_, position) in enumerate(words)]
    return Sample([tokens for tokens, _ in words], np.array(positions, np.int64))


def read_answers(path: PathLike, n: int) -> np.ndarray:
    """Read the answers for `n` pairs, one per line: T (1) or F (0), or a number: float64 (n,)."""
    values = []
    for number, line in enumerate(read_lines(path), start=1):
        text = line.strip()
        if not text:
            continue
        try:
            values.append(_ANSWERS[text.lower()] if text.lower() in _ANSWERS else float(text))
        except ValueError:
            values.append(np.nan)
        if not np.isfinite(values[-1]):
            raise InputError(f"{path}, line {number}: must be T, F or a number, got {text[:40]!r}.")
    if len(values) != n:
        raise InputError(
            f"{path}: must have one answer for each of {n:,} pairs, got {len(values):,}."
        )
    return np.array(values)


def is_binary(gold: np.ndarray) -> bool:
    """Whether all answers are 0 (different meanings) or 1 (the same meaning)."""
    return set(gold.tolist()) <= {0.0, 1.0}


def cosines(
    elmo: ELMo,
    pairs: Sample,
    static: StaticVectors | None = None,
    progress: ShowStage = quiet,
) -> dict[str, np.ndarray]:
    """The cosines of pairs, float64 (pairs,), for "layer 0", ..., "average", and "static" if given.

    A static cosine is nan for words without a vector.
    """
    found = Occurrences.encoded(elmo, pairs, progress=progress)
    result = {f"layer {k}": _cosines(found.layer(k)) for k in range(elmo.n_layers)}
    result["average"] = _cosines(found.layer("average"))
    if static is not None:
        vectors = static.table([pairs.word(k) for k in range(len(pairs))])
        vectors[~vectors.any(axis=1)] = np.nan
        result["static"] = _cosines(vectors)
    return result


def _cosines(vectors: np.ndarray) -> np.ndarray:
    """Cosines of even and odd rows, rounded to hide differences in the last digits."""
    units = unit(vectors.astype(np.float64))
    return np.round((units[::2] * units[1::2]).sum(axis=1), 5)


def best_threshold(values: np.ndarray, answers: np.ndarray) -> float:
    """The threshold that separates the answers 1 (above) and 0 best: a number between two
    neighbouring cosines, or just beyond the lowest or highest."""
    distinct = np.unique(values)
    bounds = [distinct[:1] - 1e-6, (distinct[1:] + distinct[:-1]) / 2, distinct[-1:]]
    thresholds = np.concatenate(bounds)
    below = [np.searchsorted(np.sort(values[answers == k]), thresholds, "right") for k in (0, 1)]
    return float(thresholds[np.argmax(below[0] - below[1])])


def agreement_with_gold(
    found: Mapping[str, np.ndarray],
    gold: np.ndarray,
    thresholds: Mapping[str, float] | None = None,
) -> list[LayerResult]:
    """How well the cosines of each layer, from `cosines`, agree with gold answers.

    `thresholds` has one for each layer, such as the `best_threshold` of training pairs. None
    takes, for each half of the pairs (even and odd numbers), the best threshold of the other half;
    the reported threshold is the best one for all pairs.
    """
    stats = import_extra("scipy.stats", "Comparing with gold answers")
    results = []
    for name, values in found.items():
        known = np.isfinite(values)
        values, answers = values[known], gold[known]
        if len(values) < 4:
            raise InputError(f"{name}: at least 4 pairs must have a cosine, got {len(values)}.")
        accuracy = threshold = None
        if is_binary(gold):
            if thresholds is None:
                threshold = best_threshold(values, answers)
                bounds = np.empty(len(values))
                for own, other in itertools.permutations((slice(0, None, 2), slice(1, None, 2))):
                    bounds[own] = best_threshold(values[other], answers[other])
            else:
                threshold = thresholds[name]
                bounds = np.full(len(values), threshold)
            accuracy = float(((values > bounds) == answers).mean())
        spearman = np.nan
        if np.ptp(values) > 0 and np.ptp(answers) > 0:
            spearman = float(stats.spearmanr(values, answers).statistic)
        results.append(LayerResult(name, len(values), accuracy, threshold, spearman))
    return results
