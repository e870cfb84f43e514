"""Two replicas, on devices or in processes, train like one replica with twice the rows."""

from __future__ import annotations

import dataclasses
import json
import signal
import socket
from pathlib import Path

import numpy as np
import pytest

from bilm.training.state import read_state
from tests.command_line import OPTIONS, make_text, train_arguments
from tests.compare import assert_same_checkpoint
from tests.processes import saved_steps, start_bilm, wait_for
from tests.replica_job import results, start, tf_config
from tests.small_runs import STEPS, small_options, write_corpus

pytestmark = pytest.mark.slow

CHARACTERS = ("short_words_261", {"sample_softmax": True, "dropout": 0.3, "reset_rate": 0.5})
TIED = (
    "one_direction_one_layer_words",
    {"sample_softmax": True, "share_embedding_softmax": True, "all_clip_norm_val": 0.5},
)


def make_job(tmp_path, kind, changes):
    """A job of six steps with two rows on each of two replicas."""
    write_corpus(tmp_path)
    options = small_options(kind, batch_size=2, n_train_tokens=6 * 4 * STEPS, n_epochs=1, **changes)
    return {"corpus": str(tmp_path), "options": options}


def as_one(job, save_dir, **more):
    """The same job on one replica with all rows."""
    options = job["options"] | {"batch_size": 4}
    return job | {"options": options, "save_dir": str(save_dir)} | more


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start_two(job):
    ports = free_ports(2)
    return [start(job, worker=worker, ports=ports) for worker in range(2)]


def assert_close(mine, theirs):
    (checkpoint, perplexity, n_tokens, heldout), (other, of_other, as_many, as_held) = mine, theirs
    assert n_tokens == as_many == 6 * 4 * STEPS and len(perplexity) == 6
    np.testing.assert_allclose(perplexity, of_other, 1e-5)
    assert [step for step, *_ in heldout] == [3, 6]
    for measured, expected in zip(heldout, as_held, strict=True):
        numbers = [[x for x in each if x is not None] for each in (measured, expected)]
        np.testing.assert_allclose(*numbers, 1e-5)
    assert_same_checkpoint(checkpoint, other, 1e-5, 1e-5)


def assert_same(checkpoint, other):
    assert_same_checkpoint(checkpoint, other)
    clocks = {"run_seconds": 0, "elapsed": 0}
    mine, theirs = (dataclasses.replace(read_state(p), **clocks) for p in (checkpoint, other))
    assert mine == theirs


SAVED = {"save_minutes": 0, "keep_checkpoints": 9}


def test_two_devices_are_one_with_twice_the_rows_and_resume(tmp_path):
    """Also: a process trains several networks in turn on the same devices."""
    job = make_job(tmp_path, *TIED)
    two = job | {"save_dir": str(tmp_path / "two"), "n_gpus": 2} | SAVED
    checkpoint = str(tmp_path / "two" / "model.ckpt-2")
    resumed = two | {"save_dir": str(tmp_path / "resumed"), "checkpoint": checkpoint}
    one = start(as_one(job, tmp_path / "one"))
    whole, end = results(start(two, resumed))
    assert_same(end[0], whole[0])
    assert_close(whole, results(one)[0])


def test_two_processes_are_one_with_the_rows_of_both(tmp_path):
    """And a run continues with another number of workers."""
    job = make_job(tmp_path, *CHARACTERS)
    one = start(as_one(job, tmp_path / "one", joined=2))
    workers = start_two(job | {"save_dir": str(tmp_path / "two")} | SAVED)
    [two], [of_other] = (results(process) for process in workers)
    assert two == of_other
    assert_close(two, results(one)[0])
    names = {path.name for path in (tmp_path / "two").glob("*.index")}
    assert names == {f"model.ckpt-{n}.index" for n in range(1, 7)}
    log = (tmp_path / "two" / "train_log.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in log] == [1, 3, 6, 6]
    places = read_state(two[0]).iterator_state
    assert [(place.worker, place.n_workers) for place in places] == [(0, 2), (1, 2)]

    stopped = str(tmp_path / "two" / "model.ckpt-3")
    shard = min(place.shard for place in read_state(stopped).iterator_state)
    alone = start(as_one(job, tmp_path / "alone", checkpoint=stopped, stop=4))
    said = alone.communicate(timeout=300)[1]
    assert "now 4 by 4, workers were 2 and are now 1; the LSTM states start at zero" in said
    state = read_state(str(tmp_path / "alone" / "model.ckpt-4"))
    assert state.done == 4 and state.iterator_state[0].shard >= shard
    assert (state.iterator_state[0].worker, state.iterator_state[0].n_workers) == (0, 1)


# The command


def start_command(text, save_dir):
    """Start two workers with the same command."""
    arguments = train_arguments(
        text, str(save_dir), "--seed", "3", "--heldout_prefix", text.heldout,
        "--heldout_every", "7steps", "--save_minutes", "1e-6",
    )  # fmt: skip
    ports = free_ports(2)
    return [start_bilm(arguments, {"TF_CONFIG": tf_config(worker, ports)}) for worker in range(2)]


def ends(processes):
    """Exit codes and standard error of processes, once they have ended."""
    said = [process.communicate(timeout=300)[1] for process in processes]
    assert not any("Traceback" in text for text in said), said
    return [process.returncode for process in processes], said


def test_workers_that_stop_or_die_stop_the_other_and_the_run_goes_on(tmp_path):
    """One worker is interrupted, then the other one is killed."""
    text, whole, run = make_text(tmp_path), tmp_path / "whole", tmp_path / "run"
    options = {name: value for name, value in OPTIONS.items() if name != "char_cnn"}
    options |= {"bidirectional": False, "lstm": OPTIONS["lstm"] | {"n_layers": 1}}
    Path(text.options).write_text(json.dumps(options), encoding="utf-8")  # is traced fast
    codes, said = ends(start_command(text, whole))
    assert codes == [0, 0], said
    processes = start_command(text, run)
    wait_for(lambda: saved_steps(run), processes[0])
    processes[1].send_signal(signal.SIGINT)
    codes, said = ends(processes)
    assert codes == [1, 130], said
    assert "error: Another worker cannot be reached any more" in said[0]
    assert "; the last checkpoint is" in said[0]
    assert "interrupted. The last checkpoint is" in said[1]

    step = max(saved_steps(run)) + 2
    processes = start_command(text, run)
    wait_for(lambda: max(saved_steps(run)) >= step, processes[0])
    processes[0].kill()
    codes, said = ends(processes)
    assert codes == [-signal.SIGKILL, 1]
    error = said[1].splitlines()[-1]
    assert "error: Another worker cannot be reached any more" in error
    assert "; the last checkpoint is" in error and "start the same command for all" in error

    assert ends(start_command(text, run))[0] == [0, 0]
    assert_same(str(run / "model.ckpt-12"), str(whole / "model.ckpt-12"))
    best = read_state(str(whole / "model.ckpt-12")).best_step
    assert (run / "best" / f"model.ckpt-{best}.index").exists()
