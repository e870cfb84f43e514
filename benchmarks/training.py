"""Rows: training a model; its speed, its memory, a large vocabulary, and bfloat16."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bilm
from benchmarks.machine import peak, resident
from benchmarks.operations import training_operations
from benchmarks.results import Effort, Figure, Measured, Speed
from benchmarks.workspace import VOCABULARY, Text, Workspace
from bilm import Batcher, BidirectionalLMDataset, Options, UnicodeCharsVocabulary

_MB = 2**20
_PADDING = 260
_COUNTED_BATCHES = 20
_LARGE = 800_000


class Steps(NamedTuple):
    """Measurements of a training run.

    Attributes:
        first: seconds of the first step, including reading the first batch.
        seconds: seconds of each measured step. The first two steps are excluded, because in the
            second one memory and threads are still cold.
        perplexity: training perplexity of each step.
    """

    first: float
    seconds: list[float]
    perplexity: list[float]

    @property
    def usual(self) -> float:
        """Median seconds per step."""
        return statistics.median(self.seconds)


def text_options(options: Options, text: Text, size: int = VOCABULARY, **changes: Any) -> Options:
    """Training options for a text and a vocabulary size, with more epochs than any row trains."""
    return dataclasses.replace(
        options, n_tokens_vocab=size, n_train_tokens=text.n_tokens, n_epochs=1000, **changes
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
    watch: Callable[[], Any] = lambda: None,
) -> Steps:
    """Train with `bilm.train` until enough steps are measured.

    Args:
        options: training options for the text.
        at_least: minimum number of measured steps.
        seconds: minimum duration of the measured steps.
        folder: folder to keep the checkpoint in; None deletes it.
        watch: called after every step.
    """
    from bilm import train

    ends: list[float] = []
    firsts: list[float] = []

    def progress(event: Any) -> bool:
        ends.append(time.perf_counter())
        firsts.append(event.seconds)
        watch()
        return len(ends) >= at_least + 2 and ends[-1] - ends[1] >= seconds

    data = BidirectionalLMDataset(text.path, UnicodeCharsVocabulary(vocabulary, 50))
    with tempfile.TemporaryDirectory(dir=text.path.parent) as thrown_away:
        settings: dict[str, Any] = {"precision": precision, "progress": progress}
        record = train(options, data, 1, folder or thrown_away, None, **settings)
    durations = [after - before for before, after in itertools.pairwise(ends[1:])]
    return Steps(firsts[0], durations, list(record.train_perplexity))


def training_speed(
    workspace: Workspace,
    effort: Effort,
    *,
    preset: str,
    precision: str,
    wanted: float | None,
    original: float | None,
    recipe: str | None = None,
    batch_size: int = 128,
) -> Measured:
    """Train with `batch_size` x 20 tokens per step and a 55,000-word vocabulary.

    Args:
        wanted: required tokens per second per GFLOP/s; None: no goal.
        original: the original program's tokens per second; None: not recorded.
        recipe: a training recipe with its own number of negative samples; None: the default recipe
            with 8,192 of them.
    """
    text = workspace.text(effort.pick(2_000_000, 1_000_000, 50_000))
    vocabulary = workspace.vocabulary()
    options = _paper_options(effort.preset(preset), text, workspace)
    if recipe is not None:
        values = bilm.preset(effort.preset(preset), recipe)
        options = text_options(
            Options.from_dict(values, training=True), text, batch_size=batch_size, unroll_steps=20
        )
    batches = _distinct_words(text, vocabulary, options)
    enough: dict[str, Any] = {
        "at_least": effort.pick(10, 3, 2),
        "seconds": effort.pick(60.0, 6.0, 0.0),
    }
    steps = run_steps(options, text, vocabulary, precision=precision, **enough)
    operations = float(np.mean([training_operations(options, words) for words in batches]))
    n_tokens = options.batch_size * options.unroll_steps
    speed = len(steps.seconds) * n_tokens / sum(steps.seconds)
    return Measured(
        Speed(speed, operations / n_tokens, precision, wanted, original),
        (
            Figure("first step minus the median step", steps.first - steps.usual, "s", 20.0),
            Figure("peak memory", peak() / _MB, "MB"),
        ),
        {
            "step_seconds": steps.seconds,
            "perplexity": steps.perplexity,
            "distinct_words_of_a_batch": float(np.mean([len(words) for words in batches])),
        },
    )


def _paper_options(
    preset: str, text: Text, workspace: Workspace, size: int = VOCABULARY
) -> Options:
    """Options of a preset, with the batch shape that is used for all presets."""
    options, _, _ = workspace.network(preset)
    batch = {"batch_size": 128, "unroll_steps": 20, "n_negative_samples_batch": 8192}
    return text_options(options, text, size, **batch)


def _distinct_words(text: Text, vocabulary: Path, options: Options) -> list[np.ndarray]:
    """For each of the first batches, the characters of each distinct word: integers (words,)."""
    data = BidirectionalLMDataset(text.path, UnicodeCharsVocabulary(vocabulary, 50))
    batches = data.iter_distinct(options.batch_size, options.unroll_steps)
    return [
        (batch.characters != _PADDING).sum(axis=1)
        for batch in itertools.islice(batches, _COUNTED_BATCHES)
        if batch.characters is not None
    ]


def large_vocabulary(workspace: Workspace, effort: Effort) -> Measured:
    """Step time of the small model with 800,000 words, relative to 55,000."""
    text = workspace.text(effort.pick(1_000_000, 1_000_000, 50_000))
    enough: dict[str, Any] = {
        "at_least": effort.pick(20, 3, 2),
        "seconds": effort.pick(30.0, 6.0, 0.0),
    }
    usual, large = (
        run_steps(
            _paper_options(effort.preset("small"), text, workspace, size),
            text,
            workspace.vocabulary(size),
            **enough,
        )
        for size in (VOCABULARY, _LARGE)
    )
    times = large.usual / usual.usual
    return Measured(
        figures=(Figure("step time with 800,000 words, relative to 55,000", times, "times", 1.15),),
        details={"seconds": {VOCABULARY: usual.seconds, _LARGE: large.seconds}},
    )


def training_memory(workspace: Workspace, effort: Effort) -> Measured:
    """Memory growth over the second half of a run of the tiny preset.

    In the first half, the allocator still meets new batch sizes and keeps memory for them.
    """
    # One shard that is longer than the run, so that no other is loaded during it.
    text = workspace.text(effort.pick(2_000_000, 300_000, 50_000))
    options, _, _ = workspace.network("tiny")
    sizes: list[int] = []
    run_steps(
        text_options(options, text),
        text,
        workspace.vocabulary(),
        at_least=effort.pick(1000, 150, 12),
        watch=lambda: sizes.append(resident()),
    )
    half = len(sizes) // 2
    grown = (sizes[-1] - sizes[half]) / _MB
    return Measured(
        # The memory that the allocator keeps varies by a few megabytes.
        figures=(Figure(f"growth over {len(sizes) - 1 - half} steps", grown, "MB", 20),),
        details={"resident": sizes[:: max(1, len(sizes) // 50)]},
    )


def bfloat16_error(workspace: Workspace, effort: Effort) -> Measured:
    """Train the tiny preset in both precisions from the same seed, and compare perplexities.

    Vectors are also compared, computed in both precisions from the weights trained in float32: for
    each layer, the root mean square of the difference, relative to the float32 vectors.
    """
    text = workspace.text(effort.pick(1_000_000, 200_000, 50_000))
    network, _, _ = workspace.network("tiny")
    options, n_steps = text_options(network, text), effort.pick(500, 30, 2)
    with tempfile.TemporaryDirectory(dir=workspace.folder) as name:
        perplexity = {}
        for precision in ("float32", "bfloat16"):
            steps = run_steps(
                options,
                text,
                workspace.vocabulary(),
                precision=precision,
                at_least=n_steps,
                folder=Path(name, precision),
            )
            perplexity[precision] = statistics.mean(steps.perplexity[-10:])
        errors = _vector_errors(Path(name), text)
    apart = 100 * abs(perplexity["bfloat16"] / perplexity["float32"] - 1)
    return Measured(
        figures=[Figure(f"training perplexity after {n_steps} steps", apart, "% apart")]
        + [Figure(f"vectors of layer {k}", 100 * x, "% apart") for k, x in enumerate(errors)],
        details={"perplexity": perplexity},
    )


def _vector_errors(trained: Path, text: Text) -> list[float]:
    """Relative error of each layer's vectors for the text's first sentences."""
    from bilm import BidirectionalLanguageModel, dump_weights

    weight_file = trained / "weights.hdf5"
    dump_weights(trained / "float32", weight_file)
    options_file = weight_file.with_name("weights.options.json")
    with open(text.path, encoding="utf-8") as lines:
        sentences = [line.split() for line in itertools.islice(lines, 32)]
    ids = Batcher(None, 50).batch_sentences(sentences)

    def vectors(precision: str) -> Any:
        model = BidirectionalLanguageModel(options_file, weight_file, precision=precision)
        return model(ids)["lm_embeddings"].numpy()

    exact, rounded = vectors("float32"), vectors("bfloat16")
    axes = (0, 2, 3)
    errors = np.sqrt(np.sum((rounded - exact) ** 2, axes) / np.sum(exact**2, axes))
    return [float(error) for error in errors]
