"""`bilm` in its own process, which tests kill, interrupt or leave without disk space."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def start_bilm(
    arguments: Sequence[str], environment=None, program: str | None = None, **settings
) -> subprocess.Popen[str]:
    """Start `bilm`, or a Python program; `environment` adds to the tests' environment."""
    start = ["-m", "bilm"] if program is None else ["-c", program]
    return subprocess.Popen(
        [sys.executable, *start, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """Wait until a condition holds, and return its value; fail if the process ends before."""
    while not (value := condition()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    return value


def saved_steps(save_dir: Path) -> list[int]:
    """The steps of the checkpoints in a folder."""
    saved = save_dir.glob("model.ckpt-*.index")  # without temporary names
    return [int(path.stem.removeprefix("model.ckpt-")) for path in saved]
