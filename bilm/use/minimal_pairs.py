"""Minimal pairs: whether a language model prefers the acceptable sentence of two.

Warstadt et al. (2020), "BLiMP: The Benchmark of Linguistic Minimal Pairs for English".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bilm.core.errors import TEXT, InputError, require, shown
from bilm.files.reading import PathLike, parse_json, read_lines

if TYPE_CHECKING:
    from bilm.use.predictor import Predictor, SentenceScore

PHENOMENON_FIELDS = ("linguistics_term", "phenomenon", "UID")
"""Fields that may name the phenomenon of a pair; the first existing field is used."""

# The log-probabilities to compare, including the sentence end; None if the model lacks them.
_TOTALS = {"forward": "forward_total", "backward": "backward_total", "both": "joint_total"}


class MinimalPair(NamedTuple):
    """An acceptable sentence, a minimally different unacceptable one, and the tested phenomenon (""
    if unknown)."""

    good: str
    bad: str
    phenomenon: str = ""


class ScoredPair(NamedTuple):
    """The scores of a pair's sentences."""

    pair: MinimalPair
    good: SentenceScore
    bad: SentenceScore

    @property
    def has_unknown(self) -> bool:
        """Whether a token is outside the vocabulary."""
        return not (self.good.known.all() and self.bad.known.all())


@dataclass
class PairCounts:
    """Counts of a phenomenon."""

    n_pairs: int = 0
    n_unknown: int = 0  # pairs with a token outside the vocabulary
    # By direction: pairs whose good sentence is more probable, and pairs with equal scores.
    n_right: Counter[str] = field(default_factory=Counter)
    n_ties: Counter[str] = field(default_factory=Counter)

    def add(self, scored: ScoredPair) -> None:
        """Count a pair."""
        self.n_pairs += 1
        self.n_unknown += scored.has_unknown
        for direction, total in _TOTALS.items():
            good, bad = getattr(scored.good, total), getattr(scored.bad, total)
            if good is not None:
                self.n_right[direction] += good > bad
                self.n_ties[direction] += good == bad

    def accuracy(self, direction: str) -> float:
        """The proportion of correct pairs, 0 to 1; a tie counts half."""
        return (self.n_right[direction] + self.n_ties[direction] / 2) / self.n_pairs


def read_pairs(files: Iterable[PathLike], phenomenon_field: str | None = None) -> list[MinimalPair]:
    """Read pairs from JSON lines with `sentence_good` and `sentence_bad`, as BLiMP has them;
    `phenomenon_field` None: the first of `PHENOMENON_FIELDS` in a line.

    Raises:
        InputError: a line is not such an object, or there are no pairs.
    """
    pairs, path = [], None
    for path in files:
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            if not line.lstrip().startswith("{"):
                rule = "a JSON object with sentence_good and sentence_bad, on one line"
                raise InputError(f"{where} must be {rule}, got {shown(line)}.")
            values = parse_json(line, where)
            name = phenomenon_field or next(filter(values.__contains__, PHENOMENON_FIELDS), None)
            names = ["sentence_good", "sentence_bad", *([name] if name else [])]
            require(TEXT, **{f"{where}: {key}": values.get(key) for key in names})
            # A tab or line end in a phenomenon would break the tables that are printed.
            pair = MinimalPair(*(" ".join(values[key].split()) for key in names))
            if not (pair.good and pair.bad):
                raise InputError(f"{where}: a sentence must not be empty.")
            pairs.append(pair)
    if not pairs:
        raise InputError(f"{path}: must have a pair, got none.")
    return pairs


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
