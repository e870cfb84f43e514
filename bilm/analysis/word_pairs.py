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
    accuracy: float | None  # proportion of correct answers; a tie is half an answer
    threshold: float | None  # cosines above it count as one meaning
    spearman: float  # nan if all cosines are equal
    ties: int  # pairs whose cosine equals the threshold, or each other's if all cosines are equal


def pairs_of_queries(queries: Sequence[str]) -> Sample:
    """Every two of some sentences such as "they [play] cards"; see `parse_target`."""
    parsed = [parse_target(query)[:2] for query in queries]
    return _sample([found for pair in itertools.combinations(parsed, 2) for found in pair])


def read_word_pairs(path: PathLike) -> Sample:
    """Read pairs in WiC's form: word, part of speech, positions, and two sentences, by tabs.

    Positions are 0-based, as in 2-5 for the two sentences; tokens are separated by spaces. The
    tokens there must look like forms of the word: the two begin alike in at least half of the
    sentences, and no token is unlike a word with which the token before it begins alike.
    """
    words: list[tuple[tuple[str, ...], int]] = []
    n_unlike = 0
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            word, _, positions, *texts = line.split("\t")
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
        for tokens, k in pair:
            if not _begin_alike(word, tokens[k]):
                n_unlike += 1
                if k and _begin_alike(word, tokens[k - 1]):
                    raise InputError(
                        f"{path}, line {number}: positions must be 0-based, got {k}, which is "
                        f"{tokens[k]!r}, for a form of {word!r}."
                    )
        words += pair
    if not words:
        raise InputError(f"{path}: there must be at least one pair.")
    if n_unlike > len(words) / 2:
        raise InputError(
            f"{path}: positions must be those of the word in the first column, got "
            f"{n_unlike:,} of {len(words):,} tokens that begin unlike it."
        )
    return _sample(words)


def _begin_alike(word: str, token: str) -> bool:
    """Whether a token may be a form of a word: their first two letters, or first characters of
    which one is not of the Latin alphabet, are the same."""
    word, token = word.strip().lower(), token.lower()
    n = 2 if word.isascii() and token.isascii() else 1
    return word[:n] == token[:n]


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
    neighbouring cosines, or just beyond the lowest or highest. Pairs without a cosine (nan) are
    skipped."""
    has_cosine = np.isfinite(values)
    values, answers = values[has_cosine], answers[has_cosine]
    if not len(values):
        raise InputError("a threshold needs pairs with a cosine, got none.")
    distinct = np.unique(values)
    bounds = [distinct[:1] - 1e-6, (distinct[1:] + distinct[:-1]) / 2, distinct[-1:] + 1e-6]
    thresholds = np.concatenate(bounds)
    below = [np.searchsorted(np.sort(values[answers == k]), thresholds, "right") for k in (0, 1)]
    return float(thresholds[np.argmax(below[0] - below[1])])


def agreement_with_gold(
    cosines_by_layer: Mapping[str, np.ndarray],
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
    for name, values in cosines_by_layer.items():
        known = np.isfinite(values)
        values, answers = values[known], gold[known]
        if len(values) < 4:
            raise InputError(f"{name}: at least 4 pairs must have a cosine, got {len(values)}.")
        accuracy = threshold = None
        ties = len(values) if np.ptp(values) == 0 else 0
        if is_binary(gold):
            if thresholds is None:
                threshold = best_threshold(values, answers)
                bounds = np.empty(len(values))
                for own, other in itertools.permutations((slice(0, None, 2), slice(1, None, 2))):
                    bounds[own] = best_threshold(values[other], answers[other])
            else:
                threshold = thresholds[name]
                bounds = np.full(len(values), threshold)
            is_tie = values == bounds
            ties = ties or int(is_tie.sum())
            is_right = np.where(is_tie, 0.5, (values > bounds) == answers)
            accuracy = float(is_right.mean())
        spearman = np.nan
        if np.ptp(values) > 0 and np.ptp(answers) > 0:
            spearman = float(stats.spearmanr(values, answers).statistic)
        results.append(LayerResult(name, len(values), accuracy, threshold, spearman, ties))
    return results
