"""Access matrix of MCP: a tool is allowed exactly where `exec/v1` allows the same verb."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from jupyter_exec_ext.auth.scopes import ALL_SCOPES, SCOPES
from jupyter_exec_ext.auth.token_format import new_token
from jupyter_exec_ext.mcp.tools import TOOLS
from jupyter_exec_ext.models import AuditRecord
from tests.audit.test_audit import chain
from tests.mcp.raw_client import HANDSHAKE, MODERN, REVISIONS, TASKS, RawClient, text_of
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.full import IS_FULL
from tests.support.hosts import Host


@dataclass(frozen=True)
class Things:
    """Ids that the arguments of tools are filled with."""

    session: str
    execution: str


NOTHING = Things("ses_nothing", "exe_nothing")

# Each tool's arguments, and the request of exec/v1 that does the same.
Row = tuple[Callable[[Things], dict[str, Any]], Callable[[Things], tuple[str, str, dict[str, Any]]]]
ROWS: dict[str, Row] = {
    "execute_code": (
        lambda at: {"code": "1", "session": at.session},
        lambda at: ("POST", f"/sessions/{at.session}/executions", {"json": {"code": "1"}}),
    ),
    "start_session": (lambda at: {}, lambda at: ("POST", "/sessions", {"json": {}})),
    "list_sessions": (lambda at: {}, lambda at: ("GET", "/sessions", {})),
    "interrupt_session": (
        lambda at: {"session": at.session},
        lambda at: ("POST", f"/sessions/{at.session}/interrupt", {}),
    ),
    "restart_session": (lambda at: {"session": at.session}, lambda at: ("POST", f"/sessions/{at.session}/restart", {})),
    "checkpoint_session": (
        lambda at: {"session": at.session},
        lambda at: ("POST", f"/sessions/{at.session}/checkpoints", {}),
    ),
    "restore_session": (
        lambda at: {"session": at.session, "checkpoint": "chk_nothing"},
        lambda at: ("POST", f"/sessions/{at.session}/restore", {"json": {"checkpoint": "chk_nothing"}}),
    ),
    "branch_session": (
        lambda at: {"session": at.session},
        lambda at: ("POST", f"/sessions/{at.session}/branches", {}),
    ),
    "list_files": (lambda at: {"session": at.session}, lambda at: ("GET", f"/sessions/{at.session}/files", {})),
    "read_file": (
        lambda at: {"session": at.session, "path": "matrix.txt"},
        lambda at: ("GET", f"/sessions/{at.session}/files/matrix.txt", {}),
    ),
    "write_file": (
        lambda at: {"session": at.session, "path": "matrix.txt", "text": "x"},
        lambda at: ("PUT", f"/sessions/{at.session}/files/matrix.txt", {"data": b"x"}),
    ),
    "download_output": (
        lambda at: {"execution": at.execution, "name": "stdout"},
        lambda at: ("GET", f"/executions/{at.execution}/outputs/stdout", {}),
    ),
    "end_session": (lambda at: {"session": at.session}, lambda at: ("DELETE", f"/sessions/{at.session}", {})),
}
_MADE = ("start_session", "branch_session")
# What a tool answers that is allowed: the run has no output beyond its record, and the session no such checkpoint.
_ALLOWED = {"download_output": "output_not_found", "restore_session": "checkpoint_not_found"}


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = hosts[request.param]
    return started


def things_of(bearer: Bearer) -> Things:
    session = bearer.session()
    ran = bearer.run(session, "open('matrix.txt', 'w').write('x')")
    assert ran.json()["state"] == "ok", ran.text
    return Things(session, ran.json()["id"])


@pytest.fixture(scope="module")
def foreign(host: Host) -> Iterator[Things]:
    """Things of a token that none of the callers is."""
    bearer = mint(host)
    things = things_of(bearer)
    yield things
    bearer.call("DELETE", f"/sessions/{things.session}")


def end_all(bearer: Bearer, made: dict[str, Any], key: str) -> None:
    """End the session, or the sessions, that an answer has."""
    for session in made.get("sessions", [made]):
        owner_of(bearer.host).call("DELETE", f"/sessions/{session[key]}")


def code_in_rest(bearer: Bearer, name: str, things: Things) -> str:
    """Return the error code that exec/v1 answers; empty if it allows the request."""
    method, path, options = ROWS[name][1](things)
    answer = bearer.call(method, path, **options)
    if answer.status_code < 400:
        if name in _MADE:
            end_all(bearer, answer.json(), "id")
        return ""
    return str(answer.json()["code"])


def code_in_mcp(bearer: Bearer, client: RawClient, name: str, things: Things) -> str:
    """Return the error code that a tool answers; empty if it allows the call."""
    result = client.tool(name, **ROWS[name][0](things))
    if not result["isError"]:
        if name in _MADE:
            end_all(bearer, result["structuredContent"], "session")
        return ""
    return text_of(result).partition(":")[0]


def test_each_tool_has_a_row() -> None:
    assert list(ROWS) != [] and set(ROWS) == {tool.name for tool in TOOLS}


@pytest.mark.parametrize("revision", REVISIONS if IS_FULL else [MODERN])
def test_without_a_valid_token_nothing_is_told(host: Host, revision: str) -> None:
    revoked = mint(host)
    assert owner_of(host).call("DELETE", f"/tokens/{revoked.id}").status_code == 204
    url = f"{host.info.url}exec/mcp"
    for token in ("", "wrong", new_token().text, revoked.token):
        client = RawClient(url, token, revision, session_id="made-up" if revision == HANDSHAKE else "")
        for method in ("tools/list", "server/discover", "initialize", "tools/call", "resources/list"):
            answer = client.post(method, {"name": "list_sessions"} if method == "tools/call" else None)
            assert answer.status_code == 401, (token, method)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer resource_metadata=")
            assert "Set-Cookie" not in answer.headers
        assert client.get().status_code == client.delete() == 401


@pytest.mark.parametrize("revision", REVISIONS if IS_FULL else [MODERN])
@pytest.mark.parametrize("scope", SCOPES)
def test_one_scope_opens_the_tools_that_exec_v1_opens(host: Host, foreign: Things, scope: str, revision: str) -> None:
    bearer = mint(host, [scope])
    client = RawClient.of(bearer, revision)
    wrong = []
    for name in ROWS:
        expected, found = (code_in_rest(bearer, name, foreign), code_in_mcp(bearer, client, name, foreign))
        if expected != found:
            wrong.append((name, expected, found))
    assert wrong == []
    listed = [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]]
    # `sessions:create` and `kernels:attach` both open the request for a session.
    allowed = [tool.name for tool in TOOLS if code_in_rest(bearer, tool.name, foreign) != "missing_scope"]
    expected_list = [name for name in allowed if name != "start_session" or scope == "sessions:create"]
    assert [name for name in listed if name != "start_session" or scope == "sessions:create"] == expected_list


@pytest.mark.parametrize("revision", REVISIONS if IS_FULL else [MODERN])
def test_things_of_others_are_as_if_they_were_not(host: Host, foreign: Things, revision: str) -> None:
    bearer = mint(host)
    client = RawClient.of(bearer, revision, extensions={TASKS: {}} if revision == MODERN else {})
    wrong = []
    for name in set(ROWS) - {"start_session", "list_sessions"}:
        theirs, none = (client.tool(name, **ROWS[name][0](things)) for things in (foreign, NOTHING))
        as_none = json.dumps(theirs).replace(foreign.session, NOTHING.session)
        if json.loads(as_none.replace(foreign.execution, NOTHING.execution)) != none or not none["isError"]:
            wrong.append((name, theirs, none))
    others: dict[str, dict[str, Any]] = {
        "resources/read": {"uri": f"exec://session/{foreign.session}/files/matrix.txt"},
        "resources/subscribe": {"uri": f"exec://session/{foreign.session}/files/matrix.txt"},
        "tasks/get": {"taskId": foreign.execution},
        "tasks/cancel": {"taskId": foreign.execution},
        "tasks/update": {"taskId": foreign.execution, "inputResponses": {}},
    }
    for method, params in others.items():
        no_params = json.loads(json.dumps(params).replace(foreign.session, NOTHING.session))
        no_params = json.loads(json.dumps(no_params).replace(foreign.execution, NOTHING.execution))
        there, not_there = client.ask(method, params), client.ask(method, no_params)
        told = json.dumps(there["error"]).replace(foreign.session, NOTHING.session)
        if json.loads(told.replace(foreign.execution, NOTHING.execution)) != not_there["error"]:
            wrong.append((method, there, not_there))
    assert wrong == []
    assert client.tool("list_sessions")["structuredContent"] == {"sessions": []}
    assert client.ask("resources/list")["result"]["resources"] == []


@pytest.mark.parametrize("who", ["all scopes", "owner"])
def test_all_scopes_and_the_owner_may_call_every_tool(host: Host, who: str) -> None:
    bearer = mint(host) if who == "all scopes" else owner_of(host)
    things = things_of(bearer if who == "all scopes" else mint(host))
    client = RawClient.of(bearer)
    assert [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]] == [tool.name for tool in TOOLS]
    for name in ROWS:
        assert code_in_mcp(bearer, client, name, things) == _ALLOWED.get(name, ""), name


def test_resources_need_the_scope_of_files_and_of_executions(host: Host) -> None:
    things = things_of(owner := mint(host))
    uri = f"exec://session/{things.session}/files/matrix.txt"
    for scope in SCOPES:
        below = mint(owner, [scope, "tokens:create"])
        answer = RawClient.of(below).ask("resources/read", {"uri": uri})
        expected = "session_not_found" if scope == "files:read" else "missing_scope"
        assert answer["error"]["data"]["code"] == expected, scope
    text = RawClient.of(owner).ask("resources/read", {"uri": uri})["result"]["contents"][0]["text"]
    assert text == "x"


def denials_of(host: Host, principal: str) -> list[AuditRecord]:
    trail = chain(host.home / "jupyter_data_dir" / "jupyter_exec_ext")
    return [record for record in trail if record.kind.value == "denial" and record.principal == principal]


def test_denials_of_tools_resources_and_tasks_are_in_the_audit_trail(host: Host, foreign: Things) -> None:
    bearer = mint(host, sorted(ALL_SCOPES - {"files:read", "executions:read", "executions:control"}))
    client = RawClient.of(bearer, extensions={TASKS: {}})
    client.tool("list_files", session=foreign.session)
    client.tool("restart_session", session=foreign.session)
    client.ask("resources/read", {"uri": f"exec://session/{foreign.session}/files/matrix.txt"})
    client.ask("tasks/get", {"taskId": foreign.execution})
    give_up_at = time.monotonic() + 30
    while len(found := denials_of(host, f"token:{bearer.id}")) < 4:  # a thread writes them
        assert time.monotonic() < give_up_at, found
        time.sleep(0.02)
