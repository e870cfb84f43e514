"""Run all slow tests: each file in a pytest process of its own, two at a time.

Some files take gigabytes or end processes, so they don't share one. Prints the seconds of each
file, the output of files that fail, and their names at the end. Exit code 1 if there are any.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

PROCESSES = 2
MINUTES = 30  # for one file
# The files that take longest start first.
FIRST = "devices docs ray faulty_files tasks run_resume training_kinds faulty_training".split()
PYTEST = [sys.executable, "-m", "pytest", "-m", "slow", "-n", "0"]


class Result(NamedTuple):
    file: str
    ending: str
    output: str


def slow_files() -> list[str]:
    """The files that have slow tests, as pytest collects them."""
    done = subprocess.run([*PYTEST, "--collect-only", "-qq"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    files = re.findall(r"^(tests/\S+\.py): \d+$", done.stdout, re.MULTILINE)
    first = [f"tests/test_{name}.py" for name in FIRST]
    return sorted(files, key=lambda file: first.index(file) if file in first else len(first))


def run(file: str) -> Result:
    """Run the slow tests of a file; at the time limit, kill them and what they started."""
    start = time.monotonic()
    process = subprocess.Popen(
        [*PYTEST, "-v", "--durations=5", "--durations-min=20", file],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=60 * MINUTES)
        ending = "passed" if process.returncode == 0 else f"failed, exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        ending = f"failed, not done after {MINUTES} minutes"
    lines = output.strip().splitlines() or ["no output"]
    print(f"{time.monotonic() - start:6.0f} s  {file}: {lines[-1].strip('= ')}", flush=True)
    return Result(file, ending, output)


def main() -> int:
    files = slow_files()
    with ThreadPoolExecutor(PROCESSES) as pool:
        results = list(pool.map(run, files))
    failed = [result for result in results if result.ending != "passed"]
    for result in failed:
        print(f"\n==== {result.file}\n{result.output}")
    for result in failed:
        print(f"{result.file}: {result.ending}")
    print(f"slow tests: {len(files)} files, {len(failed)} failed")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
