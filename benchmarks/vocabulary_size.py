"""Row: what a large vocabulary costs a step of training."""

from __future__ import annotations

import dataclasses

from benchmarks.effort import Effort
from benchmarks.results import Figure, Measured
from benchmarks.steps import Steps, run_steps
from benchmarks.training import training_options
from benchmarks.workspace import VOCABULARY, Workspace

_LARGE = 800_000


def large_vocabulary(workspace: Workspace, effort: Effort) -> Measured:
    """The time of a step of the small model at 800,000 words over that at 55,000."""
    text = workspace.text(effort.pick(1_000_000, 1_000_000, 50_000))

    def steps_at(size: int) -> Steps:
        options = training_options(effort.preset("small"), text, workspace)
        return run_steps(
            dataclasses.replace(options, n_tokens_vocab=size),
            text,
            workspace.vocabulary(size),
            at_least=effort.pick(20, 3, 2),
            seconds=effort.pick(30.0, 6.0, 0.0),
        )

    usual, large = steps_at(VOCABULARY), steps_at(_LARGE)
    return Measured(
        figures=(
            Figure(
                "step time, 800,000 over 55,000 words", large.usual / usual.usual, "times", 1.15
            ),
        ),
        details={"seconds": {VOCABULARY: usual.seconds, _LARGE: large.seconds}},
    )
