"""File operations that fail, one at a time: a full disk, I/O errors, kills.

A preloaded library (faulty_files.c) counts the operations that change files below a folder, by
Python, HDF5 and TensorFlow, and makes one of them fail:

    kill    the process is killed at the operation
    halt    simulates a kill in a living process: this and all later operations have no effect
    torn    like halt, but a write still writes its first half
    error   EIO, once
    full    ENOSPC, from then on, for everything that needs disk space

`Case` defines what a command may leave behind; `explore` checks it for each operation. The
programs that use these run in their own process, see `run_faulty`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
KINDS = ("kill", "halt", "torn", "error", "full")
REMOVALS = ("unlink", "rmdir")
# First letters of operations at which a kind of failure equals a kill, or cannot occur.
_ALIKE = {"torn": "ofcrumlas", "full": "fcru"}


# In the tests


@functools.cache
def _library() -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler, and Linux")
    path = Path(tempfile.mkdtemp(prefix="bilm-faulty-"), "faulty.so")
    source = Path(__file__).with_name("faulty_files.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", path, source, "-ldl"]
    subprocess.run(command, check=True)
    return str(path)


def run_faulty(module: str, *arguments: object) -> str:
    """Run a test module with the library preloaded; it must exit with 0. Returns its output."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    environment = {**os.environ, "LD_PRELOAD": _library(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout


# In the process that has the library


class Outcome(NamedTuple):
    """How a command ended when an operation failed.

    Attributes:
        code: exit code; None if the command was killed.
        said: standard output and error.
        operations: the first letter of each operation up to the end of the command.
        failed: name of the operation that failed; "" if the command ended before it.
    """

    code: int | None
    said: str
    operations: str
    failed: str


@contextlib.contextmanager
def faults(folder: Path, number: int, kind: str) -> Iterator[Callable[[], tuple[str, str]]]:
    """Make operation `number` (0-based) below `folder` fail within the block. Yields a function
    that stops this and returns the operations so far and the one that failed."""
    library = ctypes.CDLL(None)
    library.faulty_failed.restype = ctypes.c_char_p
    library.faulty_trace.restype = ctypes.c_char_p
    library.faulty_arm(os.fsencode(folder), ctypes.c_long(number), KINDS.index(kind))

    def end() -> tuple[str, str]:
        library.faulty_disarm()
        return library.faulty_trace().decode(), library.faulty_failed().decode()

    try:
        yield end
    finally:
        end()


def run_here(command: Callable[[], int], folder: Path, number: int, kind: str) -> Outcome:
    """Run a command in this process."""
    said, code = io.StringIO(), None
    with faults(folder, number, kind) as end:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = command()
            except SystemExit as error:
                code = error.code
            except BaseException as error:
                said.write(f"Traceback: {error!r}")
        operations, failed = end()
    return Outcome(code, said.getvalue(), operations, failed)


def run_forked(command: Callable[[], int], folder: Path, number: int, kind: str) -> Outcome:
    """Run a command in a fork of this process."""
    with tempfile.TemporaryDirectory() as place:
        result = Path(place, "result")
        child = os.fork()
        if child == 0:
            outcome = run_here(command, folder, number, kind)
            result.write_text("\n".join(map(str, [*outcome[::2], outcome.failed, outcome.said])))
            os.kill(os.getpid(), signal.SIGKILL)  # without running the tests' own exit handlers
        os.waitpid(child, 0)
        if not result.exists():
            return Outcome(None, "", "", "killed")
        code, operations, failed, said = result.read_text().split("\n", 3)
        return Outcome(int(code) if code.isdigit() else None, said, operations, failed)


Tree = dict[str, bytes]


def tree_of(folder: Path, normal: Callable[[str, bytes], bytes] | None = None) -> Tree:
    """The contents of all files below a folder; names of subfolders end in "/"."""
    tree: Tree = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() and not path.is_symlink():
            tree[f"{name}/"] = b""
            continue
        content = path.read_bytes()
        tree[name] = content if normal is None else normal(name, content)
    return tree


@dataclass
class Case:
    """A command, and what it may leave behind.

    Attributes:
        command: function that is called in the working folder, which has the user's files.
        keeps: files that may be left for a rerun of the command, even after an error.
        runs: `run_here` or `run_forked`.
        normal: function of a file's name and contents that removes permitted differences.
    """

    command: Callable[[], int]
    keeps: tuple[str, ...] = ()
    runs: Callable[..., Outcome] = run_here
    normal: Callable[[str, bytes], bytes] | None = None
    problems: list[str] = field(default_factory=list)


def explore(
    case: Case,
    name: str,
    users: Path,
    work: Path,
    kinds: Sequence[str],
    every: int = 1,
    every_write: int = 1,
) -> int:
    """Run a case with every `every`th operation failing in each way; return the number of
    operations.

    Args:
        users: folder with the user's files before the command.
        work: working folder, which is replaced.
        every_write: used for writes instead of `every`.
    """
    for _ in range(2):  # the first run is slow, and may save more often
        begin(users, work)
        whole = case.runs(case.command, work, -1, "error")
    assert whole.code == 0 and "Traceback" not in whole.said, (name, whole)
    before, expected = tree_of(users, case.normal), tree_of(work, case.normal)
    for kind in kinds:
        for number, letter in enumerate(whole.operations):
            # Skip failures that equal a kill or cannot occur at this operation.
            if number % (every_write if letter == "w" else every) or letter in _ALIKE.get(kind, ""):
                continue
            begin(users, work)
            outcome = case.runs(case.command, work, number, kind)
            if not outcome.failed:
                break  # this run was faster, and saved less often
            where = f"{name}, {kind} at operation {number} ({outcome.failed})"
            wrong = [*_after_fault(case, kind, outcome, before, expected, work)]
            again = case.runs(case.command, work, -1, "error")
            wrong += _after_again(case, again, expected, work)
            case.problems += [f"{where}: {problem}" for problem in wrong]
    return len(whole.operations)


def begin(users: Path, work: Path) -> None:
    """Copy the user's files to a new working folder and change to it."""
    os.chdir(users)
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(users, work, symlinks=True)
    os.chdir(work)


def _after_fault(
    case: Case, kind: str, outcome: Outcome, before: Tree, expected: Tree, work: Path
) -> Iterator[str]:
    found = tree_of(work, case.normal)
    is_killed = kind in ("kill", "halt", "torn")
    if not is_killed and ("Traceback" in outcome.said or outcome.code not in (0, 1)):
        yield f"exit {outcome.code}: {outcome.said[-1500:]}"
    if outcome.code == 0 and not is_killed and any(found.get(p) != c for p, c in expected.items()):
        yield "exit 0, and the result is not there"
    for path, content in before.items():
        folder, _, rest = path.partition("/")
        if f".{folder}.old/{rest}" in found:  # a folder that is being replaced
            continue
        if found.get(path) not in (content, expected.get(path)):
            yield f"{path} was the user's and is changed"
    for path in found.keys() - before.keys():
        is_hidden = any(part.startswith(".") for part in path.split("/"))
        if path in expected:
            if found[path] != expected[path]:
                yield f"{path} is a half result"
        elif path.split("/")[0] in case.keeps or path.endswith("/") or ".old/" in path:
            continue
        elif not is_hidden or not (is_killed or outcome.failed in REMOVALS):
            yield f"{path} is left"


# A kill between two renames leaves complete files, which only --force replaces.
_REFUSALS = ("would be overwritten", "which are never overwritten", "was left by a killed run")


def _after_again(case: Case, again: Outcome, expected: Tree, work: Path) -> Iterator[str]:
    found = tree_of(work, case.normal)
    if "Traceback" in again.said:
        yield f"again: a traceback: {again.said[-1500:]}"
    is_refused = again.code == 1 and any(text in again.said for text in _REFUSALS)
    for path, content in expected.items():
        if found.get(path) != content and not (is_refused and path not in found):
            yield f"again: {path} is not as it should be: {again.said[-500:]}"
    for path in found.keys() - expected.keys():
        if not any(part.startswith(".") for part in path.split("/")):
            yield f"again: {path} is left: {again.said[-500:]}"


def report(cases: dict[str, Case], counts: dict[str, int]) -> int:
    """Print the problems; return the exit code of the program."""
    problems = [problem for case in cases.values() for problem in case.problems]
    for name, count in counts.items():
        print(f"{name}: {count} operations")
    print("\n".join(problems[:60]))
    print(f"{len(problems)} problems")
    return 1 if problems else 0
