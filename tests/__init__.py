"""Tests of bilm; a package, so that tests can import `tests.oracle`."""
