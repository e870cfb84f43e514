"""Rows: training a model of a published size, and the compilation of its first step."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np

from benchmarks import memory
from benchmarks.effort import Effort
from benchmarks.operations import training_operations
from benchmarks.results import Figure, Measured, Speed
from benchmarks.steps import run_steps, text_options
from benchmarks.workspace import Text, Workspace
from bilm import BidirectionalLMDataset, Options, UnicodeCharsVocabulary

_PADDING = 260
_MAX_FIRST_STEP = 20.0  # seconds
_COUNTED_BATCHES = 20


@dataclass(frozen=True)
class TrainingRow:
    """Train at 128 x 20 tokens a step with 8,192 negatives and a vocabulary of 55,000 words.

    Args:
        preset: the size.
        precision: of the products.
        wanted: tokens a second for each GFLOP/s.
        original: the original program's tokens a second.
    """

    preset: str
    precision: str
    wanted: float
    original: float

    def __call__(self, workspace: Workspace, effort: Effort) -> Measured:
        """Measure the row."""
        text = workspace.text(effort.pick(2_000_000, 1_000_000, 50_000))
        vocabulary = workspace.vocabulary()
        options = training_options(effort.preset(self.preset), text, workspace)
        batches = _distinct_words(text, workspace, options)
        steps = run_steps(
            options,
            text,
            vocabulary,
            precision=self.precision,
            at_least=effort.pick(10, 3, 2),
            seconds=effort.pick(60.0, 6.0, 0.0),
        )
        operations = float(np.mean([training_operations(options, words) for words in batches]))
        return Measured(
            Speed(
                steps.tokens_per_second,
                operations / steps.tokens,
                self.precision,
                self.wanted,
                self.original,
            ),
            (
                Figure(
                    "first step beyond a usual one", steps.first - steps.usual, "s", _MAX_FIRST_STEP
                ),
                Figure("most memory", memory.peak() / 2**20, "MB"),
            ),
            {
                "step_seconds": steps.seconds,
                "call_to_first_step_seconds": steps.before,
                "perplexity": steps.perplexity,
                "distinct_words_of_a_batch": float(np.mean([len(words) for words in batches])),
                "n_tokens_vocab": options.n_tokens_vocab,
            },
        )


def training_options(preset: str, text: Text, workspace: Workspace) -> Options:
    """Options of a preset at the batch that all sizes are measured with."""
    options, _, _ = workspace.network(preset)
    at_batch = dataclasses.replace(
        options, batch_size=128, unroll_steps=20, n_negative_samples_batch=8192
    )
    return text_options(at_batch, text, workspace.vocabulary())


def _distinct_words(text: Text, workspace: Workspace, options: Options) -> list[np.ndarray]:
    """For each of the first batches, the characters of its distinct words."""
    data = BidirectionalLMDataset(text.path, UnicodeCharsVocabulary(workspace.vocabulary(), 50))
    batches = data.iter_distinct(options.batch_size, options.unroll_steps)
    return [
        (batch.characters != _PADDING).sum(axis=1)
        for batch in itertools.islice(batches, _COUNTED_BATCHES)
        if batch.characters is not None
    ]
