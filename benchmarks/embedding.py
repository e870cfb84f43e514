"""Rows: speed and memory of computing vectors, from the text file to the HDF5 file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.machine import peak, reset_peak, resident
from benchmarks.operations import embedding_operations
from benchmarks.results import Effort, Figure, Measured, Speed
from benchmarks.workspace import Workspace

_MB = 2**20
# With character input the vocabulary file has no effect, but must be valid.
_NO_VOCABULARY = "<S>\n</S>\n<UNK>\n"


def embedding_speed(
    workspace: Workspace,
    effort: Effort,
    *,
    preset: str,
    precision: str,
    wanted: float | None,
    original: float,
    n_tokens: tuple[int, int],
) -> Measured:
    """Embed a file whose vocabulary is not known beforehand.

    The complete call is timed: loading the weights, tracing, reading, computing, writing.

    Args:
        wanted: required tokens per second per GFLOP/s; None: no goal.
        original: the original program's tokens per second.
        n_tokens: length of the file, in a full and in a quick run.
    """
    text = workspace.text(effort.pick(*n_tokens, 2_000))
    network, one_sentence = effort.preset(preset), workspace.text(1).path
    embed = embedder(workspace, network, precision)
    embed(one_sentence)  # imports, threads
    start, seconds = embed(one_sentence), embed(text.path)
    options, _, _ = workspace.network(network)
    operations = embedding_operations(options, text.n_tokens, text.lengths) / text.n_tokens
    return Measured(
        Speed(text.n_tokens / seconds, operations, precision, wanted, original),
        (
            Figure("a file of one sentence", start, "s"),
            Figure("peak memory", peak() / _MB, "MB"),
        ),
        {
            "seconds": seconds,
            "seconds_of_one_sentence": start,
            "n_tokens": text.n_tokens,
            "n_sentences": text.n_sentences,
            "distinct_words": len(text.lengths),
        },
    )


def embedding_memory(
    workspace: Workspace, effort: Effort, *, network: str, n_tokens: tuple[int, int]
) -> Measured:
    """Peak memory minus the memory before the call, for a file and for one four times as long.

    Args:
        network: a preset, or "minimal", which processes a very long file in minutes.
        n_tokens: length of the longer file, in a full and in a quick run.
    """
    name = network if network == "minimal" else effort.preset(network)
    most = effort.pick(*n_tokens, 4_000)
    short, long = workspace.text(most // 4), workspace.text(most)
    embed = embedder(workspace, name)
    reset_peak()
    start = resident()
    embed(short.path)
    after_short = peak()
    embed(long.path)
    above, beyond = (peak() - start) / _MB, (peak() - after_short) / _MB
    return Measured(
        figures=(
            Figure(f"peak above start, {long.n_tokens:,} tokens", above, "MB", 500),
            Figure(f"difference to {short.n_tokens:,} tokens", beyond, "MB"),
        ),
        details={"start": start, "distinct_words": len(long.lengths)},
    )


def embedder(
    workspace: Workspace, network: str, precision: str = "float32"
) -> Callable[[Path], float]:
    """Return a function that writes a text's vectors, deletes them, and returns the seconds that
    writing took."""
    from bilm import dump_bilm_embeddings

    _, options, weights = workspace.network(network)
    vocabulary = workspace.folder / "no-vocabulary.txt"
    vocabulary.write_text(_NO_VOCABULARY, encoding="utf-8")

    def embed(text: Path) -> float:
        outfile = text.with_suffix(".hdf5")
        start = time.perf_counter()
        dump_bilm_embeddings(vocabulary, text, options, weights, outfile, precision=precision)
        seconds = time.perf_counter() - start
        outfile.unlink()
        return seconds

    return embed
