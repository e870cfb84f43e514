"""What all tests share: the recorded numbers of the original program, and a quiet TensorFlow."""

from __future__ import annotations

import os
import signal

# Read when TensorFlow is first imported, so set before any test module is.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.command_line import Text, make_text, train_model

GOLDEN = Path(__file__).parent / "fixtures" / "golden"
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


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A process that a shell starts in the background ignores SIGINT, and so do its children;
    tests send it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder of what the original program computes; its README.md says what each file is."""
    return GOLDEN


@pytest.fixture
def text(tmp_path: Path) -> Text:
    """A small text for the command line."""
    return make_text(tmp_path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Text, str]:
    """A small text, and the folder of a model trained on it; no test changes either."""
    return train_model(tmp_path_factory.mktemp("trained"))


def read_run(folder: Path) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
    """The eight batches of a training case, int32, and exp(loss) of each."""
    with h5py.File(folder / "run.hdf5") as run:
        batches = [
            {name: value[()].astype(np.int32) for name, value in run[f"batches/{k}"].items()}
            for k in range(len(run["batches"]))
        ]
        return batches, run["train_perplexity"][()]


class RecordedBatches:
    """Data as the original handed it over: dicts, of which the recorded ones are given."""

    def __init__(self, batches):
        self.batches = batches

    def iter_batches(self, batch_size, num_steps):
        for batch in self.batches:
            assert batch["token_ids"].shape == (batch_size, num_steps)
            yield dict(batch)
