"""Row: start-up time."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.results import Effort, Figure, Measured
from benchmarks.workspace import Workspace

# Prints the seconds to a first vector; runs in its own process, where nothing is loaded yet.
_FIRST_VECTOR = """
import json, sys, time
import tensorflow
start = time.perf_counter()
from bilm import Batcher, BidirectionalLanguageModel
model = BidirectionalLanguageModel(*sys.argv[1:])
ids = Batcher(None, 50).batch_sentences([["A", "first", "sentence", "."]])
model(ids)["lm_embeddings"].numpy()
print(json.dumps(time.perf_counter() - start))
"""


def start_up(workspace: Workspace, effort: Effort) -> Measured:
    """Time `bilm --help`, and a small model's first vector without the import of TensorFlow."""
    installed = Path(sys.executable).with_name("bilm")
    command = [str(installed)] if installed.exists() else [sys.executable, "-m", "bilm"]
    _, *model = workspace.network("small")
    first_vector = [sys.executable, "-c", _FIRST_VECTOR, *map(str, model)]
    helps, vectors = [], []
    for _ in range(effort.pick(5, 3, 1)):
        start = time.perf_counter()
        subprocess.run([*command, "--help"], check=True, stdout=subprocess.DEVNULL)
        helps.append(time.perf_counter() - start)
        vectors.append(json.loads(subprocess.check_output(first_vector, text=True)))
    first = statistics.median(vectors)
    return Measured(
        figures=(
            Figure("bilm --help", statistics.median(helps), "s", 0.3),
            Figure("first vector beyond importing TensorFlow", first, "s", 2.0),
        ),
        details={"command": command, "help": helps, "first_vector": vectors},
    )
