"""Some hundred changed files of all formats, and that the fuzzer finds what it looks for."""

from __future__ import annotations

import pytest

from tests.fuzz.formats import FORMATS, PLANTED
from tests.fuzz.run import Worker, fuzz, in_turn, summary
from tests.fuzz.worker import HELD, REFUSED

# The crash comes last: nothing starts the worker again then.
FAULTS = [name for name in PLANTED if name not in ("planted hang", "planted crash")]
FAULTS.append("planted crash")


@pytest.fixture(scope="module")
def worker():
    with Worker(seconds=60) as worker:
        yield worker


@pytest.mark.parametrize(
    "numbers", [range(4), pytest.param(range(4, 10), marks=pytest.mark.slow)], ids=["some", "more"]
)
def test_changed_files_are_read_right_or_refused(worker, numbers):
    result = fuzz(in_turn(seed=0, numbers=numbers), worker=worker)
    assert not result.findings, summary(result)
    outcomes = {outcome for _, outcome in result.counts}
    assert result.n_cases == len(numbers) * len(FORMATS) and outcomes == {HELD, REFUSED}


def test_the_files_of_a_seed_are_the_same_each_time(worker):
    answers = [worker.ask("inference options", 1, 5) for _ in range(2)]
    assert answers[0] == answers[1]
    contents = set()
    for number in (5, 6, 5):
        worker.ask("inference options", 1, number)
        contents.add((worker.case / "options.json").read_bytes())
    assert len(contents) == 2


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(worker, name, tmp_path):
    signatures = {
        "planted error": "KeyError at formats.py",
        "planted crash": "crash -6",
        "planted disclosure": "opened",
        "planted memory": "MemoryError at formats.py",
        "planted number": "AssertionError at worker.py",
        "planted process": "os.system",
    }
    result = fuzz([(name, 1, 2)], worker=worker, store=tmp_path)
    [finding] = result.findings.values()
    assert finding.signature.startswith(signatures[name])
    assert f"--seed 1 --case '{name}' 2" in str(finding)
    [kept] = tmp_path.iterdir()
    assert (kept / "options.json").exists()
    assert str(finding) == (kept / "FINDING.txt").read_text(encoding="utf-8").rstrip("\n")


@pytest.mark.slow
def test_a_hang_is_found_and_ended():
    with Worker(seconds=2) as worker:
        assert worker.ask("planted hang", 0, 0)[:2] == ("finding", "hang")
        assert worker.ask("inference options", 0, 0)[0] in (HELD, REFUSED)
