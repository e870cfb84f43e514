"""A training run with faults in its file operations ends like a run without faults."""

from __future__ import annotations

import pytest

from tests.faulty_files import run_faulty


@pytest.mark.slow
def test_each_operation_may_fail():
    """The n-th run is killed at its n-th operation; other faults are tried at some operations."""
    plan = ("halt:row", "halt:3", "torn:19", "error:7", "full:19")
    assert run_faulty("tests.faulty_training", *plan).splitlines()[-1] == "0 problems"
