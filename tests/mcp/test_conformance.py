"""MCP's conformance suite: the fixture server on the SDK's own transport, which others are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.conformance import FAILING_NOT_SCORED, FAILING_WITH_SDK, REVISIONS, run_conformance
from tests.mcp.reference_server import running_reference
from tests.support.full import only_in_full

pytestmark = [only_in_full, pytest.mark.timeout(900)]


@pytest.mark.parametrize("revision", REVISIONS)
def test_fixture_server_on_sdk_transport_fails_what_is_known(revision: str, tmp_path: Path) -> None:
    with running_reference() as url:
        report = run_conformance(url, revision, tmp_path)
    assert report.not_run == set()
    assert report.failed == set(FAILING_WITH_SDK[revision])
    assert len(report.passed) > 60
    assert report.failing_not_scored == set(FAILING_NOT_SCORED[revision])
