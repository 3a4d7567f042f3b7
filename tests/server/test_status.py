"""The state of a server: who may read it, and what it tells."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.support.bearers import mint, owner_of
from tests.support.hosts import Host

pytestmark = pytest.mark.every_place
READY = {"ready": True, "draining": False}


@pytest.fixture(params=["server", "gateway", "hub"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = hosts[request.param]
    return started


def get_ready(host: Host, method: str = "GET", **options: Any) -> requests.Response:
    return requests.request(method, f"{host.info.url}exec/v1/ready", timeout=30, **options)


@pytest.mark.parametrize("token", [None, "wrong", "jex_abcdefgh_secret"])
def test_readiness_needs_no_token_and_tells_nothing_else(host: Host, token: str | None) -> None:
    answer = get_ready(host, headers={} if token is None else {"Authorization": f"token {token}"})
    assert (answer.status_code, answer.json()) == (200, READY)
    assert not {"Set-Cookie", "WWW-Authenticate", "Location"} & set(answer.headers)


def test_readiness_takes_no_other_method_and_no_body(host: Host) -> None:
    for method in ("POST", "PUT", "DELETE"):
        answer = get_ready(host, method)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
    assert get_ready(host, data=b"x").status_code == 413


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_readiness_checks_host_and_origin(hosts: Any, name: str) -> None:
    host: Host = hosts[name]
    for headers, code in (
        ({"Host": "evil.example"}, "host_not_allowed"),
        ({"Origin": "https://evil.example"}, "origin_not_allowed"),
        ({"Origin": "https://["}, "origin_not_allowed"),
    ):
        answer = get_ready(host, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, code)
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert get_ready(host, headers={"Host": f"127.0.0.1:{host.info.port}"}).status_code == 200


def test_load_counts_the_sessions_of_all_callers(host: Host) -> None:
    owner, agent = owner_of(host), mint(host, ["sessions:create", "sessions:delete"], "trusted")
    watcher = mint(host, ["pool:read"])
    before = watcher.call("GET", "/load").json()
    session = agent.session()
    try:
        after = watcher.call("GET", "/load").json()
    finally:
        agent.call("DELETE", f"/sessions/{session}")
    assert after["sessions"] == before["sessions"] + 1
    assert after["free_places"] == before["free_places"] - 1
    assert after["kernels_pss_bytes"] > 1024 * 1024
    assert 0 < after["descriptors_used"] < after["descriptors_allowed"]
    assert (after["draining"], after["running"]) == (False, 0)
    assert owner.call("GET", "/load").status_code == 200
    assert agent.call("GET", "/load").json()["code"] == "missing_scope"
