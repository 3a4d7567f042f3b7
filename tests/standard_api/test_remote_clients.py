"""The server's side of clients of kernels, with a real engine: bounds, broken connections, and what is forgotten."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import ExecError, SessionNotFound, TooManySessions
from jupyter_exec_ext.models import ExecutionRequest, Session, SessionRequest
from jupyter_exec_ext.protocol.kernel_messages import KernelMessage, new_header
from jupyter_exec_ext.server.gate import Access
from jupyter_exec_ext.standard_api import client_registry, comm_outbox, execution_display, remote_client
from jupyter_exec_ext.standard_api.client_registry import ClientKey, ClientRegistry
from jupyter_exec_ext.standard_api.outgoing_messages import OutgoingMessage
from jupyter_exec_ext.standard_api.remote_client import Disconnected, RemoteClient

ME = owner("me", {"username": "me"})


class Socket:
    """A WebSocket that keeps what it is sent; while `is_blocked`, it has no room for more."""

    def __init__(self, *, is_blocked: bool = False) -> None:
        self.messages: list[OutgoingMessage] = []
        self.reason = ""
        self.is_blocked = is_blocked
        self._news = asyncio.Condition()

    async def send(self, message: OutgoingMessage) -> None:
        if self.reason:
            raise Disconnected
        if self.is_blocked:
            await asyncio.Event().wait()
        async with self._news:
            self.messages.append(message)
            self._news.notify_all()

    async def require(self, access: Access) -> None:
        pass

    def note_refusal(self, message_type: str, error: ExecError) -> None:
        pass

    def count_recorded(self) -> None:
        pass

    def cut_off(self, reason: str) -> None:
        self.reason = reason

    async def until(self, seen: Callable[[OutgoingMessage], bool]) -> None:
        """Return once a message was sent for which this is so."""
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: any(map(seen, self.messages))), 20)

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
        registry.forget(key)


def key_of(session: Session, name: str = "a") -> ClientKey:
    return ClientKey(ME.principal, session.id, name)


async def run(engine: ExecEngine, session: Session, code: str) -> None:
    execution = await engine.execute(ME, session.id, ExecutionRequest(code))
    assert (await execution.wait(30)).state.finished


async def test_a_client_that_connects_while_code_runs_sees_it_from_its_beginning(
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


async def test_a_client_too_far_behind_is_cut_off_and_comes_back_as_a_new_one(
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


async def test_a_client_that_falls_behind_while_it_is_away_does_not_come_back_with_a_gap(
    engine: ExecEngine, registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution_display, "MAX_WAITING", 2)
    first = Socket()
    client = await registry.connect(key_of(session), ME, first)
    first.cut_off("the network broke")
    registry.disconnect(key_of(session), first, may_return=True)
    for number in range(3):
        await run(engine, session, str(number))
    assert await registry.connect(key_of(session), ME, Socket()) is not client


async def test_a_forgotten_clients_request_waits_no_longer(
    engine: ExecEngine, registry: ClientRegistry, session: Session
) -> None:
    class Lost(Socket):
        async def send(self, message: OutgoingMessage) -> None:
            raise Disconnected

    client = await registry.connect(key_of(session), ME, Lost())
    handling = asyncio.create_task(client.handle(frame("debug_request", {}, channel="control"), is_v1=False))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not handling.done()  # its answer waits for the client's next connection
    registry.forget(key_of(session))
    with pytest.raises(Disconnected):
        await asyncio.wait_for(handling, 5)


async def test_an_answer_to_another_prompt_is_refused(
    engine: ExecEngine, registry: ClientRegistry, session: Session
) -> None:
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    await client.handle(frame("execute_request", {"code": "print(input('? '))", "allow_stdin": True}), is_v1=False)
    await socket.until(lambda message: message.msg_type == "input_request")
    (prompt,) = [message for message in socket.messages if message.msg_type == "input_request"]
    answer = frame("input_reply", {"value": "wrong"}, channel="stdin", parent="another")
    await client.handle(answer, is_v1=False)
    assert "waits for this input" in socket.text
    await client.handle(frame("input_reply", {"value": "right"}, channel="stdin", parent=prompt.msg_id), is_v1=False)
    await socket.until(is_idle)
    assert socket.text.endswith("right\n")


async def test_silent_code_that_is_sent_again_after_its_end_shows_no_value(
    engine: ExecEngine, registry: ClientRegistry, session: Session
) -> None:
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    sent = frame("execute_request", {"code": "'value'", "silent": True})
    for _ in range(2):
        await client.handle(sent, is_v1=False)
        await socket.until(is_idle)
        assert {message.msg_type for message in socket.messages} == {"status", "execute_reply"}
        socket.messages.clear()


async def test_clients_of_a_token_and_of_the_server_are_bounded(
    registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_registry, "_MAX_CLIENTS_OF_A_TOKEN", 2)
    monkeypatch.setattr(client_registry, "_MAX_CLIENTS", 3)
    sockets = [Socket(), Socket()]
    for name, socket in zip("ab", sockets, strict=True):
        await registry.connect(key_of(session, name), ME, socket)
    assert registry.count(session.id) == 2
    with pytest.raises(TooManySessions, match="2 of them with this token"):
        await registry.connect(key_of(session, "c"), ME, Socket())
    registry.disconnect(key_of(session, "b"), sockets[1], may_return=True)
    assert registry.count(session.id) == 1
    with pytest.raises(TooManySessions, match="whose connection broke counts"):
        await registry.connect(key_of(session, "c"), ME, Socket())
    await registry.connect(key_of(session, "b"), ME, Socket())  # it comes back
    registry.disconnect(key_of(session), sockets[0], may_return=False)
    await registry.connect(key_of(session, "c"), ME, Socket())


async def test_a_client_of_a_session_that_is_not_there_is_forgotten(registry: ClientRegistry) -> None:
    with pytest.raises(SessionNotFound):
        await registry.connect(ClientKey(ME.principal, "ses_" + "0" * 24, "a"), ME, Socket())
    assert not registry._clients and registry.count("ses_" + "0" * 24) == 0


def comm_message(number: int) -> KernelMessage:
    return KernelMessage("iopub", "comm_msg", None, {"comm_id": "c", "data": {"n": number}})


async def test_comm_messages_keep_their_order_over_a_broken_connection(
    registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RemoteClient, "_may_use_comms", lambda client: True)
    first = Socket()
    client = await registry.connect(key_of(session), ME, first)
    first.cut_off("the network broke")
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
async def test_comm_messages_that_wait_are_bounded(
    registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(RemoteClient, "_may_use_comms", lambda client: True)
    monkeypatch.setattr(comm_outbox, name, bound)
    socket = Socket(is_blocked=True)
    client = await registry.connect(key_of(session), ME, socket)
    for number in range(4):
        client.on_comm_output(comm_message(number), {})
    assert client.is_behind and "widgets" in socket.reason


async def test_a_client_given_up_while_its_code_runs_gets_the_reply_when_it_comes_back(
    engine: ExecEngine, registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Socket()
    client = await registry.connect(key_of(session), ME, first)
    await client.handle(frame("execute_request", {"code": "print(input())", "allow_stdin": True}), is_v1=False)
    await first.until(lambda message: message.msg_type == "input_request")
    client._fall_behind("too slow")
    registry.disconnect(key_of(session), first, may_return=True)
    again = Socket()
    client = await registry.connect(key_of(session), ME, again)
    await again.until(lambda message: message.msg_type == "input_request")
    await client.handle(frame("input_reply", {"value": "late"}, channel="stdin"), is_v1=False)
    await again.until(lambda message: message.msg_type == "execute_reply")
    assert again.text == "late\n"


async def test_an_execution_whose_log_is_gone_ends_with_its_reply(
    registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(log: object) -> None:
        raise OSError("gone")

    monkeypatch.setattr(execution_display, "follow", fail)
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    for code in ("1", "2"):
        await client.handle(frame("execute_request", {"code": code}), is_v1=False)
        await socket.until(is_idle)
        assert "could not show this code's output" in socket.text
        assert [message.msg_type for message in socket.messages][-2:] == ["execute_reply", "status"]
        socket.messages.clear()


async def test_a_defect_of_ours_ends_the_connection_and_not_in_silence(
    engine: ExecEngine, registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(engine.messages, "ask", fail)
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    await client.handle(frame("is_complete_request", {"code": "1"}), is_v1=False)
    for _ in range(10):
        await asyncio.sleep(0)
    assert client.is_behind and "the server failed" in socket.reason


async def test_a_header_that_no_frame_can_have_is_refused(registry: ClientRegistry, session: Session) -> None:
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    message = json.loads(frame("is_complete_request", {"code": "1"}))
    message["header"]["username"] = "\ud800"
    await client.handle(json.dumps(message), is_v1=False)
    assert "fields of a header" in socket.reason


async def test_a_frame_of_millions_of_values_is_refused_unparsed(registry: ClientRegistry, session: Session) -> None:
    socket = Socket()
    client = await registry.connect(key_of(session), ME, socket)
    await client.handle("[" + "[]," * 1_000_000 + "[]]", is_v1=False)
    assert "fewer values" in socket.reason


async def test_requests_that_wait_for_the_kernel_are_bounded(
    registry: ClientRegistry, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_client, "_MAX_TASKS", 6)
    socket = Socket(is_blocked=True)
    client = await registry.connect(key_of(session), ME, socket)
    for _ in range(5):  # with the display of executions and the outbox, that is one more than it may have
        await client.handle(frame("is_complete_request", {"code": "1"}), is_v1=False)
    assert client.is_behind and "too many requests" in socket.reason
