"""Run all slow tests, in two pytest processes at a time.

Files that take long, take gigabytes or end processes have a process of their own; eight others
share one, because each process pays for importing TensorFlow. Prints the seconds of each process,
the output of those that fail, and their files at the end. Exit code 1 if there are any.
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
MINUTES = 30  # for one process
# They have a process of their own, and those that take longest start first.
ALONE = (
    "devices docs engines faulty_files run_resume tasks training_kinds faulty_training "
    "usage_examples run_training export evaluation_memory"
).split()
FILES = 8  # of the others in one process
PYTEST = [sys.executable, "-m", "pytest", "-m", "slow", "-n", "0"]


class Result(NamedTuple):
    files: str
    ending: str
    output: str


def slow_files() -> list[list[str]]:
    """The files that have slow tests, as pytest collects them: those of each process."""
    done = subprocess.run([*PYTEST, "--collect-only", "-qq"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    files = re.findall(r"^(tests/\S+\.py): \d+$", done.stdout, re.MULTILINE)
    alone = [f"tests/test_{name}.py" for name in ALONE]
    others = [file for file in files if file not in alone]
    n_shared = -(-len(others) // FILES)
    return [[file] for file in alone if file in files] + [
        others[first::n_shared] for first in range(n_shared)
    ]


def run(files: list[str]) -> Result:
    """Run the slow tests of some files; at the time limit, kill them and what they started."""
    start = time.monotonic()
    process = subprocess.Popen(
        [*PYTEST, "-v", "--durations=5", "--durations-min=20", *files],
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
    names = " ".join(files)
    print(f"{time.monotonic() - start:6.0f} s  {names}: {lines[-1].strip('= ')}", flush=True)
    return Result(names, ending, output)


def main() -> int:
    groups = slow_files()
    with ThreadPoolExecutor(PROCESSES) as pool:
        results = list(pool.map(run, groups))
    failed = [result for result in results if result.ending != "passed"]
    for result in failed:
        print(f"\n==== {result.files}\n{result.output}")
    for result in failed:
        print(f"{result.files}: {result.ending}")
    print(f"slow tests: {sum(map(len, groups))} files, {len(failed)} processes of tests failed")
    return 1 if failed or not groups else 0


if __name__ == "__main__":
    sys.exit(main())
