"""Row: how long a user waits before anything happens."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.effort import Effort
from benchmarks.results import Figure, Measured
from benchmarks.workspace import Workspace


def start_up(workspace: Workspace, effort: Effort) -> Measured:
    """`bilm --help`, and the first vector of a small model beyond importing TensorFlow."""
    repeats = effort.pick(5, 3, 1)
    installed = Path(sys.executable).with_name("bilm")
    command = [str(installed)] if installed.exists() else [sys.executable, "-m", "bilm"]
    helps = [_seconds([*command, "--help"]) for _ in range(repeats)]
    _, options_file, weight_file = workspace.network("small")
    arguments = ["-m", "benchmarks.first_vector", str(options_file), str(weight_file)]
    runs = [
        json.loads(subprocess.check_output([sys.executable, *arguments], text=True))
        for _ in range(repeats)
    ]
    first = statistics.median(run["first_vector"] for run in runs)
    return Measured(
        figures=(
            Figure("bilm --help", statistics.median(helps), "s", 0.3),
            Figure("first vector beyond importing TensorFlow", first, "s", 2.0),
        ),
        details={"command": command, "help": helps, "first_vector": runs},
    )


def _seconds(command: Sequence[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start
