"""Questions of code to the client's user: approval and ``input()``, in both revisions, beside JupyterLab's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import requests
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, ElicitResult, TextContent

from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import Host, running_host

REVISIONS = ["2026-07-28", "legacy"]
Answer = Callable[[str], ElicitResult]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    policies = "{'asks': {'approval': 'always', 'approve_in_client': True}, 'lab_only': {'approval': 'always'}}"
    with running_host(
        "gateway", tmp_path_factory.mktemp("q"), UNPROTECTED, f"--ExecEngine.policies={policies}"
    ) as host:
        yield host


@asynccontextmanager
async def connected(bearer: Bearer, revision: str, answer: Answer | None = None) -> AsyncIterator[Client]:
    """Connect a client whose user answers questions; without `answer` it cannot be asked."""

    async def on_question(context: Any, params: Any) -> ElicitResult:
        assert answer is not None
        return answer(params.message)

    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {bearer.token}"}, timeout=60)
    transport = streamable_http_client(f"{bearer.host.info.url}exec/mcp", http_client=http)
    callback = on_question if answer is not None else None
    async with http, Client(transport, mode=revision, elicitation_callback=callback) as client:
        yield client


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def first_waiting(owner: Bearer) -> str:
    """Return the id of the execution that waits for approval, once there is one."""
    while True:
        waiting = (await asyncio.to_thread(owner.call, "GET", "/approvals")).json()["executions"]
        if waiting:
            return str(waiting[0]["id"])
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_code_runs_once_the_clients_user_approves(host: Host, revision: str) -> None:
    asked = []

    def approve(message: str) -> ElicitResult:
        asked.append(message)
        return ElicitResult(action="accept", content={"approve": True})

    async with connected(mint(host, policy="asks"), revision, approve) as client:
        result = await client.call_tool("execute_code", {"code": "print(6 * 7)"})
    assert (result.is_error, "42" in text_of(result)) == (False, True)
    assert len(asked) == 1
    assert "print(6 * 7)" in asked[0]


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    "answer",
    [ElicitResult(action="decline"), ElicitResult(action="accept", content={"approve": False, "reason": "no"})],
)
async def test_declined_code_does_not_run(host: Host, revision: str, answer: ElicitResult) -> None:
    async with connected(mint(host, policy="asks"), revision, lambda _: answer) as client:
        result = await client.call_tool("execute_code", {"code": "print(1)"})
    assert result.is_error
    assert "Not run: rejected" in text_of(result)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_policy_without_approve_in_client_is_decided_by_the_owner_alone(host: Host, revision: str) -> None:
    def never(message: str) -> ElicitResult:
        raise AssertionError(message)

    owner = owner_of(host)
    async with connected(mint(host, policy="lab_only"), revision, never) as client:
        call = asyncio.create_task(client.call_tool("execute_code", {"code": "print('by the owner')"}))
        execution_id = await first_waiting(owner)
        await asyncio.to_thread(owner.call, "POST", f"/approvals/{execution_id}", json={"decision": "approve"})
        assert "by the owner" in text_of(await call)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_owners_decision_comes_first_while_the_client_still_asks(host: Host, revision: str) -> None:
    owner = owner_of(host)
    decided = asyncio.Event()

    async def on_question(context: Any, params: Any) -> ElicitResult:
        await decided.wait()
        return ElicitResult(action="decline")

    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {mint(host, policy='asks').token}"}, timeout=60)
    transport = streamable_http_client(f"{host.info.url}exec/mcp", http_client=http)
    async with http, Client(transport, mode=revision, elicitation_callback=on_question) as client:
        call = asyncio.create_task(client.call_tool("execute_code", {"code": "print('owner first')"}))
        execution_id = await first_waiting(owner)
        await asyncio.to_thread(owner.call, "POST", f"/approvals/{execution_id}", json={"decision": "approve"})
        decided.set()
        assert "owner first" in text_of(await call)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_input_is_answered_by_the_clients_user(host: Host, revision: str) -> None:
    answers = {"name? ": "Ada", "age? ": "36"}

    def type_in(message: str) -> ElicitResult:
        return ElicitResult(action="accept", content={"value": answers[message]})

    async with connected(mint(host), revision, type_in) as client:
        result = await client.call_tool("execute_code", {"code": "print(input('name? '), input('age? '))"})
    assert "Ada 36" in text_of(result)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_password_is_not_asked_for_in_the_client(host: Host, revision: str) -> None:
    def never(message: str) -> ElicitResult:
        raise AssertionError(message)

    code = "import getpass\ngetpass.getpass()"
    async with connected(mint(host), revision, never) as client:
        result = await client.call_tool("execute_code", {"code": code, "timeout_seconds": 1})
    assert "Timeout" in text_of(result)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_client_without_forms_gets_an_error_from_input(host: Host, revision: str) -> None:
    async with connected(mint(host), revision) as client:
        result = await client.call_tool("execute_code", {"code": "input('?')"})
    assert result.is_error
    assert "StdinNotImplementedError" in text_of(result)


def test_state_of_a_question_is_refused_from_another_token_and_after_a_change(host: Host) -> None:
    agent, other = mint(host, policy="asks"), mint(host, policy="asks")
    arguments = {"code": "print(1)"}
    asked = call_raw(agent, arguments)["result"]
    assert asked["resultType"] == "input_required"
    state = asked["requestState"]
    (key,) = asked["inputRequests"]
    yes = {key: {"action": "accept", "content": {"approve": True}}}
    for bearer, sent in ((other, state), (agent, state[:-2] + ("AA" if state[-2:] != "AA" else "BB"))):
        refused = call_raw(bearer, arguments, requestState=sent, inputResponses=yes)
        assert refused["error"]["code"] == -32602
    done = call_raw(agent, arguments, requestState=state, inputResponses=yes)["result"]
    assert done["structuredContent"]["execution"]["state"] == "ok"


def test_task_that_waits_for_input_shows_the_question_and_takes_the_answer(host: Host) -> None:
    agent = mint(host)
    code = "import time; time.sleep(0.1); print('hello', input('who? '))"
    record = agent.call(
        "POST",
        f"/sessions/{agent.session()}/executions",
        json={"code": code, "allow_input": True},
        headers={"Prefer": "respond-async"},
    ).json()
    task: dict[str, Any] = {}
    while not task.get("inputRequests"):
        task = request_raw(agent, "tasks/get", record["id"], taskId=record["id"])["result"]
    (key,) = task["inputRequests"]
    assert task["status"] == "input_required"
    assert task["inputRequests"][key]["params"]["message"] == "who? "
    unfit = {key: {"action": "accept", "content": {"other": "Ada"}}}
    refused = request_raw(agent, "tasks/update", record["id"], taskId=record["id"], inputResponses=unfit)
    assert refused["error"]["code"] == -32602
    answers = {"other": {"action": "decline"}, key: {"action": "accept", "content": {"value": "Ada"}}}
    request_raw(agent, "tasks/update", record["id"], taskId=record["id"], inputResponses=answers)
    while task["status"] != "completed":
        task = request_raw(agent, "tasks/get", record["id"], taskId=record["id"])["result"]
    assert "hello Ada" in task["result"]["content"][0]["text"]


def call_raw(bearer: Bearer, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Call `execute_code` by HTTP alone, in revision 2026-07-28, as a client that shows forms."""
    return request_raw(bearer, "tools/call", "execute_code", name="execute_code", arguments=arguments, **more)


def request_raw(bearer: Bearer, method: str, mcp_name: str, **params: Any) -> dict[str, Any]:
    """Send a request by HTTP alone, as a client that shows forms and, but for calls of tools, supports tasks."""
    capabilities: dict[str, Any] = {"elicitation": {}}
    if method != "tools/call":
        capabilities["extensions"] = {"io.modelcontextprotocol/tasks": {}}
    params["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        "Mcp-Name": mcp_name,
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers["Authorization"] = f"Bearer {bearer.token}"
    answer = requests.post(f"{bearer.host.info.url}exec/mcp", json=message, headers=headers, timeout=60)
    return dict(answer.json())
