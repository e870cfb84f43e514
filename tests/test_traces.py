"""Nothing is traced or compiled again and again: a handful of shapes, however long a run is."""

from __future__ import annotations

import random

import numpy as np
import pytest

import bilm
from benchmarks.traces import counted_functions
from bilm.embedding import network_run
from bilm.embedding.corpus import CorpusEncoder
from bilm.layers import whole_loop
from bilm.layers.recurrence import _step_functions
from bilm.network import build_network
from tests.small_runs import ROWS, STEPS, small_options, write_corpus


@pytest.fixture
def traces():
    """Traces by the name of the function's code; those of earlier tests are forgotten."""
    _step_functions.cache_clear()
    with counted_functions() as counted:
        yield counted


def test_training(tmp_path, traces):
    """Batches have ever other numbers of distinct words; the step is traced once."""
    options = small_options(
        "short_words_261", n_train_tokens=10 * ROWS * STEPS, n_epochs=2, dropout=0.1,
        sample_softmax=True,
    )  # fmt: skip
    data = write_corpus(tmp_path).data(options, shuffle_on_load=True)
    record = bilm.train(options, data, 1, tmp_path / "model", None)
    assert record.n_steps == 20
    assert traces["TrainingStep._run"] == 1
    # What XLA compiles of a step of the LSTM, once for all layers and both directions.
    assert {traces[name] for name in ("_cell", "_output", "_cell_gradient")} == {1}
    assert max(traces.values()) == 1


def word_ids(words):
    return np.array([sum(word.encode()) % 50 for word in words])


@pytest.mark.parametrize("in_whole_loop", [False, True])
def test_embedding(traces, monkeypatch, in_whole_loop):
    """Windows of ever other shapes are traced twice, in full and at the end of the text."""
    whole_loop.whole_loop.cache_clear()
    monkeypatch.setattr(whole_loop, "_KERNEL_BYTES", 2**20 * in_whole_loop)
    monkeypatch.setattr(network_run, "_COMPILED_ROWS", 4)
    options = bilm.Options.from_dict(small_options(), training=True)
    network = build_network(options, 50, seed=1, for_corpus=True)
    encoder = CorpusEncoder(network, word_ids, window_tokens=100)
    draw = random.Random(4)
    sentences = [[str(draw.randrange(50)) for _ in range(draw.randint(1, 20))] for _ in range(300)]
    assert len(list(encoder.layers(sentences))) == 300
    if in_whole_loop:
        assert traces["NetworkRun._whole"] == traces["NetworkRun._stepwise"] == 1
        assert traces["_layers"] == 1
    else:
        assert traces["NetworkRun._stepwise"] == 2
        assert 1 <= traces["_cell"] == traces["_output"] <= 3  # 4, 8 and 16 rows
    assert max(traces.values()) <= 3
