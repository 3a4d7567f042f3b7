"""Messages that the transport refuses before anything handles them: status, code, and the id of the request."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.mcp.places import Hosts, place_of

_TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


def meta(capabilities: dict[str, Any]) -> dict[str, Any]:
    """Return what every request of revision 2026-07-28 says of its client."""
    prefix = "io.modelcontextprotocol/"
    return {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": capabilities}


def send(
    hosts: Hosts, method: str, params: dict[str, Any], headers: dict[str, str], revision: str
) -> requests.Response:
    place = place_of(hosts["server"])
    common = {
        "Authorization": f"Bearer {place.token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": revision,
    }
    message = {"jsonrpc": "2.0", "id": "mine", "method": method, "params": params}
    return requests.post(place.url, json=message, headers={**common, **headers}, timeout=30)


@pytest.mark.parametrize(
    ("method", "headers", "params", "status", "code"),
    [
        ("tools/list", {}, {}, 400, -32602),
        ("tools/list", {"Mcp-Method": "tools/call"}, {"_meta": meta({})}, 400, -32020),
        ("ping", {}, {"_meta": meta({})}, 404, -32601),
        ("tasks/get", {}, {"taskId": "exe_1", "_meta": meta(_TASKS)}, 400, -32020),
        ("tasks/get", {"Mcp-Name": "exe_2"}, {"taskId": "exe_1", "_meta": meta(_TASKS)}, 400, -32020),
        ("tasks/get", {"Mcp-Name": "exe_1"}, {"taskId": "exe_1", "_meta": meta({})}, 400, -32021),
        ("tasks/get", {"Mcp-Name": "exe_1"}, {"taskId": "exe_1", "_meta": meta(_TASKS)}, 400, -32602),
    ],
    ids=["no meta", "other method", "removed", "no name", "other name", "no capability", "no task"],
)
def test_request_of_the_new_revision_is_refused_with_its_id(
    method: str, headers: dict[str, str], params: dict[str, Any], status: int, code: int, hosts: Hosts
) -> None:
    answer = send(hosts, method, params, {"Mcp-Method": method, **headers}, "2026-07-28")
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json")
    assert (answer.json()["id"], answer.json()["error"]["code"]) == ("mine", code)


@pytest.mark.parametrize(("headers", "status"), [({}, 400), ({"Mcp-Session-Id": "none"}, 404)], ids=["none", "unknown"])
def test_request_of_the_old_revision_without_a_session_is_refused(
    headers: dict[str, str], status: int, hosts: Hosts
) -> None:
    answer = send(hosts, "tools/list", {}, headers, "2025-11-25")
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json")
    assert answer.json()["error"]["code"] == -32600
