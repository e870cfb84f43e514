"""A word in two sentences: cosines by layer, and how well they agree with gold answers.

Occurrences 2k and 2k + 1 of a sample are pair k.

Pilehvar and Camacho-Collados (2019), "WiC: the Word-in-Context dataset for evaluating
context-sensitive meaning representations".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
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


def pairs_of_queries(
    queries: Sequence[str], split: Callable[[str], list[str]] = str.split
) -> Sample:
    """All pairs of sentences such as "they [play] cards"; see `parse_target`."""
    parsed = [parse_target(query, split)[:2] for query in queries]
    return _sample([word for pair in itertools.combinations(parsed, 2) for word in pair])


def read_word_pairs(path: PathLike) -> Sample:
    """Read pairs in WiC's form: word, part of speech, positions, two sentences; tabs between them.

    Positions are 0-based, as in 2-5 for the two sentences; tokens are separated by spaces. The
    tokens at the positions must look like forms of the word: at least half of them begin like it.
    If one does not but the token before it does, the positions are taken for 1-based, an error.
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
                "2-5, and two sentences with tokens at these positions, separated by tabs."
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
            f"{path}: tokens at the positions must begin like the word in the first column, got "
            f"{n_unlike:,} of {len(words):,} that do not."
        )
    return _sample(words)


def _begin_alike(word: str, token: str) -> bool:
    """Whether a token may be a form of a word: their first two characters are the same, or the
    first one if either is not ASCII."""
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
    occurrences = Occurrences.encoded(elmo, pairs, progress=progress)
    by_layer = {f"layer {k}": _cosines(occurrences.layer(k)) for k in range(elmo.n_layers)}
    by_layer["average"] = _cosines(occurrences.layer("average"))
    if static is not None:
        vectors = static.table([pairs.word(k) for k in range(len(pairs))])
        vectors[~vectors.any(axis=1)] = np.nan
        by_layer["static"] = _cosines(vectors)
    return by_layer


def _cosines(vectors: np.ndarray) -> np.ndarray:
    """Cosines of even and odd rows, rounded to hide differences in the last digits."""
    units = unit(vectors.astype(np.float64))
    return np.round((units[::2] * units[1::2]).sum(axis=1), 5)


def best_threshold(values: np.ndarray, answers: np.ndarray) -> float:
    """The threshold that best separates the answers 1 (above) and 0.

    It lies between two neighbouring cosines, or just beyond the lowest or highest. Pairs without a
    cosine (nan) are skipped.
    """
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

    `thresholds` are by layer, such as the `best_threshold` of training pairs. If it is None, each
    half of the pairs (even and odd numbers) is compared with the best threshold of the other half,
    and the reported threshold is the best one for all pairs.
    """
    stats = import_extra("scipy.stats", "Comparing with gold answers")
    results = []
    for name, values in cosines_by_layer.items():
        has_cosine = np.isfinite(values)
        values, answers = values[has_cosine], gold[has_cosine]
        if len(values) < 4:
            raise InputError(f"{name}: at least 4 pairs must have a cosine, got {len(values)}.")
        accuracy = threshold = None
        ties = len(values) if np.ptp(values) == 0 else 0
        if is_binary(gold):
            if thresholds is None:
                threshold = best_threshold(values, answers)
                bounds = np.empty(len(values))
                for half, other in itertools.permutations((slice(0, None, 2), slice(1, None, 2))):
                    bounds[half] = best_threshold(values[other], answers[other])
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
