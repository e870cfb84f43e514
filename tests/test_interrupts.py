"""The lock of a training folder, and interrupts that wait for the end of a step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import bilm
from bilm.core.errors import InputError
from bilm.training.interrupts import Interrupts, killable
from tests.small_runs import small_options, write_corpus

HOLDER = """
import sys, time
from bilm.files.writing import locked
with locked(sys.argv[1], ""):
    print("held", flush=True)
    time.sleep(600)
"""


def test_another_process_trains_into_the_folder_until_it_dies(tmp_path):
    """SECURITY.md: a lock; a file of the user with its name stays."""
    run, options = tmp_path / "run", small_options()
    run.mkdir()
    (run / ".train.lock").write_text("mine")
    data = write_corpus(tmp_path).data(options)
    command = [sys.executable, "-c", HOLDER, str(run / ".train.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="run: another process trains into this folder; wait"):
            bilm.train(options, data, 1, run, None)
        other.kill()
    assert os.listdir(run) == [".train.lock"]
    bilm.train(options, data, 1, run, None)
    assert (run / ".train.lock").read_text() == "mine"


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
    assert done == ["the step"]
    assert signal.getsignal(number) is before


def test_a_second_interrupt_does_not_wait():
    done, signals = [], Interrupts()
    with pytest.raises(KeyboardInterrupt), signals.handled():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("the first")
        os.kill(os.getpid(), signal.SIGINT)
        done.append("not this")
    assert done == ["the first"]


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
