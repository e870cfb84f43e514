"""A training run whose file operations fail, one after the other, ends as one without faults."""

from __future__ import annotations

import pytest

from tests.faulty_files import run_faulty


@pytest.mark.slow
def test_each_operation_may_fail():
    """Killed at each operation, and the n-th run at its n-th one; other faults at some."""
    plan = ("halt:1", "halt:row", "torn:9", "error:4", "full:9")
    assert run_faulty("tests.faulty_training", *plan).splitlines()[-1] == "0 problems"
