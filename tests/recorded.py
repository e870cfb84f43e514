"""Names of the original program's recorded cases in tests/fixtures/golden/, and their batches."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

INFERENCE_CASES = (
    "base",
    "no_projections",
    "one_layer",
    "tanh_no_highway_no_skip",
    "three_layers",
    "tight_clip",
    "wide_tokens",
)
TRAINING_CASES = (
    "characters",
    "clipped_gradients",
    "forward_only",
    "one_layer",
    "words",
    "words_tied_softmax",
)


def read_run(folder: Path) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
    """The eight int32 batches of a training case, and exp(loss) of each."""
    with h5py.File(folder / "run.hdf5") as run:
        batches = [
            {name: value[()].astype(np.int32) for name, value in run[f"batches/{k}"].items()}
            for k in range(len(run["batches"]))
        ]
        perplexity = run["train_perplexity"][()]
    assert len(batches) == len(perplexity) == 8
    return batches, perplexity
