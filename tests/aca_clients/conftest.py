"""What the command has made for a client, see ``__main__``; without it, nothing here is a test."""

from __future__ import annotations

import os

import pytest

if "EXEC_TEST_ACA_ENDPOINT" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def endpoint() -> str:
    return os.environ["EXEC_TEST_ACA_ENDPOINT"]


@pytest.fixture
def other_token() -> str:
    """The token of another user."""
    return os.environ["EXEC_TEST_ACA_OTHER_TOKEN"]
