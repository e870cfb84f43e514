"""The lock of a training folder, and interrupts that wait for the end of a step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import bilm
from bilm.core.errors import InputError
from bilm.files.locks import TRAINING_LOCK, training_lock
from bilm.training.interrupts import Interrupts, killable
from tests.small_runs import small_options, write_corpus

HOLDER = """
import sys, time
from bilm.files.locks import training_lock
with training_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of `tmp_path / "run"`."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        yield other
        other.kill()


def test_another_process_is_refused_until_the_first_has_died(holder, tmp_path):
    message = rf"run: process {holder.pid} on \S+ trains"
    with pytest.raises(InputError, match=message), training_lock(tmp_path / "run"):
        pass
    options = small_options()
    with pytest.raises(InputError, match=message):
        bilm.train(options, write_corpus(tmp_path).data(options), 1, tmp_path / "run", None)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "run" / TRAINING_LOCK).exists()
    with training_lock(tmp_path / "run"):
        text = (tmp_path / "run" / TRAINING_LOCK).read_text(encoding="utf-8")
        assert text.startswith(f"process {os.getpid()} on ")
    assert os.listdir(tmp_path / "run") == []


def test_a_second_run_of_the_same_process_is_refused(tmp_path):
    with (
        training_lock(tmp_path),
        pytest.raises(InputError, match="trains into this"),
        training_lock(tmp_path),
    ):
        pass
    with training_lock(tmp_path):
        pass


def test_files_that_cannot_be_locked(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with training_lock(tmp_path):
        assert "cannot be locked: Operation not supported" in caplog.text


# Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_the_step(number):
    done, signals = [], Interrupts()
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), signals.handled():
        os.kill(os.getpid(), number)
        done.append("the step")
        signals.due()
        done.append("not this")
    assert done == ["the step"] and not signals.insisted
    assert signal.getsignal(number) is before


def test_a_second_interrupt_does_not_wait_and_is_told():
    done, signals = [], Interrupts()
    with pytest.raises(KeyboardInterrupt), signals.handled():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("the first")
        os.kill(os.getpid(), signal.SIGINT)
        done.append("not this")
    assert done == ["the first"] and signals.insisted


def test_an_interrupt_that_comes_last_is_raised_at_the_end():
    with pytest.raises(KeyboardInterrupt), Interrupts().handled():
        os.kill(os.getpid(), signal.SIGINT)


def test_while_others_are_waited_for_ctrl_c_ends_the_process():
    before = signal.getsignal(signal.SIGINT)
    with killable():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is before
    with Interrupts().handled(), killable():  # an existing handler stays
        assert signal.getsignal(signal.SIGINT) is not signal.SIG_DFL
