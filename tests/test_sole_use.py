"""A folder is of one run at a time, and nothing that a run has saved is lost to another."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bilm
from bilm.errors import InputError
from bilm.training.sole_use import LOCK_FILE, sole_use
from tests.small_runs import checkpoint_tensors, small_options, write_corpus

HOLDER = """
import sys, time
from bilm.training.sole_use import sole_use
with sole_use(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has `tmp_path / "run"`."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_another_process_is_refused_until_the_first_has_died(holder, tmp_path):
    message = rf"run: process {holder.pid} on \S+ trains into this folder; wait for its end"
    with pytest.raises(InputError, match=message), sole_use(tmp_path / "run"):
        pass
    options = small_options()
    with pytest.raises(InputError, match=message):
        bilm.train(options, write_corpus(tmp_path).data(options), 1, tmp_path / "run", None)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "run" / LOCK_FILE).exists()
    with sole_use(tmp_path / "run"):
        text = (tmp_path / "run" / LOCK_FILE).read_text(encoding="utf-8")
        assert text.startswith(f"process {os.getpid()} on ")
    assert os.listdir(tmp_path / "run") == []


def test_a_second_run_of_the_same_process_is_refused(tmp_path):
    with (
        sole_use(tmp_path),
        pytest.raises(InputError, match="trains into this"),
        sole_use(tmp_path),
    ):
        pass
    with sole_use(tmp_path):
        pass


def test_a_folder_that_was_made_for_nothing_goes_again(tmp_path):
    with sole_use(tmp_path / "a"):
        assert (tmp_path / "a").is_dir()
    assert not (tmp_path / "a").exists()
    with sole_use(tmp_path / "b"):
        (tmp_path / "b" / "result").touch()
    assert os.listdir(tmp_path / "b") == ["result"]


def test_files_that_cannot_be_locked(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("bilm.training.sole_use.fcntl.flock", refuse)
    with sole_use(tmp_path):
        assert "cannot be locked: Operation not supported" in caplog.text


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A corpus, options and a run of three steps, each saved."""
    corpus = write_corpus(tmp_path_factory.mktemp("corpus"))
    folder, options = tmp_path_factory.mktemp("run"), small_options()
    data = corpus.data(options)
    settings = {"save_minutes": 0, "keep_checkpoints": 9, "progress": lambda event: event.step == 3}
    bilm.train(options, data, 1, folder, folder, **settings)
    return folder, options, data


def test_going_back_does_not_lose_newer_checkpoints(saved, tmp_path):
    folder, options, data = saved
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    message = "ckpt-1: the folder has a newer checkpoint, model.ckpt-2, which would be lost. Go on"
    with pytest.raises(InputError, match=message):
        bilm.train(options, data, 1, folder, folder, str(folder / "model.ckpt-1"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    record = bilm.train(options, data, 1, tmp_path / "b", None, str(folder / "model.ckpt-1"))
    assert record.n_steps == 3 and record.checkpoint == str(tmp_path / "b" / "model.ckpt-4")


def test_going_back_from_damaged_checkpoints_replaces_them(saved, tmp_path):
    folder, options, data = saved
    shutil.copytree(folder, tmp_path / "run")
    for step in (2, 3):
        path = Path(tmp_path, "run", f"model.ckpt-{step}.data-00000-of-00001")
        contents = bytearray(path.read_bytes())
        contents[len(contents) // 2] ^= 1
        path.write_bytes(contents)
    _, prefix = bilm.load_options_latest_checkpoint(tmp_path / "run", verify=True)
    assert prefix.endswith("model.ckpt-1")
    again = bilm.train(options, data, 1, tmp_path / "run", None, prefix)
    whole = bilm.train(options, data, 1, tmp_path / "whole", None)
    for name, value in checkpoint_tensors(whole.checkpoint).items():
        assert (checkpoint_tensors(again.checkpoint)[name] == value).all(), name
