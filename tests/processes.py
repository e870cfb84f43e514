"""`bilm` in a process of its own, to be killed, interrupted or left without space."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


def start_bilm(
    arguments: Sequence[str], environment=None, program: str | None = None, **settings
) -> subprocess.Popen[str]:
    """The command line, or a program; `environment` is added to that of the tests."""
    start = ["-m", "bilm"] if program is None else ["-c", program]
    return subprocess.Popen(
        [sys.executable, *start, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def bound_files(n_bytes: int) -> Callable[[], None]:
    """For `preexec_fn`: no file may grow larger, which stands for a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait until something is so, as long as a process runs."""
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def saved_steps(save_dir: Path) -> list[int]:
    """The steps of the checkpoints in a folder."""
    saved = save_dir.glob("model.ckpt-*.index")  # not those under a temporary name
    return [int(path.stem.removeprefix("model.ckpt-")) for path in saved]
