"""Minimal pairs: whether a language model prefers the acceptable sentence of two.

Warstadt et al. (2020), "BLiMP: The Benchmark of Linguistic Minimal Pairs for English".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bilm.core.errors import InputError, shown
from bilm.files.reading import PathLike, parse_json, read_lines
from bilm.use.predictor import Predictor, SentenceScore

PHENOMENON_FIELDS = ("linguistics_term", "phenomenon", "UID")
"""Fields that may name the phenomenon of a pair; the first existing field is used."""

DIRECTIONS = ("forward", "backward", "both")


class MinimalPair(NamedTuple):
    """An acceptable sentence, a minimally different unacceptable one, and the tested phenomenon (""
    if unknown)."""

    good: str
    bad: str
    phenomenon: str = ""


class ScoredPair(NamedTuple):
    """The scores of a pair's sentences, from `Predictor.score`."""

    pair: MinimalPair
    good: SentenceScore
    bad: SentenceScore

    def is_right(self, direction: str) -> bool | None:
        """Whether the good sentence has the higher log-probability, including its end. `direction`
        is "forward", "backward" or "both" (their sum); None if the model lacks it."""
        name = "joint_total" if direction == "both" else f"{direction}_total"
        good, bad = getattr(self.good, name), getattr(self.bad, name)
        return None if good is None else good > bad

    @property
    def has_unknown(self) -> bool:
        """Whether a token is outside the vocabulary."""
        return not (self.good.known.all() and self.bad.known.all())


@dataclass
class PairCounts:
    """Counts of a phenomenon: pairs, pairs with a token outside the vocabulary, and right pairs per
    direction of the model."""

    n_pairs: int = 0
    n_unknown: int = 0
    n_right: dict[str, int] = field(default_factory=dict)

    def add(self, scored: ScoredPair) -> None:
        """Count a pair."""
        self.n_pairs += 1
        self.n_unknown += scored.has_unknown
        for direction in DIRECTIONS:
            is_right = scored.is_right(direction)
            if is_right is not None:
                self.n_right[direction] = self.n_right.get(direction, 0) + is_right

    def accuracy(self, direction: str = "forward") -> float:
        """The proportion of pairs that are right, 0 to 1."""
        return self.n_right[direction] / self.n_pairs


def read_pairs(
    files: Iterable[PathLike], phenomenon_field: str | None = None
) -> Iterator[MinimalPair]:
    """Read pairs from JSON lines with `sentence_good` and `sentence_bad`, as BLiMP has them.

    `phenomenon_field` names the phenomenon; None: the first of `PHENOMENON_FIELDS` in a line.
    """
    for path in files:
        for number, line in enumerate(read_lines(path), start=1):
            if line.strip():
                yield _parse_pair(line, f"{path}, line {number}", phenomenon_field)


def _parse_pair(line: str, where: str, phenomenon_field: str | None) -> MinimalPair:
    values = parse_json(line, where)
    if not isinstance(values, dict):
        raise InputError(f"{where}: must be a JSON object with sentence_good and sentence_bad.")
    wanted = ["sentence_good", "sentence_bad"]
    if phenomenon_field is not None:
        wanted.append(phenomenon_field)
    else:
        wanted += [name for name in PHENOMENON_FIELDS if name in values][:1]
    for name in wanted:
        if not isinstance(values.get(name), str):
            raise InputError(f"{where}: {name} must be text, got {shown(values.get(name))}.")
    return MinimalPair(*(values[name] for name in wanted))


def score_pairs(
    predictor: Predictor,
    pairs: Iterable[MinimalPair],
    split: Callable[[str], Sequence[str]] = str.split,
    *,
    batch_size: int | None = None,
) -> Iterator[ScoredPair]:
    """Score the sentences of pairs, in order and in bounded memory; `split` returns the tokens of a
    sentence, such as `Tokenizer("en").tokens`."""
    sentences = ((pair, split(text)) for pair in pairs for text in (pair.good, pair.bad))
    scores = predictor.score_iter(sentences, batch_size=batch_size, with_ids=True)
    for (pair, good), (_, bad) in zip(scores, scores, strict=True):
        yield ScoredPair(pair, good, bad)
