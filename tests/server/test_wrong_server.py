"""Requests for what another server has, by each route and protocol."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jupyter_exec_ext.server.routes import ROUTES
from tests.mcp.raw_client import RawClient
from tests.server.test_access import BODIES
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.hosts import Host
from tests.support.pool_clients import error_of, pool_of

DIGITS = "0123456789abcdef01234567"
CELLS = [
    (route.path, method)
    for route in ROUTES
    for method in route.methods
    if ("{session_id}" in route.path or "{execution_id}" in route.path) and method != "HEAD"
]


@pytest.fixture(params=["server-base-url", "gateway"])
def bearer(request: pytest.FixtureRequest, hosts: Any) -> Bearer:
    """The owner of a server with a name, and of one without."""
    host: Host = hosts[request.param]
    return owner_of(host)


def send(bearer: Bearer, path: str, method: str, name: str) -> tuple[int, str]:
    ids = {
        "session_id": f"ses_{name}{DIGITS}",
        "execution_id": f"exe_{name}{DIGITS}",
        "path": "a.ipynb",
        "name": "stdout",
        "checkpoint_id": f"chk_{name}{DIGITS}",
        "port": "8501",
        "rest": "",
    }
    options: dict[str, Any] = {"data": b"x"} if method == "PUT" else {"json": BODIES.get((path, method))}
    if path.endswith("/notebook") and method == "POST":
        options["json"] = {"path": "a.ipynb"}
    answer = bearer.call(method, re.sub(r"\{(\w+)\}", lambda match: ids[match[1]], path), **options)
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize(("path", "method"), CELLS)
def test_each_route_names_the_other_server(bearer: Bearer, path: str, method: str) -> None:
    assert send(bearer, path, method, "w9_") == (421, "wrong_server")
    for own in ("", "w2_") if "base-url" in bearer.host.name else ("",):
        status, code = send(bearer, path, method, own)
        assert status == 404 and code.endswith("_not_found")


def test_name_of_the_other_server_is_told_to_callers_alone(bearer: Bearer) -> None:
    stranger = Bearer(bearer.host, "wrong")
    assert send(stranger, "/sessions/{session_id}", "GET", "w9_") == (401, "unauthenticated")
    agent = mint(bearer.host)
    assert send(agent, "/executions/{execution_id}", "GET", "w9_") == (421, "wrong_server")


def test_aca_and_mcp_name_the_other_server(bearer: Bearer) -> None:
    pool = pool_of(bearer.host)
    assert pool.value("1") == 1
    assert error_of(pool.call("GET", f"executions/exe_w9_{DIGITS}")) == (421, "MisdirectedRequest")
    assert pool.call("DELETE", "session").status_code == 204
    client = RawClient.of(bearer)
    tool = client.tool("execute_code", code="1", session=f"ses_w9_{DIGITS}")
    assert tool["isError"] and "'w9'" in tool["content"][0]["text"]
    read = client.ask("resources/read", {"uri": f"exec://session/ses_w9_{DIGITS}/files/a.txt"})
    assert "'w9'" in read["error"]["message"]
