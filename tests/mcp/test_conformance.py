"""MCP's conformance suite, with the fixture server behind this package's transport and behind the SDK's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.conformance import (
    FAILING_NOT_SCORED,
    FAILING_TASK_CHECKS,
    FAILING_WITH_SDK,
    REVISIONS,
    run_conformance,
)
from tests.mcp.places import with_extension
from tests.mcp.reference_server import running_reference
from tests.support.full import only_in_full

pytestmark = [only_in_full, pytest.mark.timeout(900)]


@pytest.mark.parametrize("revision", REVISIONS)
def test_fixture_server_on_sdk_transport_fails_what_is_known(revision: str, tmp_path: Path) -> None:
    with running_reference() as url:
        report = run_conformance(url, revision, tmp_path / "results")
    assert report.not_run == set()
    assert report.failed == set(FAILING_WITH_SDK[revision])
    assert len(report.passed) > 60
    assert report.failing_not_scored == set(FAILING_NOT_SCORED[revision])


@pytest.mark.parametrize("revision", REVISIONS)
def test_fixture_server_on_this_transport_fails_no_more_than_on_the_sdks(revision: str, tmp_path: Path) -> None:
    with with_extension("tests.mcp.fixture_extension", tmp_path / "home") as place:
        report = run_conformance(place.url, revision, tmp_path / "results", place.token)
    assert report.not_run == set()
    assert report.failed <= set(FAILING_WITH_SDK[revision])
    assert len(report.passed) > 60
    assert report.failing_not_scored <= set(FAILING_NOT_SCORED[revision])


def test_tasks_of_the_endpoint_fail_no_more_than_what_they_do_not_offer(tmp_path: Path) -> None:
    with with_extension("tests.mcp.task_tools", tmp_path / "home") as place:
        report = run_conformance(place.url, "2026-07-28", tmp_path / "results", place.token)
    assert {name for name in report.failed_not_scored if name.startswith("tasks-")} == set(FAILING_TASK_CHECKS)
    assert len([name for name in report.passed_not_scored if name.startswith("tasks-")]) > 30
