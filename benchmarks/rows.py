"""The table's rows: a name, what it measures, the function that does."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.calls import small_calls
from benchmarks.effort import Effort
from benchmarks.embedding import EmbeddingRow
from benchmarks.growth import EmbeddingGrowth, training_growth
from benchmarks.precision_error import bfloat16_error
from benchmarks.reading import make_batches, read_corpus
from benchmarks.results import Measured
from benchmarks.start_up import start_up
from benchmarks.traces import count_traces
from benchmarks.training import TrainingRow
from benchmarks.vocabulary_size import large_vocabulary
from benchmarks.workspace import Workspace


class Row(NamedTuple):
    """One row. `precisions` are those of the products that it is compared with."""

    name: str
    about: str
    measure: Callable[[Workspace, Effort], Measured]
    precisions: tuple[str, ...] = ("float32",)


# Goals in tokens a second for each GFLOP/s, and the original's speeds at 200 GFLOP/s.
_TRAINING = (
    TrainingRow("small", "float32", wanted=10, original=245),
    TrainingRow("small", "bfloat16", wanted=13, original=245),
    TrainingRow("original", "float32", wanted=1.65, original=82),
    TrainingRow("original", "bfloat16", wanted=2.5, original=82),
)
_SMALL, _ORIGINAL = (2_000_000, 200_000), (150_000, 15_000)
_EMBEDDING = (
    EmbeddingRow("small", "float32", wanted=75, original=1003, n_tokens=_SMALL),
    EmbeddingRow("small", "bfloat16", wanted=None, original=1003, n_tokens=_SMALL),
    EmbeddingRow("original", "float32", wanted=5.3, original=80, n_tokens=_ORIGINAL),
    EmbeddingRow("original", "bfloat16", wanted=8.5, original=80, n_tokens=_ORIGINAL),
)


def _speed_row(work: str, about: str, case: TrainingRow | EmbeddingRow) -> Row:
    precisions = tuple(dict.fromkeys(("float32", case.precision)))
    return Row(f"{work}-{case.preset}-{case.precision}", about, case, precisions)


ROWS = {
    row.name: row
    for row in (
        *(_speed_row("train", "training, and its first step", case) for case in _TRAINING),
        *(_speed_row("embed", "a text file to vectors in HDF5", case) for case in _EMBEDDING),
        Row("small-calls", "calls with few sentences beside one call", small_calls),
        Row("traces", "traces and XLA programs of a run", count_traces),
        Row("read-corpus", "loading a shard: speed, memory a token", read_corpus),
        Row("make-batches", "batches of 128 x 20 from a loaded shard", make_batches),
        Row("memory-training", "memory over the steps of a run", training_growth),
        Row(
            "memory-embedding",
            "memory over a file, small model",
            EmbeddingGrowth("small", (400_000, 60_000)),
        ),
        Row(
            "memory-embedding-long",
            "memory over a very long file, next to no model",
            EmbeddingGrowth("minimal", (10_000_000, 400_000)),
        ),
        Row("large-vocabulary", "a step at 800,000 words and at 55,000", large_vocabulary),
        Row("start-up", "bilm --help, first vector of a small model", start_up),
        Row(
            "bfloat16-error",
            "what bfloat16 changes in the results",
            bfloat16_error,
            ("float32", "bfloat16"),
        ),
    )
}
