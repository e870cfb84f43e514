"""The probability that a language model gives to each token of a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bilm.prediction.text import SentenceParts
from bilm.training.evaluation import Scorer


class SentenceScore(NamedTuple):
    """Log-probabilities of a sentence in nats (natural logarithms), each direction alone.

    The forward direction predicts the tokens from left to right and then the end `</S>`; the
    backward direction from right to left and then the begin `<S>`. A token outside the vocabulary
    is predicted as `<UNK>`. Peters et al. (2018), section 3.1.

    Attributes:
        tokens: of the sentence, n of them.
        known: bool (n,), whether a token is in the vocabulary.
        forward: float32 (n,), log p(token | the tokens before it).
        end: log p(`</S>` | the tokens).
        backward: float32 (n,), log p(token | the tokens after it); None for a model of one
            direction, as are the other two.
        begin: log p(`<S>` | the tokens).
    """

    tokens: list[str]
    known: np.ndarray
    forward: np.ndarray
    end: float
    backward: np.ndarray | None
    begin: float | None

    @property
    def joint(self) -> np.ndarray | None:
        """Forward plus backward, float32 (n,): the objective of the paper, section 3.1.

        It is the log of a product of two probabilities of the same token, and no log-probability
        itself.
        """
        return None if self.backward is None else self.forward + self.backward

    @property
    def forward_total(self) -> float:
        """log p(sentence) from left to right, the end included."""
        return float(self.forward.sum(dtype=np.float64)) + self.end

    @property
    def backward_total(self) -> float | None:
        """log p(sentence) from right to left, the begin included."""
        if self.backward is None or self.begin is None:
            return None
        return float(self.backward.sum(dtype=np.float64)) + self.begin

    @property
    def joint_total(self) -> float | None:
        """Forward plus backward."""
        backward = self.backward_total
        return None if backward is None else self.forward_total + backward


def score_window(
    scorer: Scorer, sentences: Sequence[Sequence[str]], parts: SentenceParts
) -> Iterator[SentenceScore]:
    """The scores of some sentences, in their order.

    Args:
        scorer: runs the model.
        sentences: what is scored.
        parts: turns sentences into what the scorer takes.
    """
    n_directions = scorer.options.n_directions
    # In the order of each direction's reading: the tokens and an end.
    read = [np.empty((n_directions, len(sentence) + 1), np.float32) for sentence in sentences]
    for part in parts.of(sentences):
        losses = scorer.losses(part.feed, part.is_continued)
        for row, number, count in part.rows():
            read[number][:, part.start : part.start + count] = -losses[:, :count, row]
    for sentence, values in zip(sentences, read, strict=True):
        tokens = list(sentence)
        backward = values[1, :-1][::-1] if n_directions == 2 else None
        yield SentenceScore(
            tokens=tokens,
            known=parts.known(tokens),
            forward=values[0, :-1],
            end=float(values[0, -1]),
            backward=backward,
            begin=float(values[1, -1]) if n_directions == 2 else None,
        )
