"""Functions are traced and compiled for a few shapes only, however long a run is."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

import bilm
from benchmarks.traces import counted_functions
from bilm.core.lstm import Mode
from bilm.core.network import build_network
from bilm.inference.corpus_encoder import CorpusEncoder, PackedRunner
from tests.small_runs import ROWS, STEPS, small_options, write_corpus

# Compiled functions are cached for the whole process, so these tests use clips that no other
# test uses.
CLIPS = {"training": 0.71, Mode.COMPILED_STEPS: 0.72, Mode.COMPILED_LOOP: 0.73, "calls": 0.74}


@pytest.fixture
def traces():
    """The number of traces by function name."""
    with counted_functions() as counted:
        yield counted


@pytest.mark.slow
def test_training(tmp_path, traces):
    """The number of distinct words varies between batches, but the step is traced once."""
    options = small_options(
        "short_words_261", n_train_tokens=10 * ROWS * STEPS, n_epochs=2, dropout=0.1,
        sample_softmax=True, reset_rate=0.5,
    )  # fmt: skip
    options["lstm"] = options["lstm"] | {"cell_clip": CLIPS["training"]}
    data = write_corpus(tmp_path).data(options, shuffle_on_load=True)
    record = bilm.train(options, data, 1, tmp_path / "model", None)
    assert record.n_steps == 20
    # The training step, and the compiled LSTM step, which all layers and directions share.
    assert len(traces) > 1 and set(traces.values()) == {1}


def word_ids(words):
    return np.array([sum(word.encode()) % 50 for word in words])


def small_network(clip):
    options = bilm.Options.from_dict(small_options(), training=True)
    lstm = dataclasses.replace(options.lstm, cell_clip=CLIPS[clip])
    return build_network(dataclasses.replace(options, lstm=lstm), 50, seed=1)


def random_sentences(n):
    draw = random.Random(4)
    return [[str(draw.randrange(50)) for _ in range(draw.randint(1, 20))] for _ in range(n)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.COMPILED_STEPS, Mode.COMPILED_LOOP])
def test_embedding(traces, mode):
    """Windows of varying shapes are traced once for each number of rows."""
    network = small_network(mode)
    runner = PackedRunner(network, mode=mode, rows=(4, 8))
    encoder = CorpusEncoder(network, word_ids, window_tokens=100, runner=runner)
    assert len(list(encoder.layers(random_sentences(300)))) == 300
    # For 4 and 8 rows, and without compiling.
    assert max(traces.values()) <= 3
    # Without compiling, all layers and directions share one function.
    assert traces["projected_lstm"] == 1


@pytest.mark.slow
def test_calls_of_many_sizes(traces):
    """Each number of rows is compiled once that pays off, and not for a few calls."""
    network, sentences = small_network("calls"), random_sentences(150)
    expected = list(CorpusEncoder(network, word_ids).layers(sentences))
    traces.clear()
    runner = PackedRunner(
        network, mode=Mode.COMPILED_LOOP, rows=(2, 4, 8), compiling=3000, kept_words=20
    )
    encoder = CorpusEncoder(network, word_ids, runner=runner)
    draw, seen = random.Random(1), []
    for _ in range(4):
        start = 0
        while start < len(sentences):
            stop = start + draw.choice((1, 2, 5, 11, 40))
            found = list(encoder.layers(sentences[start:stop]))
            for received, wanted in zip(found, expected[start:stop], strict=True):
                np.testing.assert_allclose(received, wanted, 1e-5, 1e-6)
            start += len(found)
        seen.append(traces["_xla_layers.<locals>.run"])
    assert seen[0] < seen[-1] <= 3
