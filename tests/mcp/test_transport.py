"""Transport without a server around it: a low-level server of the SDK with three tools, and messages as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.types import CallToolRequestParams, CallToolResult, TextContent

from jupyter_exec_ext.errors import PolicyLimitReached
from jupyter_exec_ext.mcp import handshake_sessions, open_responses
from jupyter_exec_ext.mcp.replies import Reply
from jupyter_exec_ext.mcp.transport import Transport
from tests.support.waiting import until

MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"
_PREFIX = "io.modelcontextprotocol/"
META = {f"{_PREFIX}protocolVersion": MODERN, f"{_PREFIX}clientCapabilities": {}}
_RETURN_SECONDS = 0.2


class Tools:
    """Tools that end at once with a short or a large answer, never, or when the test wants."""

    def __init__(self) -> None:
        self.running = 0
        self.cancelled = 0
        self.go_on = asyncio.Event()

    async def call(self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
        if params.name == "echo":
            return CallToolResult(content=[TextContent(text=str(context.request))])
        if params.name == "large":
            return CallToolResult(content=[TextContent(text="x" * 1_000)])
        self.running += 1
        try:
            if params.name == "notify":
                await context.session.report_progress(0.5, message="half")
            await (self.go_on.wait() if params.name != "forever" else asyncio.Event().wait())
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return CallToolResult(content=[TextContent(text="done")])


class Client:
    """Sends messages of one principal to a transport."""

    def __init__(self, transport: Transport, principal: str = "owner") -> None:
        self.transport = transport
        self.principal = principal
        self.headers: dict[str, str] = {}

    async def post(self, message: Any, *headers: tuple[str, str]) -> Reply:
        pairs = [*self.headers.items(), *headers]
        return await self.transport.post(message, pairs, self.principal, lambda session: session and "in session")

    async def modern(self, method: str, *headers: tuple[str, str], **params: Any) -> Reply:
        named = [("Mcp-Name", params["name"])] if method == "tools/call" else []
        own = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", method), *named]
        return await self.post(request(method, _meta=META, **params), *own, *headers)

    async def shake_hands(self) -> str:
        about = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        reply = await self.post(request("initialize", **about))
        self.headers = {"mcp-session-id": reply.headers["Mcp-Session-Id"]}
        assert (await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
        return self.headers["mcp-session-id"]


def request(method: str, request_id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


async def response(reply: Reply) -> dict[str, Any]:
    """Return the last message of a reply."""
    data = reply.body
    if reply.stream is not None:
        await until(lambda: reply.stream is not None and reply.stream.is_ended, 5)
        data = reply.stream.last_message
    found: dict[str, Any] = json.loads(data or b"{}")
    return found


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
async def transport(tools: Tools) -> AsyncIterator[Transport]:
    server: Server[Any] = Server("tiny", on_call_tool=tools.call)
    transport = Transport(server, return_seconds=_RETURN_SECONDS)
    yield transport
    await transport.close()
    await until(lambda: tools.running == 0, 5)


@pytest.fixture
def client(transport: Transport) -> Client:
    return Client(transport)


# --- shape ---


@pytest.mark.parametrize(
    "message", [None, 1, "x", [], [request("ping")], {}, {"jsonrpc": "1.0", "id": 1, "method": "x"}]
)
@pytest.mark.parametrize("version", [MODERN, HANDSHAKE, None])
async def test_body_that_is_no_message_is_an_invalid_request(client: Client, message: Any, version: str | None) -> None:
    headers = [] if version is None else [("MCP-Protocol-Version", version)]
    reply = await client.post(message, *headers)
    assert (reply.status, (await response(reply))["error"]["code"]) == (400, -32600)


async def test_request_of_the_new_revision_is_handled_without_a_session(client: Client) -> None:
    reply = await client.modern("tools/call", name="echo")
    assert (await response(reply))["result"]["content"][0]["text"] == "None"
    assert (reply.headers, len(client.transport.sessions)) == ({}, 0)


async def test_repeated_header_of_routing_is_refused(client: Client) -> None:
    reply = await client.modern("tools/list", ("mcp-method", "tools/list"))
    assert (reply.status, (await response(reply))["error"]["code"]) == (400, -32020)


async def test_header_that_differs_from_the_message_is_refused(client: Client) -> None:
    own = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "forever")]
    reply = await client.post(request("tools/call", _meta=META, name="echo"), *own)
    assert (reply.status, (await response(reply))["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize("method", ["tools/list", None])
async def test_unknown_revision_is_refused_with_those_that_are_known(client: Client, method: str | None) -> None:
    meta = {**META, f"{_PREFIX}protocolVersion": "2030-01-01"}
    message = request("tools/list", _meta=meta) if method else {"jsonrpc": "2.0", "method": "notifications/x"}
    reply = await client.post(message, ("MCP-Protocol-Version", "2030-01-01"), ("Mcp-Method", "tools/list"))
    error = (await response(reply))["error"]
    assert (reply.status, error["code"], error["data"]["requested"]) == (400, -32022, "2030-01-01")
    assert MODERN in error["data"]["supported"]


async def test_notification_of_the_new_revision_is_accepted_and_changes_nothing(client: Client, tools: Tools) -> None:
    reply = await client.modern("tools/call", name="forever")
    await until(lambda: tools.running)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert (await client.post(cancel, ("MCP-Protocol-Version", MODERN))).status == 202
    assert tools.running == 1
    reply.on_cut()


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "nothing"])
async def test_method_that_the_new_revision_has_not_is_unknown(client: Client, method: str) -> None:
    reply = await client.modern(method)
    assert (await response(reply))["error"]["code"] == -32601
    assert reply.stream is not None and reply.stream.status == 404


# --- cuts and cancels ---


async def test_closed_response_of_the_new_revision_cancels_its_call(client: Client, tools: Tools) -> None:
    reply = await client.modern("tools/call", name="forever")
    await until(lambda: tools.running)
    reply.on_cut()
    await until(lambda: tools.cancelled == 1)
    assert reply.stream is not None and reply.stream.is_ended


async def test_cancel_in_a_session_stops_the_call_of_that_id_only(client: Client, tools: Tools) -> None:
    await client.shake_hands()
    other = await client.post(request("tools/call", "1", name="wait"))
    cancelled = await client.post(request("tools/call", 1, name="wait"))
    await until(lambda: tools.running == 2)
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert (await client.post(notice)).status == 202
    assert (await response(cancelled))["error"]["message"] == "Request cancelled"
    tools.go_on.set()
    assert (await response(other))["result"]["content"][0]["text"] == "done"
    assert tools.cancelled == 1


async def test_session_of_another_client_cannot_cancel_a_call(
    transport: Transport, client: Client, tools: Tools
) -> None:
    await client.shake_hands()
    mine = await client.post(request("tools/call", name="wait"))
    await until(lambda: tools.running)
    second = Client(transport)
    await second.shake_hands()
    await second.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    tools.go_on.set()
    assert "result" in await response(mine)


async def test_client_that_comes_back_in_time_gets_the_rest(client: Client, tools: Tools) -> None:
    await client.shake_hands()
    started = request("tools/call", 9, name="notify", _meta={"progressToken": "p"})
    reply = await client.post(started)
    assert reply.stream is not None
    assert len(await reply.stream.read(0, 5)) == 1
    reply.on_cut()
    again, session = client.transport.get({**client.headers, "last-event-id": f"{reply.stream.name}-1"}, "owner")
    assert (again.stream, again.resume_after, session is not None) == (reply.stream, 1, True)
    reply.stream.readers = 1
    await asyncio.sleep(2 * _RETURN_SECONDS)  # longer than it had to come back; nothing is to happen
    tools.go_on.set()
    await until(lambda: reply.stream is not None and reply.stream.is_ended)
    ((number, data),) = await reply.stream.read(1, 5)
    assert (number, json.loads(data)["id"], tools.cancelled) == (2, 9, 0)
    again.on_sent()
    forgotten, _ = client.transport.get({**client.headers, "last-event-id": f"{reply.stream.name}-1"}, "owner")
    assert session is not None and forgotten.stream is session.standalone


async def test_client_that_does_not_come_back_is_forgotten_with_its_call(client: Client, tools: Tools) -> None:
    await client.shake_hands()
    reply = await client.post(request("tools/call", name="forever"))
    await until(lambda: tools.running)
    reply.on_cut()
    assert tools.cancelled == 0
    await until(lambda: tools.cancelled == 1 and len(client.transport.sessions) == 0)


async def test_client_that_sends_something_else_keeps_its_session(client: Client, tools: Tools) -> None:
    await client.shake_hands()
    reply = await client.post(request("tools/call", name="forever"))
    await until(lambda: tools.running)
    reply.on_cut()
    await client.post(request("ping", 2))
    await until(lambda: tools.cancelled == 1)
    assert len(client.transport.sessions) == 1


async def test_cut_of_one_call_leaves_another_alone(client: Client, tools: Tools) -> None:
    await client.shake_hands()
    first = await client.post(request("tools/call", 1, name="wait"))
    second = await client.post(request("tools/call", 2, name="forever"))
    await until(lambda: tools.running == 2)
    assert second.stream is not None
    resumed, _ = client.transport.get({**client.headers, "last-event-id": f"{second.stream.name}-0"}, "owner")
    resumed.on_cut()
    await client.post(request("ping", 3))
    await until(lambda: tools.cancelled == 1)
    tools.go_on.set()
    assert "result" in await response(first)


async def test_request_id_that_is_in_use_is_refused(client: Client, tools: Tools) -> None:
    await client.shake_hands()
    await client.post(request("tools/call", 5, name="forever"))
    reply = await client.post(request("tools/call", 5, name="echo"))
    assert (reply.status, (await response(reply))["error"]["code"]) == (400, -32600)


async def test_stream_of_the_session_is_open_once_and_repeats_nothing(client: Client) -> None:
    await client.shake_hands()
    reply, session = client.transport.get(client.headers, "owner")
    assert session is not None and reply.stream is session.standalone
    await session.notify("notifications/a", None)
    await session.notify("notifications/b", None)
    reply.stream.readers, reply.stream.sent = 1, 1
    second, _ = client.transport.get(client.headers, "owner")
    assert second.status == 409
    reply.stream.readers = 0
    assert client.transport.get(client.headers, "owner")[0].resume_after == 1
    assert client.transport.get({**client.headers, "last-event-id": "get-0"}, "owner")[0].resume_after == 0


async def test_session_ends_by_delete(client: Client, tools: Tools) -> None:
    await client.shake_hands()
    call = await client.post(request("tools/call", name="forever"))
    await until(lambda: tools.running)
    get, _ = client.transport.get(client.headers, "owner")
    reply, _ = await client.transport.delete(client.headers, "owner")
    assert reply.status == 200
    assert (await response(call))["error"]["message"] == "Request cancelled"
    assert get.stream is not None and get.stream.is_ended
    for later in (await client.post(request("ping")), (await client.transport.delete(client.headers, "owner"))[0]):
        assert later.status == 404


# --- bounds ---


async def test_session_of_another_principal_does_not_exist(transport: Transport, client: Client) -> None:
    await client.shake_hands()
    thief = Client(transport, "token:thief")
    thief.headers = client.headers
    assert (await thief.post(request("ping"))).status == 404
    assert transport.get(thief.headers, "token:thief")[0].status == 404
    assert (await transport.delete(thief.headers, "token:thief"))[0].status == 404
    assert "result" in await response(await client.post(request("ping")))


async def test_client_may_have_so_many_calls(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_sessions, "MAX_CALLS", 3)
    await client.shake_hands()
    for number in range(3):
        assert (await client.post(request("tools/call", number, name="forever"))).status == 200
    assert (await client.post(request("tools/call", 3, name="forever"))).status == 429


async def test_responses_that_nobody_fetches_give_way_to_new_ones(
    client: Client, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake_sessions, "MAX_CALLS", 3)
    await client.shake_hands()
    for number in range(10):
        reply = await client.post(request("tools/call", number, name="echo"))
        await response(reply)
        reply.on_cut()
        assert reply.status == 200
    session = client.transport.sessions.find(client.headers["mcp-session-id"], "owner")
    assert session is not None and len(session.responses) == 3


@pytest.mark.parametrize("bound", ["MAX_PRINCIPAL_BYTES", "MAX_ALL_BYTES"])
async def test_oldest_unread_responses_are_dropped_beyond_a_size(
    transport: Transport, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_responses, bound, 2_500)
    clients = [Client(transport), Client(transport, "owner" if bound == "MAX_PRINCIPAL_BYTES" else "token:other")]
    unread: list[tuple[Client, Reply]] = []
    for each in clients:
        await each.shake_hands()
        for number in (8, 9):
            reply = await each.post(request("tools/call", number, name="large"))
            await response(reply)
            reply.on_cut()
            unread.append((each, reply))
    answers = [await response(again(*cut)) for cut in unread]
    assert [answer.get("error", {}).get("code") for answer in answers] == [-32603, -32603, None, None]
    assert [answer["id"] for answer in answers] == [8, 9, 8, 9]
    assert "too much was left unread" in answers[0]["error"]["message"]


async def test_read_and_ended_responses_take_no_room_of_unread_ones(
    transport: Transport, client: Client, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_responses, "MAX_PRINCIPAL_BYTES", 2_500)
    await client.shake_hands()
    kept = await client.post(request("tools/call", 0, name="large"))
    await response(kept)
    kept.on_cut()
    for number in range(1, 5):
        reply = await client.post(request("tools/call", number, name="large"))
        await response(reply)
        reply.on_cut()
        again(client, reply).on_sent()
    other = Client(transport)
    await other.shake_hands()
    stopped = await other.post(request("tools/call", name="forever"))
    await until(lambda: tools.running)
    stopped.on_cut()
    await transport.delete(other.headers, "owner")
    await response(stopped)
    stopped.on_cut()
    assert len(transport.sessions.unread) == 1
    assert "result" in await response(again(client, kept))
    assert len(transport.sessions.unread) == 0


def again(client: Client, reply: Reply) -> Reply:
    """Return the reply to a client that comes back for a response."""
    assert reply.stream is not None
    return client.transport.get({**client.headers, "last-event-id": f"{reply.stream.name}-0"}, client.principal)[0]


async def test_oldest_unused_session_gives_way_to_a_new_one(
    transport: Transport, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake_sessions, "MAX_PER_PRINCIPAL", 2)
    clients = [Client(transport) for _ in range(3)]
    for each in clients[:2]:
        await each.shake_hands()
    await clients[0].post(request("tools/call", name="forever"))
    await until(lambda: tools.running)
    await clients[2].shake_hands()
    assert [(await each.post(request("ping", 2))).status for each in clients] == [200, 404, 200]
    assert len(transport.sessions) == 2


@pytest.mark.parametrize("bound", ["MAX_PER_PRINCIPAL", "MAX_SESSIONS"])
async def test_sessions_that_are_all_in_use_keep_a_new_client_out(
    transport: Transport, tools: Tools, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake_sessions, bound, 1)
    first = Client(transport)
    await first.shake_hands()
    await first.post(request("tools/call", name="forever"))
    await until(lambda: tools.running)
    with pytest.raises(PolicyLimitReached, match="too many MCP clients"):
        await Client(transport, "owner" if bound == "MAX_PER_PRINCIPAL" else "token:other").shake_hands()
    assert len(transport.sessions) == 1
