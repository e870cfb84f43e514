"""The table's rows: name, description, and the function that measures it."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks.calls import one_sentence, small_calls
from benchmarks.embedding import embedding_memory, embedding_speed
from benchmarks.machine import measure_product
from benchmarks.reading import make_batches, read_corpus
from benchmarks.results import Effort, Measured
from benchmarks.scoring import score_pairs
from benchmarks.start_up import start_up
from benchmarks.traces import count_traces
from benchmarks.training import bfloat16_error, large_vocabulary, training_memory, training_speed
from benchmarks.workspace import Workspace


class Row(NamedTuple):
    """One row, compared with matmuls in each of `precisions`."""

    name: str
    about: str
    measure: Callable[[Workspace, Effort], Measured]
    precisions: tuple[str, ...] = ("float32",)


def measure(row: Row, workspace: Workspace, effort: Effort) -> dict[str, Any]:
    """Measure a row; return its record for JSON."""
    start = time.perf_counter()
    before = {precision: measure_product(precision) for precision in row.precisions}
    measured = row.measure(workspace, effort)
    products = {name: [before[name], measure_product(name)] for name in row.precisions}
    return {
        "row": row.name,
        "about": row.about,
        "products": products,
        "speed": measured.speed and measured.speed.record(products),
        "figures": [dataclasses.asdict(figure) for figure in measured.figures],
        "details": measured.details,
        "seconds": time.perf_counter() - start,
    }


def _speed_row(
    work: str,
    preset: str,
    precision: str,
    wanted: float | None,
    original: float | None,
    variant: str = "",
    **more: Any,
) -> Row:
    functions: dict[str, tuple[Callable[..., Measured], str]] = {
        "train": (training_speed, "training, and its first step"),
        "embed": (embedding_speed, "a text file to vectors in HDF5"),
    }
    function, about = functions[work]
    case = {"preset": preset, "precision": precision, "wanted": wanted, "original": original}
    measure = functools.partial(function, **case, **more)
    precisions = tuple(dict.fromkeys(("float32", precision)))
    return Row(f"{work}-{preset}{variant}-{precision}", about, measure, precisions)


def _recipe_rows() -> Iterator[Row]:
    """Training by recipes, with their own numbers of negative samples."""
    for precision in ("float32", "bfloat16"):
        for rows in (64, 128):
            case: dict[str, Any] = {"recipe": "default", "batch_size": rows}
            yield _speed_row("train", "base", precision, None, None, f"-{rows}", **case)
        for recipe in ("default", "original"):
            case = {"recipe": recipe, "batch_size": 64 if recipe == "default" else 128}
            yield _speed_row("train", "small", precision, None, None, f"-{recipe}-recipe", **case)


# File lengths in tokens, in a full and in a quick run.
_SMALL: dict[str, Any] = {"n_tokens": (2_000_000, 200_000)}
_ORIGINAL: dict[str, Any] = {"n_tokens": (150_000, 15_000)}
_SHORT_FILE = functools.partial(embedding_memory, network="small", n_tokens=(400_000, 60_000))
_LONG_FILE = functools.partial(embedding_memory, network="minimal", n_tokens=(10_000_000, 400_000))

# Goals in tokens per second per GFLOP/s, and the original's tokens per second at 200 GFLOP/s.
ROWS = {
    row.name: row
    for row in (
        _speed_row("train", "small", "float32", 10, 245),
        _speed_row("train", "small", "bfloat16", 13, 245),
        _speed_row("train", "original", "float32", 1.65, 82),
        _speed_row("train", "original", "bfloat16", 2.5, 82),
        _speed_row("embed", "small", "float32", 75, 1003, **_SMALL),
        _speed_row("embed", "small", "bfloat16", None, 1003, **_SMALL),
        _speed_row("embed", "original", "float32", 5.3, 80, **_ORIGINAL),
        _speed_row("embed", "original", "bfloat16", 8.5, 80, **_ORIGINAL),
        *_recipe_rows(),
        Row("one-sentence", "one sentence of 20 words: known words, new words", one_sentence),
        Row("score-pairs", "minimal pairs per second", score_pairs, ("float32", "bfloat16")),
        Row("small-calls", "calls with few sentences, relative to one call", small_calls),
        Row("traces", "traces and XLA programs of a run", count_traces),
        Row("read-corpus", "loading a shard: speed, memory per token", read_corpus),
        Row("make-batches", "batches of 128 x 20 from a loaded shard", make_batches),
        Row("memory-training", "memory growth over the steps of a run", training_memory),
        Row("memory-embedding", "peak memory for a file, small model", _SHORT_FILE),
        Row("memory-embedding-long", "peak memory for a very long file, minimal model", _LONG_FILE),
        Row("large-vocabulary", "training step, 800,000 and 55,000 words", large_vocabulary),
        Row("start-up", "bilm --help, first vector of a small model", start_up),
        Row("bfloat16-error", "effect of bfloat16 on the results", bfloat16_error),
    )
}


def measure_named(name: str, workspace: Workspace, effort: Effort) -> dict[str, Any]:
    """`measure` for the row called `name`."""
    return measure(ROWS[name], workspace, effort)
