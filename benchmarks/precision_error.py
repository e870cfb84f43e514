"""Row: what bfloat16 changes in the results."""

from __future__ import annotations

import itertools
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.effort import Effort
from benchmarks.results import Figure, Measured
from benchmarks.steps import run_steps, text_options
from benchmarks.workspace import Text, Workspace
from bilm import Batcher

_SENTENCES = 32
_LAST_STEPS = 10


def bfloat16_error(workspace: Workspace, effort: Effort) -> Measured:
    """The tiny preset trained in both precisions from the same seed, and used in both.

    Vectors are compared with the weights that float32 trained: the root mean square of the
    difference over that of the float32 vectors, layer by layer.
    """
    text = workspace.text(effort.pick(1_000_000, 200_000, 50_000))
    vocabulary = workspace.vocabulary()
    network, _, _ = workspace.network("tiny")
    options = text_options(network, text, vocabulary)
    n_steps = effort.pick(500, 30, 2)
    with tempfile.TemporaryDirectory(dir=workspace.folder) as name:
        trained = Path(name)
        perplexity = {
            precision: run_steps(
                options,
                text,
                vocabulary,
                precision=precision,
                at_least=n_steps,
                folder=trained / precision,
            ).perplexity
            for precision in ("float32", "bfloat16")
        }
        errors = _vector_errors(trained, text)
    last = {name: statistics.mean(values[-_LAST_STEPS:]) for name, values in perplexity.items()}
    difference = abs(last["bfloat16"] / last["float32"] - 1)
    return Measured(
        figures=(
            Figure(f"training perplexity after {n_steps} steps", 100 * difference, "% apart"),
            *(
                Figure(f"vectors of layer {layer}", 100 * error, "% apart")
                for layer, error in enumerate(errors)
            ),
        ),
        details={"perplexity": perplexity},
    )


def _vector_errors(trained: Path, text: Text) -> list[float]:
    """The relative error of each layer's vectors of the text's first sentences."""
    from bilm import BidirectionalLanguageModel, dump_weights

    weight_file = trained / "weights.hdf5"
    dump_weights(trained / "float32", weight_file)
    options_file = weight_file.with_name("weights.options.json")
    with open(text.path, encoding="utf-8") as lines:
        sentences = [line.split() for line in itertools.islice(lines, _SENTENCES)]
    ids = Batcher(None, 50).batch_sentences(sentences)

    def vectors(precision: str) -> Any:
        model = BidirectionalLanguageModel(options_file, weight_file, precision=precision)
        return model(ids)["lm_embeddings"].numpy()

    exact, rounded = vectors("float32"), vectors("bfloat16")
    axes = (0, 2, 3)
    errors = np.sqrt(np.sum((rounded - exact) ** 2, axes) / np.sum(exact**2, axes))
    return [float(error) for error in errors]
