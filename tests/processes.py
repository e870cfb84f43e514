"""`bilm` in its own process, which tests kill, interrupt or leave without disk space."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

# Processes are forked from one that has imported TensorFlow, which takes most of a short command's
# time, and has not used it.
_SERVER: Any = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["bilm.training.loop", "bilm.training.start", "tests.replica_job"])


class Forked:
    """A function that runs in its own process, with the methods of `subprocess.Popen` that tests
    use."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, environment=None) -> None:
        self._outputs = [tempfile.NamedTemporaryFile("r+", encoding="utf-8") for _ in range(2)]  # noqa: SIM115
        names = [file.name for file in self._outputs]
        environment = {**os.environ, **(environment or {})}
        settings = (function, arguments, names, environment, os.getcwd())
        self._process = _SERVER.Process(target=_run, args=settings)
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, and return the standard output and standard error."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, "the process has not ended"
        out, err = (Path(file.name).read_text(encoding="utf-8") for file in self._outputs)
        return out, err


def _run(function, arguments, names, environment, folder) -> None:
    os.environ.update(environment)
    os.chdir(folder)
    for number, name in enumerate(names, start=1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND), number)
    for name in ("stdout", "stderr"):
        setattr(sys, name, open(getattr(sys, f"__{name}__").fileno(), "w", 1, encoding="utf-8"))  # noqa: SIM115
    sys.exit(function(*arguments))


def start_bilm(arguments: Sequence[str], environment=None) -> Forked:
    """Start `bilm`; `environment` adds to the tests' environment."""
    from bilm.cli import main

    return Forked(main, list(arguments), environment=environment)


def start_program(program: str) -> subprocess.Popen[str]:
    """Start a Python program."""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], Any], process: Forked) -> Any:
    """Wait until a condition holds, and return its value; fail if the process ends before."""
    while not (value := condition()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    return value


def saved_steps(save_dir: Path) -> list[int]:
    """The steps of the checkpoints in a folder."""
    saved = save_dir.glob("model.ckpt-*.index")  # without temporary names
    return [int(path.stem.removeprefix("model.ckpt-")) for path in saved]
