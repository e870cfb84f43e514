"""A kill, an error of the disk, a full disk or a torn write at any file operation of a command:
what was there stays, no half result has a name, and the same command again gives the whole."""

from __future__ import annotations

import pytest

from tests.faulty_files import run_faulty

# What the module takes; the numbers say at which operations: each one, or each n-th.
JOBS = {
    "texts, some": ("tests.faulty_texts", 47),
    "texts": ("tests.faulty_texts", 1),
    "vectors": ("tests.faulty_models", "vectors", 3),
    "models": ("tests.faulty_models", "models", 2),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if "some" in name else pytest.mark.slow) for name in JOBS]
)
def test_each_operation_may_fail(name):
    module, *arguments = JOBS[name]
    assert run_faulty(module, *arguments).splitlines()[-1] == "0 problems"
