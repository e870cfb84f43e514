"""Rows: loading a corpus into memory, and making batches from it, both without TensorFlow."""

from __future__ import annotations

import gc
import itertools
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.machine import peak, reset_peak, resident
from benchmarks.results import Effort, Figure, Measured
from benchmarks.workspace import Workspace
from bilm import BidirectionalLMDataset, UnicodeCharsVocabulary

_ROWS, _STEPS = 128, 20
_LOADS = 3
# Bytes per distinct word besides its string: characters (50 of two bytes), id, and pointer.
_BYTES_OF_A_WORD = 50 * 2 + 4 + 8


def read_corpus(workspace: Workspace, effort: Effort) -> Measured:
    """Load one shard several times: tokens per second of CPU time, and memory per token."""
    text = workspace.text(effort.pick(15_000_000, 3_000_000, 20_000))
    vocabulary = UnicodeCharsVocabulary(workspace.vocabulary(), 50)
    rates, held, most = [], [], []
    for _ in range(_LOADS):
        gc.collect()
        reset_peak()
        before, start = resident(), _processor_seconds()
        batches = BidirectionalLMDataset(text.path, vocabulary).iter_distinct(1, 1)
        next(batches)
        rates.append(text.n_tokens / (_processor_seconds() - start))
        held.append(resident() - before)
        most.append(peak() - before)
        del batches
    words = _bytes_of_words(text.path)
    # Only the first load allocates all of its memory; later loads reuse some.
    per_token, peak_per_token = (held[0] - words) / text.n_tokens, most[0] / text.n_tokens
    return Measured(
        figures=(
            Figure("speed of a core", statistics.median(rates), "tokens/s", 3e6, at_most=False),
            Figure("memory kept, without distinct words", per_token, "bytes/token", 24),
            Figure("peak memory while loading", peak_per_token, "bytes/token"),
        ),
        details={"rates": rates, "held": held, "most": most, "bytes_of_words": words},
    )


def make_batches(workspace: Workspace, effort: Effort) -> Measured:
    """Make batches of 128 x 20 for both directions from a loaded shard, on one core."""
    text = workspace.text(effort.pick(3_000_000, 3_000_000, 50_000))
    data = BidirectionalLMDataset(text.path, UnicodeCharsVocabulary(workspace.vocabulary(), 50))
    n_batches = effort.pick(400, 200, 10)
    compact = _rates(data.iter_distinct(_ROWS, _STEPS), n_batches)
    dicts = _rates(data.iter_batches(_ROWS, _STEPS), n_batches)
    return Measured(
        figures=(
            Figure("compact batches", statistics.median(compact), "tokens/s", 1e6, at_most=False),
            Figure("the original's dicts", statistics.median(dicts), "tokens/s"),
        ),
        details={"compact": compact, "dicts": dicts},
    )


def _rates(batches: Iterator[Any], n_batches: int) -> list[float]:
    """Tokens per second of five runs of batches, after a first batch that loads the shard."""
    next(batches)
    rates = []
    for _ in range(5):
        start = time.perf_counter()
        made = sum(1 for _ in itertools.islice(batches, n_batches // 5))
        rates.append(made * _ROWS * _STEPS / (time.perf_counter() - start))
    return rates


def _bytes_of_words(path: Path) -> int:
    """Minimum size of a text's distinct words: strings and characters."""
    with open(path, encoding="utf-8") as lines:
        words = set(itertools.chain.from_iterable(map(str.split, lines)))
    return sum(map(sys.getsizeof, words)) + len(words) * _BYTES_OF_A_WORD


def _processor_seconds() -> float:
    """CPU time of this process with all its threads, and of finished child processes."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
