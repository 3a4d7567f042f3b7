"""Bridge to ``exec/mcp``: options of the program, headers of HTTP, and a server that is away or has been restarted.

`test_mcp_command` has clients run code through it, `test_mcp_ends` cancels calls and kills it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult, JSONRPCNotification, JSONRPCRequest

from jupyter_exec_ext import AsyncExecClient, JupyterConnectionInfo, LocalJupyterServer
from jupyter_exec_ext.adapters._mcp_bridge import _MessageRelay, _ServerTransport, has_endpoint, make_tool_defaults
from tests.adapters.mcp.test_mcp_ends import REVISIONS, program

_PROGRAM = ["-m", "jupyter_exec_ext.adapters.mcp", "--server"]
_HANDSHAKE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
_META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


def with_options(server: LocalJupyterServer, *options: str) -> StdioServerParameters:
    started = program(server, _PROGRAM)
    started.args += options
    return started


async def text_of_run(agent: Client, **arguments: Any) -> str:
    result: Any = await agent.call_tool("execute_code", arguments)
    return str(result.content[0].text)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_client_has_one_session_of_its_own_and_all_tools(local_server: LocalJupyterServer, revision: str) -> None:
    async with Client(with_options(local_server, "--kernel", "python3"), mode=revision) as agent:
        assert len((await agent.list_tools()).tools) == 13
        await text_of_run(agent, code="x = 20")
        assert await text_of_run(agent, code="print(x + 1)") == "21\n"
        assert not (await agent.call_tool("interrupt_session", {})).is_error
    async with AsyncExecClient(local_server.connection_info) as client:
        assert await client.list_sessions() == []


async def test_session_and_timeout_of_the_options_are_used_and_the_session_is_kept(
    local_server: LocalJupyterServer,
) -> None:
    async with AsyncExecClient(local_server.connection_info) as client, client.session() as session:
        await session.run("x = 3")
        async with Client(with_options(local_server, "--session", session.id, "--timeout", "1")) as agent:
            assert await text_of_run(agent, code="print(x)") == "3\n"
            assert "1 s" in await text_of_run(agent, code="while True: pass")
        assert (await session.run("print(x)")).stdout == "3\n"


@pytest.mark.parametrize("revision", REVISIONS)
async def test_questions_and_progress_reach_the_client(
    local_server: LocalJupyterServer, revision: str, tmp_path: Path
) -> None:
    printed: list[str] = []
    has_progress = tmp_path / "has-progress"

    async def answer(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"value": f"Ada, asked {params.message}"})

    async def note(progress: float, total: float | None, message: str | None) -> None:
        printed.append(str(message))
        has_progress.touch()

    started = program(local_server, _PROGRAM)
    async with Client(started, mode=revision, elicitation_callback=answer) as agent:
        code = f"""if True:
            import os, time
            print("begun", flush=True)
            while not os.path.exists({str(has_progress)!r}):
                time.sleep(0.02)
            print(input("name? "))
        """
        result: Any = await agent.call_tool("execute_code", {"code": code}, progress_callback=note)
    assert "Ada, asked name?" in result.content[0].text
    assert printed[0] == "begun\n"


def test_arguments_of_the_model_come_before_those_of_the_options() -> None:
    passing = _MessageRelay(make_tool_defaults("ir", 5.0, None))
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={"name": "execute_code"})
    passing._add_defaults(request)
    assert request.params == {"name": "execute_code", "arguments": {"kernel_name": "ir", "timeout_seconds": 5.0}}
    request.params = {"name": "execute_code", "arguments": {"timeout_seconds": 9}}
    passing._add_defaults(request)
    assert request.params["arguments"] == {"kernel_name": "ir", "timeout_seconds": 9}
    request.params = {"name": "list_sessions", "arguments": {}}
    passing._add_defaults(request)
    assert request.params["arguments"] == {}


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "rün"}, "=?base64?csO8bg==?="),
        ("resources/read", {"uri": "exec://session/s/files/a"}, "exec://session/s/files/a"),
        ("tasks/get", {"taskId": "exe_1"}, "exe_1"),
        ("tools/list", {}, None),
    ],
)
def test_headers_repeat_what_a_request_of_the_new_revision_says(
    method: str, params: dict[str, Any], name: str | None
) -> None:
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method=method, params={**params, "_meta": _META})
    expected = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    assert _MessageRelay({})._headers_of(request) == expected | ({} if name is None else {"mcp-name": name})


def test_message_before_a_handshake_has_no_headers() -> None:
    message = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 1})
    assert _MessageRelay({})._headers_of(message) == {}


async def test_server_without_the_endpoint_or_with_another_token_has_none(local_server: LocalJupyterServer) -> None:
    assert await has_endpoint(local_server.connection_info)
    assert not await has_endpoint(JupyterConnectionInfo.from_url(local_server.connection_info.url, "wrong"))
    assert not await has_endpoint(JupyterConnectionInfo.from_url("http://127.0.0.1:9/"))


async def test_server_that_does_not_answer_is_an_error_of_the_request() -> None:
    async with httpx2.AsyncClient(
        transport=_ServerTransport(JupyterConnectionInfo.from_url("http://127.0.0.1:9/"))
    ) as http:
        answer = await http.post("http://127.0.0.1:9/exec/mcp", json={})
    assert answer.status_code == 503
    assert "http://127.0.0.1:9/ does not answer" in answer.json()["error"]["message"]


async def test_protocol_session_that_the_server_has_lost_is_opened_again(local_server: LocalJupyterServer) -> None:
    info = local_server.connection_info
    url, accept = f"{info.url}exec/mcp", {"Accept": "application/json, text/event-stream"}

    def message(method: str, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    async with (
        httpx2.AsyncClient(headers=info.auth_headers | accept) as other,
        httpx2.AsyncClient(headers=info.auth_headers | accept, transport=_ServerTransport(info)) as http,
    ):
        opened = await http.post(url, json=message("initialize", **_HANDSHAKE))
        session = {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}
        assert (await other.delete(url, headers=session)).status_code == 200
        for _ in range(2):
            answer = await http.post(url, json=message("tools/list"), headers=session)
            assert len(answer.json()["result"]["tools"]) == 13
        assert (await other.post(url, json=message("tools/list"), headers=session)).status_code == 404
