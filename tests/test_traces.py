"""Nothing is traced or compiled again and again: a handful of shapes, however long a run is."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

import bilm
from benchmarks.traces import counted_functions
from bilm.embedding.corpus import CorpusEncoder, PackedRunner
from bilm.layers import Mode
from bilm.network import build_network
from tests.small_runs import ROWS, STEPS, small_options, write_corpus

# Compiled functions are kept for a whole process: with a clip of their own, those of these tests
# are made here.
CLIPS = {"training": 0.71, Mode.COMPILED_STEPS: 0.72, Mode.COMPILED_LOOP: 0.73}


@pytest.fixture
def traces():
    """Traces by the name of the function's code."""
    with counted_functions() as counted:
        yield counted


def test_training(tmp_path, traces):
    """Batches have ever other numbers of distinct words; the step is traced once."""
    options = small_options(
        "short_words_261", n_train_tokens=10 * ROWS * STEPS, n_epochs=2, dropout=0.1,
        sample_softmax=True, reset_rate=0.5,
    )  # fmt: skip
    options["lstm"] = options["lstm"] | {"cell_clip": CLIPS["training"]}
    data = write_corpus(tmp_path).data(options, shuffle_on_load=True)
    record = bilm.train(options, data, 1, tmp_path / "model", None)
    assert record.n_steps == 20
    # The step, and what XLA compiles of a step of the LSTM, once for all layers and directions.
    assert len(traces) > 1 and set(traces.values()) == {1}


def word_ids(words):
    return np.array([sum(word.encode()) % 50 for word in words])


@pytest.mark.parametrize("mode", [Mode.COMPILED_STEPS, Mode.COMPILED_LOOP])
def test_embedding(traces, mode):
    """Windows of ever other shapes are traced twice, in full and at the end of the text."""
    options = bilm.Options.from_dict(small_options(), training=True)
    lstm = dataclasses.replace(options.lstm, cell_clip=CLIPS[mode])
    network = build_network(dataclasses.replace(options, lstm=lstm), 50, seed=1)
    runner = PackedRunner(network, mode=mode, compiled_rows=4)
    encoder = CorpusEncoder(network, word_ids, window_tokens=100, runner=runner)
    draw = random.Random(4)
    sentences = [[str(draw.randrange(50)) for _ in range(draw.randint(1, 20))] for _ in range(300)]
    assert len(list(encoder.layers(sentences))) == 300
    # A step of the LSTM is compiled for 4, 8 and 16 rows.
    assert max(traces.values()) in ((2,) if mode is Mode.COMPILED_LOOP else (2, 3))
