"""A kill, a disk error, a full disk or a torn write at any file operation of a command: existing
files stay, no partial result gets the final name, and rerunning gives the complete result."""

from __future__ import annotations

import pytest

from tests.faulty_files import run_faulty

# Modules with their arguments; a number n stands for faults at every n-th operation.
JOBS = {
    "texts, some": ("tests.faulty_texts", 97),
    "texts": ("tests.faulty_texts", 1),
    "vectors": ("tests.faulty_models", "vectors", 25),
    "models": ("tests.faulty_models", "models", 16),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if "some" in name else pytest.mark.slow) for name in JOBS]
)
def test_each_operation_may_fail(name):
    module, *arguments = JOBS[name]
    assert run_faulty(module, *arguments).splitlines()[-1] == "0 problems"
