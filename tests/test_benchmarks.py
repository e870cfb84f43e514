"""The benchmarks: their counts and tables, and one row from end to end. Times are not checked."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.__main__ import main
from benchmarks.machine import peak, reset_peak, resident
from benchmarks.operations import (
    embedding_operations,
    encoder_operations,
    lstm_operations,
    softmax_operations,
    training_operations,
)
from benchmarks.results import Effort, Figure, Measured, Speed, format_results, summary
from benchmarks.rows import ROWS, Row, measure
from benchmarks.traces import counted_functions
from benchmarks.workspace import Workspace
from bilm import Options

OPTIONS = Options.from_dict(
    {
        "lstm": {"dim": 8, "projection_dim": 4, "n_layers": 2},
        "char_cnn": {
            "filters": [[1, 2], [3, 5]],
            "activation": "relu",
            "embedding": {"dim": 2},
            "n_highway": 1,
            "max_characters_per_token": 10,
        },
        "bidirectional": True,
        "batch_size": 2,
        "unroll_steps": 5,
        "n_negative_samples_batch": 3,
    },
    training=True,
)
# A short word, and one that fills all ten characters.
LENGTHS = np.array([3, 10])


def test_operations_of_each_part():
    # (2 * 4 rows) x (4 * 8 columns), a projection 8 x 4, two layers.
    assert lstm_operations(OPTIONS) == 2 * 2 * (8 * 32 + 8 * 4)
    # A target and three samples of four numbers.
    assert softmax_operations(OPTIONS) == 2 * 4 * 4
    # 13 windows of 1 and 3 + 8 windows of 3 characters; per word, a highway layer and a projection.
    convolutions = 13 * (1 * 2) * 2 + 11 * (3 * 2) * 5
    assert encoder_operations(OPTIONS, LENGTHS) == 2 * (convolutions + 2 * (2 * 7 * 7 + 7 * 4))


def test_parts_that_a_network_lacks_cost_nothing():
    lstm = dataclasses.replace(OPTIONS.lstm, projection_dim=8)
    no_projection = dataclasses.replace(OPTIONS, lstm=lstm, char_cnn=None)
    assert lstm_operations(no_projection) == 2 * 2 * 16 * 32
    assert encoder_operations(no_projection, LENGTHS) == 0
    cnn = dataclasses.replace(OPTIONS.char_cnn, filters=((1, 4),), n_highway=0)
    assert encoder_operations(dataclasses.replace(OPTIONS, char_cnn=cnn), LENGTHS) == 2 * 13 * 2 * 4


def test_operations_of_a_step_and_of_a_text():
    # 2 x 5 inputs in two directions; the backward pass costs twice the forward pass.
    forward = 20 * (lstm_operations(OPTIONS) + softmax_operations(OPTIONS))
    words = encoder_operations(OPTIONS, LENGTHS)
    assert training_operations(OPTIONS, LENGTHS) == 3 * (forward + words)
    # Ten words in two directions; the eight repeated ones save 4 x (4 * 8) in the first layer.
    of_eight = 16 * 2 * 4 * 32
    assert (
        embedding_operations(OPTIONS, 10, LENGTHS)
        == 20 * lstm_operations(OPTIONS) - of_eight + words
    )


def test_speeds_are_related_to_the_machine():
    speed = Speed(1000.0, 5e7, "bfloat16", wanted=4.0, original=250.0)
    record = speed.record({"float32": [90.0, 110.0], "bfloat16": [190.0, 210.0]})
    assert record["per_gflops"] == pytest.approx(10.0)
    assert record["share_of_ceiling"] == pytest.approx(0.25)  # 50 of 200 GFLOP/s
    assert record["times_original"] == pytest.approx(8.0)  # 10 against 250 / 200


def record_of(measured, **others):
    row = Row("some-row", "what it is", lambda workspace, effort: measured)
    return measure(row, Workspace(None, None), Effort.TRIAL) | others


@pytest.fixture
def product_of_100(monkeypatch):
    monkeypatch.setattr("benchmarks.rows.measure_product", lambda precision: 100.0)


def test_the_table_shows_speeds_and_figures(product_of_100):
    measured = Measured(
        Speed(1234.0, 1e7, "float32", wanted=10, original=245),
        (Figure("memory", 12.34, "MB", 20), Figure("rate", 2e6, "tokens/s", 1e6, at_most=False)),
    )
    record = record_of(measured)
    lines = format_results([record]).splitlines()
    assert lines[1].split() == ["some-row", "1,234", "100", "12.3", "10", "12", "%", "10.1", "x"]
    assert lines[-2].split() == ["some-row", "memory", "12.3", "MB", "<=", "20", "100"]
    assert lines[-1].split()[2:] == ["2,000,000", "tokens/s", ">=", "1,000,000", "100"]
    assert summary(record).startswith("1,234 tokens/s; memory 12.3 MB; rate 2,000,000 tokens/s (in")


def test_traces_are_counted():
    function = tf.function
    with counted_functions() as traces:

        @tf.function
        def double(x):
            return 2 * x

        triple = tf.function(lambda x: 3 * x, autograph=False)
        assert double(tf.ones(2)).numpy().tolist() == [2, 2]
        double(tf.ones(2))
        double(tf.ones(3))
        triple(tf.ones(2))
    assert sorted(traces.values()) == [1, 2]
    assert tf.function is function


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_read():
    reset_peak()
    before = resident()
    values = np.ones(10_000_000)
    assert resident() - before > 0.9 * values.nbytes
    del values
    assert peak() - before > 0.9 * 8 * 10_000_000


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("the cat sat\n\non the mat , the cat\n", encoding="utf-8")
    return path


def test_the_list_names_every_row(capsys):
    assert main(["--list"]) == 0
    named = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert named == list(ROWS)
    assert "train-original-bfloat16" in named


def test_a_file_of_results_that_cannot_be_written(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--json", str(tmp_path / "missing" / "results.json")])
    assert "--json must be a file in an existing folder" in capsys.readouterr().err


def test_texts_of_another_corpus_are_not_reused(tmp_path, corpus):
    other = tmp_path / "other.txt"
    other.write_text("a dog ran\n", encoding="utf-8")
    first, second = (Workspace(tmp_path, path).text(3) for path in (corpus, other))
    assert first.path.read_text(encoding="utf-8") == "the cat sat\n"
    assert second.path.read_text(encoding="utf-8") == "a dog ran\n"


@pytest.mark.slow
def test_a_row_from_end_to_end(tmp_path, corpus, capsys):
    results = tmp_path / "results.json"
    arguments = ["--corpus", str(corpus), "--trial", "--row", "make-batches"]
    assert main([*arguments, "--json", str(results)]) == 0
    record = json.loads(results.read_text(encoding="utf-8"))
    assert (record["corpus"], record["effort"]) == ("corpus.txt", "trial")
    assert record["versions"].keys() >= {"python", "bilm", "tensorflow", "keras"}
    (row,) = record["rows"]
    assert row["row"] == "make-batches"
    assert [figure["value"] > 0 for figure in row["figures"]] == [True, True]
    out, err = capsys.readouterr()
    assert "trial run on corpus.txt" in out
    assert "make-batches   compact batches" in out
    assert "[1/1] make-batches" in err
