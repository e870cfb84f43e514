"""Train for a while and take the time of each step."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.workspace import Text
from bilm import BidirectionalLMDataset, Options, UnicodeCharsVocabulary

# The step after the first one still finds memory and threads cold.
SKIPPED = 1


@dataclass(frozen=True)
class Steps:
    """What a run gave.

    Attributes:
        before: seconds from the call to the end of the first step.
        first: seconds of the first step itself, the reading of the text's first batch included.
        seconds: of each measured step, the first of all and `SKIPPED` more left out.
        tokens: of one step.
        perplexity: of each step.
        checkpoint: prefix of the checkpoint that the run ended with, if it was kept.
    """

    before: float
    first: float
    seconds: list[float]
    tokens: int
    perplexity: list[float]
    checkpoint: str | None

    @property
    def tokens_per_second(self) -> float:
        """Of the measured steps together."""
        return len(self.seconds) * self.tokens / sum(self.seconds)

    @property
    def usual(self) -> float:
        """Seconds of a step: the median."""
        return statistics.median(self.seconds)


def text_options(options: Options, text: Text, vocabulary: Path) -> Options:
    """Training options for a text and a vocabulary, with more epochs than any row will train."""
    with open(vocabulary, encoding="utf-8") as lines:
        size = sum(1 for _ in lines)
    return dataclasses.replace(
        options, n_tokens_vocab=size, n_train_tokens=text.n_tokens, n_epochs=1000
    )


def run_steps(
    options: Options,
    text: Text,
    vocabulary: Path,
    *,
    precision: str = "float32",
    at_least: int = 3,
    seconds: float = 0.0,
    folder: Path | None = None,
    watch: Callable[[int], Any] | None = None,
) -> Steps:
    """Train with `bilm.train` until enough steps are measured.

    Args:
        options: training options for the text.
        at_least: measured steps, however long they take.
        seconds: go on for as long as this.
        folder: keep the checkpoint in it; None throws it away.
        watch: called after every step with its number, from 1.
    """
    from bilm import train

    ends: list[float] = []
    first = 0.0

    def progress(event: Any) -> bool:
        nonlocal first
        ends.append(time.perf_counter())
        if len(ends) == 1:
            first = event.seconds
        if watch is not None:
            watch(len(ends))
        measured = len(ends) - 1 - SKIPPED
        return measured >= at_least and ends[-1] - ends[SKIPPED] >= seconds

    data = BidirectionalLMDataset(text.path, UnicodeCharsVocabulary(vocabulary, 50))
    with tempfile.TemporaryDirectory(dir=text.path.parent) as thrown_away:
        start = time.perf_counter()
        record = train(
            options,
            data,
            1,
            folder or thrown_away,
            None,
            precision=precision,
            progress=progress,
        )
    return Steps(
        before=ends[0] - start,
        first=first,
        seconds=[after - before for before, after in itertools.pairwise(ends[SKIPPED:])],
        tokens=options.batch_size * options.unroll_steps,
        perplexity=list(record.train_perplexity),
        checkpoint=record.checkpoint if folder else None,
    )
