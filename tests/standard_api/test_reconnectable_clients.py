"""Server's side of kernels' clients, with a real engine: limits, reconnects, and removal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import ExecError, QueueFull, SessionNotFound, TooManySessions
from jupyter_exec_ext.models import ExecutionRequest, Session, SessionRequest
from jupyter_exec_ext.protocol.kernel_messages import KernelMessage, new_header
from jupyter_exec_ext.server.gate import Access
from jupyter_exec_ext.standard_api import (
    client_registry,
    comm_outbox,
    creation_locks,
    execution_display,
    reconnectable_client,
)
from jupyter_exec_ext.standard_api.client_registry import ClientKey, ClientRegistry
from jupyter_exec_ext.standard_api.connection_interface import Disconnected
from jupyter_exec_ext.standard_api.creation_locks import CreationLocks
from jupyter_exec_ext.standard_api.outgoing_messages import OutgoingMessage
from jupyter_exec_ext.standard_api.reconnectable_client import ReconnectableClient

ME = owner("me", {"username": "me"})


class Socket:
    """Fake WebSocket that records messages; `is_blocked` simulates a full send buffer."""

    def __init__(self, *, is_blocked: bool = False) -> None:
        self.messages: list[OutgoingMessage] = []
        self.reason = ""
        self.is_blocked = is_blocked
        self._changes = asyncio.Condition()

    async def send(self, message: OutgoingMessage) -> None:
        if self.reason:
            raise Disconnected
        if self.is_blocked:
            await asyncio.Event().wait()
        async with self._changes:
            self.messages.append(message)
            self._changes.notify_all()

    async def require_access(self, access: Access) -> None:
        pass

    def record_refusal(self, message_type: str, error: ExecError) -> None:
        pass

    def count_recorded_message(self) -> None:
        pass

    def end_connection(self, reason: str) -> None:
        self.reason = reason

    async def until(self, seen: Callable[[OutgoingMessage], bool]) -> None:
        """Wait until a sent message satisfies a condition."""
        async with self._changes:
            await asyncio.wait_for(self._changes.wait_for(lambda: any(map(seen, self.messages))), 20)

    @property
    def text(self) -> str:
        return "".join(message.content["text"] for message in self.messages if message.msg_type == "stream")


def is_idle(message: OutgoingMessage) -> bool:
    return message.content.get("execution_state") == "idle"


def frame(msg_type: str, content: dict[str, Any], *, channel: str = "shell", parent: str = "") -> str:
    header = new_header(msg_type, "s")
    return json.dumps({"channel": channel, "header": header, "parent_header": {"msg_id": parent}, "content": content})


@pytest.fixture
async def session(engine: ExecEngine) -> Session:
    return await engine.create_session(ME, SessionRequest())


@pytest.fixture
async def registry(engine: ExecEngine) -> AsyncIterator[ClientRegistry]:
    registry = ClientRegistry(engine)
    yield registry
    for key in [*registry._clients]:
        registry.remove(key)


def key_of(session: Session, name: str = "a") -> ClientKey:
    return ClientKey(ME.principal, session.id, name)


async def run(engine: ExecEngine, session: Session, code: str) -> None:
    execution = await engine.execute(ME, session.id, ExecutionRequest(code))
    assert (await execution.wait(30)).state.finished


async def test_client_that_connects_during_execution_receives_all_its_output(
    engine: ExecEngine, registry: ClientRegistry, session: Session
) -> None:
    code = "print('first', flush=True); x = input(); print('last')"
    execution = await engine.execute(ME, session.id, ExecutionRequest(code, allow_input=True))
    while not execution.waits_for_input:  # type: ignore[attr-defined]  # it lives
        await execution.log.changed(0)
        await asyncio.sleep(0)
    socket = Socket()
    await registry.connect(key_of(session), ME, socket)
    await engine.answer_input(ME, execution.record.id, "")
    await socket.until(is_idle)
    assert socket.text == "first\nlast\n"


async def test_slow_client_is_disconnected_and_replaced_on_reconnect(
    engine: ExecEngine, registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution_display, "MAX_WAITING", 2)
    blocked = Socket(is_blocked=True)
    client = await registry.connect(key_of(session), ME, blocked)
    for number in range(3):
        await run(engine, session, str(number))
    assert client.is_behind and "too slowly" in blocked.reason
    registry.disconnect(key_of(session), blocked, may_return=True)
    again = Socket()
    assert await registry.connect(key_of(session), ME, again) is not client
    await run(engine, session, "print('seen')")
    await again.until(is_idle)
    assert again.text == "seen\n"


async def test_client_behind_while_disconnected_is_replaced_on_reconnect(
    engine: ExecEngine, registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution_display, "MAX_WAITING", 2)
    first = Socket()
    client = await registry.connect(key_of(session), ME, first)
    first.end_connection("the network broke")
    registry.disconnect(key_of(session), first, may_return=True)
    for number in range(3):
        await run(engine, session, str(number))
    assert await registry.connect(key_of(session), ME, Socket()) is not client


async def test_removed_client_ends_its_waiting_request(
    engine: ExecEngine, registry: ClientRegistry, session: Session
) -> None:
    class Lost(Socket):
        async def send(self, message: OutgoingMessage) -> None:
            raise Disconnected

    client = await registry.connect(key_of(session), ME, Lost())
    handling = asyncio.create_task(client.handle_frame(frame("debug_request", {}, channel="control"), is_v1=False))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not handling.done()  # its answer waits for the client's next connection
    registry.remove(key_of(session))
    with pytest.raises(Disconnected):
        await asyncio.wait_for(handling, 5)


async def test_input_reply_to_other_prompt_is_refused(
    engine: ExecEngine, registry: ClientRegistry, session: Session
) -> None:
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    await client.handle_frame(
        frame("execute_request", {"code": "print(input('? '))", "allow_stdin": True}), is_v1=False
    )
    await socket.until(lambda message: message.msg_type == "input_request")
    (prompt,) = [message for message in socket.messages if message.msg_type == "input_request"]
    answer = frame("input_reply", {"value": "wrong"}, channel="stdin", parent="another")
    await client.handle_frame(answer, is_v1=False)
    assert "waits for input" in socket.text
    await client.handle_frame(
        frame("input_reply", {"value": "right"}, channel="stdin", parent=prompt.msg_id), is_v1=False
    )
    await socket.until(is_idle)
    assert socket.text.endswith("right\n")


async def test_silent_request_sent_again_after_end_sends_no_value(
    engine: ExecEngine, registry: ClientRegistry, session: Session
) -> None:
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    sent = frame("execute_request", {"code": "'value'", "silent": True})
    for _ in range(2):
        await client.handle_frame(sent, is_v1=False)
        await socket.until(is_idle)
        assert {message.msg_type for message in socket.messages} == {"status", "execute_reply"}
        socket.messages.clear()


async def test_clients_beyond_token_limit_are_refused(
    registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_registry, "_MAX_CLIENTS_OF_A_TOKEN", 2)
    monkeypatch.setattr(client_registry, "_MAX_CLIENTS", 3)
    sockets = [Socket(), Socket()]
    for name, socket in zip("ab", sockets, strict=True):
        await registry.connect(key_of(session, name), ME, socket)
    assert registry.count_connections(session.id) == 2
    with pytest.raises(TooManySessions, match="2 of them with this token"):
        await registry.connect(key_of(session, "c"), ME, Socket())
    registry.disconnect(key_of(session, "b"), sockets[1], may_return=True)
    assert registry.count_connections(session.id) == 1
    with pytest.raises(TooManySessions, match="disconnected client still counts"):
        await registry.connect(key_of(session, "c"), ME, Socket())
    await registry.connect(key_of(session, "b"), ME, Socket())  # it comes back
    registry.disconnect(key_of(session), sockets[0], may_return=False)
    await registry.connect(key_of(session, "c"), ME, Socket())


async def test_tokens_leave_places_for_owners_clients(
    registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_registry, "_MAX_CLIENTS", 3)
    monkeypatch.setattr(client_registry, "_OWNERS_RESERVE", 1)
    await registry.connect(key_of(session, "a"), ME, Socket())
    await registry.connect(key_of(session, "b"), ME, Socket())
    token = Caller("token:abcdefgh")
    with pytest.raises(TooManySessions, match="limit 2"):
        await registry.connect(ClientKey(token.principal, session.id, "c"), token, Socket())
    await registry.connect(key_of(session, "d"), ME, Socket())


async def test_creation_locks_refuse_requests_beyond_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation_locks, "MAX_REQUESTS", 1)
    locks = CreationLocks()
    async with locks.hold("me", "a"), locks.hold("other", "a"), locks.hold("me", ""), locks.hold("me", ""):
        with pytest.raises(QueueFull):
            async with locks.hold("me", "a"):
                pass
    assert not locks._locks


async def test_client_of_unknown_session_is_removed(registry: ClientRegistry) -> None:
    with pytest.raises(SessionNotFound):
        await registry.connect(ClientKey(ME.principal, "ses_" + "0" * 24, "a"), ME, Socket())
    assert not registry._clients and registry.count_connections("ses_" + "0" * 24) == 0


def comm_message(number: int) -> KernelMessage:
    return KernelMessage("iopub", "comm_msg", None, {"comm_id": "c", "data": {"n": number}})


async def test_comm_messages_keep_order_after_reconnect(
    registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReconnectableClient, "_may_use_comms", lambda client: True)
    first = Socket()
    client = await registry.connect(key_of(session), ME, first)
    first.end_connection("the network broke")
    for number in range(5):
        client.on_comm_output(comm_message(number), {})
    for _ in range(10):
        await asyncio.sleep(0)
    again = Socket()
    await registry.connect(key_of(session), ME, again)
    client.on_comm_output(comm_message(5), {})
    await again.until(lambda message: message.content["data"] == {"n": 5})
    assert [message.content["data"]["n"] for message in again.messages] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("name", "bound"), [("MAX_MESSAGES", 2), ("MAX_BYTES", 100)])
async def test_full_comm_outbox_disconnects_client(
    registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(ReconnectableClient, "_may_use_comms", lambda client: True)
    monkeypatch.setattr(comm_outbox, name, bound)
    socket = Socket(is_blocked=True)
    client = await registry.connect(key_of(session), ME, socket)
    for number in range(4):
        client.on_comm_output(comm_message(number), {})
    assert client.is_behind and "widgets" in socket.reason


async def test_client_disconnected_as_too_slow_receives_reply_after_reconnect(
    engine: ExecEngine, registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Socket()
    client = await registry.connect(key_of(session), ME, first)
    await client.handle_frame(frame("execute_request", {"code": "print(input())", "allow_stdin": True}), is_v1=False)
    await first.until(lambda message: message.msg_type == "input_request")
    client._mark_behind("too slow")
    registry.disconnect(key_of(session), first, may_return=True)
    again = Socket()
    client = await registry.connect(key_of(session), ME, again)
    await again.until(lambda message: message.msg_type == "input_request")
    await client.handle_frame(frame("input_reply", {"value": "late"}, channel="stdin"), is_v1=False)
    await again.until(lambda message: message.msg_type == "execute_reply")
    assert again.text == "late\n"


async def test_execution_with_unreadable_log_sends_note_and_reply(
    registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(log: object) -> None:
        raise OSError("gone")

    monkeypatch.setattr(execution_display, "follow", fail)
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    for code in ("1", "2"):
        await client.handle_frame(frame("execute_request", {"code": code}), is_v1=False)
        await socket.until(is_idle)
        assert "could not show this code's output" in socket.text
        assert [message.msg_type for message in socket.messages][-2:] == ["execute_reply", "status"]
        socket.messages.clear()


async def test_unexpected_exception_closes_connection_with_reason(
    engine: ExecEngine, registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(engine.messages, "send_request", fail)
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    await client.handle_frame(frame("is_complete_request", {"code": "1"}), is_v1=False)
    for _ in range(10):
        await asyncio.sleep(0)
    assert client.is_behind and "the server failed" in socket.reason


async def test_header_with_lone_surrogate_closes_connection(registry: ClientRegistry, session: Session) -> None:
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    message = json.loads(frame("is_complete_request", {"code": "1"}))
    message["header"]["username"] = "\ud800"
    await client.handle_frame(json.dumps(message), is_v1=False)
    assert "header fields must be" in socket.reason


async def test_frame_with_millions_of_values_is_refused_before_parsing(
    registry: ClientRegistry, session: Session
) -> None:
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    await client.handle_frame("[" + "[]," * 1_000_000 + "[]]", is_v1=False)
    assert "too many values" in socket.reason


async def test_client_with_too_many_pending_requests_is_disconnected(
    registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnectable_client, "_MAX_TASKS", 6)
    socket = Socket(is_blocked=True)
    client = await registry.connect(key_of(session), ME, socket)
    for _ in range(5):  # with the display of executions and the outbox, that is one more than it may have
        await client.handle_frame(frame("is_complete_request", {"code": "1"}), is_v1=False)
    assert client.is_behind and "too many requests" in socket.reason
