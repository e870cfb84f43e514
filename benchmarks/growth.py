"""Rows: memory that should not grow, with the steps of training and with the length of a file."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks import memory
from benchmarks.effort import Effort
from benchmarks.embedding import EmbeddingFiles
from benchmarks.results import Figure, Measured
from benchmarks.steps import run_steps, text_options
from benchmarks.workspace import Workspace

_MB = 2**20


def training_growth(workspace: Workspace, effort: Effort) -> Measured:
    """Memory over the second half of a run of the tiny preset.

    In the first half an allocator meets ever new sizes of batches, and keeps memory for them.
    """
    n_steps = effort.pick(1000, 150, 12)
    # One shard that the run does not reach the end of, so that none is loaded on the way.
    text = workspace.text(effort.pick(2_000_000, 300_000, 50_000))
    vocabulary = workspace.vocabulary()
    options, _, _ = workspace.network("tiny")
    sizes: list[int] = []
    run_steps(
        text_options(options, text, vocabulary),
        text,
        vocabulary,
        at_least=n_steps,
        watch=lambda step: sizes.append(memory.resident()),
    )
    half = len(sizes) // 2
    grown = (sizes[-1] - sizes[half]) / _MB
    steps = len(sizes) - 1 - half
    return Measured(
        # What an allocator keeps varies by a few megabytes.
        figures=(Figure(f"growth over {steps} steps", grown, "MB", 20),),
        details={"resident": sizes[:: max(1, len(sizes) // 50)]},
    )


@dataclass(frozen=True)
class EmbeddingGrowth:
    """Memory above that before the call, for a file and for one several times as long.

    Args:
        network: a preset, or "minimal", with which a very long file is done in minutes.
        n_tokens: of the longer file, in a full and in a quick run.
    """

    network: str
    n_tokens: tuple[int, int]

    def __call__(self, workspace: Workspace, effort: Effort) -> Measured:
        """Measure the row."""
        name = self.network if self.network == "minimal" else effort.preset(self.network)
        files = EmbeddingFiles(workspace, name)
        n_tokens = effort.pick(*self.n_tokens, 4_000)
        short, long = workspace.text(n_tokens // 4), workspace.text(n_tokens)
        memory.reset_peak()
        start = memory.resident()
        seconds = [files.embed(short.path)]
        after_short = memory.peak()
        seconds.append(files.embed(long.path))
        after_long = memory.peak()
        return Measured(
            figures=(
                Figure(
                    f"most above start, {long.n_tokens:,} tokens",
                    (after_long - start) / _MB,
                    "MB",
                    500,
                ),
                Figure(
                    f"of it beyond {short.n_tokens:,} tokens",
                    (after_long - after_short) / _MB,
                    "MB",
                ),
            ),
            details={
                "start": start,
                "after_short": after_short,
                "after_long": after_long,
                "seconds": seconds,
                "distinct_words": len(long.lengths),
            },
        )
