"""Switch for the full run of the heavy suites: ``python -m tests.full`` sets it, a commit runs a small part."""

from __future__ import annotations

import os

import pytest

#: Name of the environment variable.
VARIABLE = "EXEC_TEST_FULL"
IS_FULL = bool(os.environ.get(VARIABLE))
#: Rounds of the fault suites, as a multiple of what a commit runs.
SCALE = 10 if IS_FULL else 1
#: Mark of a test that a commit leaves out.
only_in_full = pytest.mark.skipif(not IS_FULL, reason="runs in full only")


def scaled(full: int, *, per_commit: int) -> int:
    """Return how many rounds to run: `full` in the full run, `per_commit` otherwise."""
    return full if IS_FULL else per_commit
