"""The log of a run, and its event files for TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest

from bilm.files.run_log import RunLog, read_log


def test_a_log_goes_back_without_double_or_broken_lines(tmp_path):
    log = RunLog(tmp_path)
    for step in (10, 20, 30):
        log.write(step=step, tokens=step)
    with open(log.path, "a", encoding="utf-8") as file:
        file.write(
            '{"step": "x"}\n{"step": "x", "tokens": 1}\n{"step": 7, "tokens": 1, "best": []}\n'
        )
        file.write('{"step": 40, "to')
    log.go_back(20)
    log.write(step=30, tokens=31)
    assert read_log(tmp_path) == [
        {"step": s, "tokens": t} for s, t in ((10, 10), (20, 20), (30, 31))
    ]
    log.go_back(0)
    assert not Path(log.path).exists()
    assert len(read_log(tmp_path / "train_log.previous.jsonl")) == 3


def test_a_log_is_json(tmp_path):
    RunLog(tmp_path).write(step=1, tokens=5, heldout_perplexity=float("inf"))
    assert read_log(tmp_path) == [{"step": 1, "tokens": 5, "heldout_perplexity": None}]


def test_a_log_that_cannot_be_written(tmp_path):
    log = RunLog(tmp_path)
    Path(log.path).mkdir()
    with pytest.raises(OSError, match=r"train_log.jsonl: cannot be written: "):
        log.write(step=1)


def test_tensorboard_reads_what_is_written(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = RunLog(tmp_path, tensorboard=True)
    log.write(step=10, tokens=60, train_perplexity=30.5, sampled=True, best=None)
    log.write(step=20, tokens=120, train_perplexity=20.5, sampled=True)
    log.write(step=20, tokens=120, heldout_perplexity=25.0, best=True)
    events = reader.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    curves = {
        tag: [(e.step, e.tensor_proto.float_val[0]) for e in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }
    assert curves == {
        "tokens": [(10, 60), (20, 120), (20, 120)],
        "train_perplexity_sampled": [(10, 30.5), (20, 20.5)],
        "heldout_perplexity": [(20, 25.0)],
    }
