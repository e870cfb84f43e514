"""Runs cases in a process that is watched, and gathers findings."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.formats import FORMATS
from tests.fuzz.worker import FINDING, HELD, REFUSED, Answer

ROOT = Path(__file__).parent.parent.parent
_RESTART_AFTER = 3000  # cases: what libraries keep of each adds up
_START_SECONDS = 600.0


@dataclass(frozen=True)
class Finding:
    """A case that neither worked nor was refused as it should be."""

    format: str
    seed: int
    number: int
    signature: str
    detail: str

    def __str__(self) -> str:
        return (
            f"{self.format}: {self.signature}\n{self.detail.rstrip()}\n"
            f"  again: python -m tests.fuzz --seed {self.seed} --case {self.format!r} {self.number}"
        )


@dataclass
class Result:
    """What came of the cases.

    Attributes:
        counts: of the outcomes of each format.
        findings: one of each signature.
        n_findings: cases of each signature.
        seconds: the time that they took.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)
    n_findings: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def n_cases(self) -> int:
        """How many there were."""
        return sum(self.counts.values())


class Worker:
    """The process of `worker.py`; a context manager.

    Args:
        seconds: a case that takes longer hangs.
        megabytes: of memory, beside what the process has at its start.
    """

    def __init__(self, seconds: float = 60.0, megabytes: int = 2048) -> None:
        self.seconds, self.megabytes = seconds, megabytes
        self.folder = tempfile.mkdtemp(prefix="bilm-fuzz-")
        self._process: subprocess.Popen[str] | None = None
        self._n_cases = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def case(self) -> Path:
        """The files of the last case."""
        return Path(self.folder, "case")

    def ask(self, name: str, seed: int, number: int) -> Answer:
        """Run a case."""
        if self._n_cases >= _RESTART_AFTER:
            self._end()
        process = self._process or self._start()
        assert process.stdin is not None
        self._n_cases += 1
        process.stdin.write(json.dumps((name, seed, number)) + "\n")
        process.stdin.flush()
        line = self._answer(process, self.seconds)
        if line is None:
            self._end()
            return FINDING, "hang", f"no answer within {self.seconds:g} seconds"
        if not line:
            code = process.wait()
            said = Path(self.folder, "stderr").read_text("utf-8", "replace")
            said = said.partition("Extension modules:")[0][-3000:]
            self._end()
            return FINDING, f"crash {code}", said
        outcome, signature, detail = json.loads(line)
        return outcome, signature, detail

    def _start(self) -> subprocess.Popen[str]:
        with open(Path(self.folder, "stderr"), "w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker", self.folder, str(self.megabytes)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3",
                     "CUDA_VISIBLE_DEVICES": "-1", "PYTHONHASHSEED": "0"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )  # fmt: skip
        self._n_cases = 0
        if not self._answer(self._process, _START_SECONDS):
            raise RuntimeError(Path(self.folder, "stderr").read_text("utf-8", "replace"))
        return self._process

    @staticmethod
    def _answer(process: subprocess.Popen[str], seconds: float) -> str | None:
        """A line; "" if the process has ended, None if it does not answer in time."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        return process.stdout.readline() if ready else None

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def fuzz(
    cases: Iterable[tuple[str, int, int]],
    *,
    worker: Worker | None = None,
    store: Path | None = None,
    until: float = float("inf"),
) -> Result:
    """Run cases: format, seed and number.

    Args:
        worker: what runs them; None starts one.
        store: a folder for the files of findings; None keeps none.
        until: `time.monotonic()` at which it ends.
    """
    result, start = Result(), time.monotonic()
    with contextlib.ExitStack() as stack:
        worker = worker or stack.enter_context(Worker())
        for name, seed, number in cases:
            if time.monotonic() > until:
                break
            outcome, signature, detail = worker.ask(name, seed, number)
            result.counts[name, outcome] += 1
            if outcome != FINDING:
                continue
            key = f"{name}: {signature}"
            result.n_findings[key] += 1
            if key not in result.findings:
                result.findings[key] = finding = Finding(name, seed, number, signature, detail)
                if store is not None:
                    _keep(finding, worker.case, store)
    result.seconds = time.monotonic() - start
    return result


def _keep(finding: Finding, case: Path, store: Path) -> None:
    name = f"{finding.format}-{finding.seed}-{finding.number}".replace(" ", "_").replace("/", "_")
    shutil.rmtree(store / name, ignore_errors=True)
    shutil.copytree(case, store / name, symlinks=True)
    (store / name / "FINDING.txt").write_text(str(finding) + "\n", "utf-8", "replace")


def in_turn(
    seed: int, formats: Sequence[str] = tuple(FORMATS), numbers: Iterable[int] | None = None
) -> Iterator[tuple[str, int, int]]:
    """Cases of all formats in turn; without `numbers` they do not end."""
    for number in itertools.count() if numbers is None else numbers:
        for name in formats:
            yield name, seed, number


def summary(result: Result) -> str:
    """A table of the outcomes, and the findings."""
    names = sorted({name for name, _ in result.counts})
    outcomes = [[result.counts[name, o] for o in (HELD, REFUSED, FINDING)] for name in names]
    lines = [f"{'format':32} {'held':>8} {'refused':>8} {'findings':>8}"]
    lines += [f"{n:32} {a:8} {b:8} {c:8}" for n, (a, b, c) in zip(names, outcomes, strict=True)]
    rate = 3600 * result.n_cases / max(result.seconds, 1e-9)
    lines.append(f"{result.n_cases} cases in {result.seconds:.0f} s ({rate:,.0f} an hour)")
    for key, finding in result.findings.items():
        lines.append(f"\n[{result.n_findings[key]} times] {finding}")
    return "\n".join(lines)
