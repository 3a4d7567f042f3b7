"""Heartbeats of event streams, on both hosts: as often as the caller asks, within bounds."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.bearers import owner_of
from tests.support.hosts import Host

SSE = {"Accept": "text/event-stream"}
SLEEP = {"code": "import time; time.sleep(60)"}
COMMENT = b":"


@pytest.fixture(params=["server", "gateway"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = hosts[request.param]
    return started


@pytest.mark.parametrize("path", ["/events", "/executions"])
def test_stream_is_never_silent_for_longer_than_was_asked_for(host: Host, path: str) -> None:
    owner = owner_of(host)
    method, body = ("GET", None) if path == "/events" else ("POST", SLEEP)
    with owner.call(method, path, json=body, headers={**SSE, "Prefer": "heartbeat=1"}, stream=True) as answer:
        assert answer.headers["Preference-Applied"] == "heartbeat=1"
        seen_at = [time.monotonic() for line in _first(answer.iter_lines(chunk_size=1), 3) if line.startswith(COMMENT)]
    assert len(seen_at) == 3
    assert seen_at[-1] - seen_at[0] < 10


def _first(lines: Any, comments: int) -> Any:
    for line in lines:
        yield line
        comments -= line.startswith(COMMENT)
        if not comments:
            return


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        ("heartbeat=0", "heartbeat=1"),
        ("heartbeat=99", None),
        ("heartbeat=15", None),
        ("heartbeat=-3", None),
        ("heartbeat=three", None),
        ("heartbeat=1000000", None),
        ("return=minimal, Heartbeat = 4", "heartbeat=4"),
    ],
)
def test_what_is_no_heartbeat_is_not_applied(host: Host, prefer: str, applied: str | None) -> None:
    with owner_of(host).call("GET", "/events", headers={**SSE, "Prefer": prefer}, stream=True) as answer:
        assert answer.status_code == 200
        assert answer.headers.get("Preference-Applied") == applied
