"""Comm messages of widgets on a kernel's WebSocket, with a real kernel's comm manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.support.bearers import Bearer, mint
from tests.support.hosts import Host, running_host
from tests.support.kernel_sockets import connect_again, reply_of, start, texts_of

MAX_OUTPUT_BYTES = 20_000
POLICIES = {
    "widgets": {"allow_comms": True, "max_output_bytes": MAX_OUTPUT_BYTES},
    "quick": {"allow_comms": True, "max_execution_seconds": 1},
    "large": {"allow_comms": True},
    "asking": {"allow_comms": True, "approval": "always"},
    "plain": {},
}
# Target whose comms print and echo each message.
TARGET = """
def opened(comm, message):
    @comm.on_msg
    def received(message):
        data = message["content"]["data"]
        print("got", data.get("value"), data.get("padding", ""), flush=True)
        comm.send({"echo": data.get("value")})
get_ipython().kernel.comm_manager.register_target("echo", opened)
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_host("server", tmp_path_factory.mktemp("comms"), f"--ExecEngine.policies={POLICIES}") as host:
        yield host


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


async def opened(http: aiohttp.ClientSession, host: Host, bearer: Bearer) -> tuple[Any, Any]:
    """Return a kernel with an open comm `c`, and its client."""
    kernel, client = await start(http, host, bearer)
    assert reply_of(await client.run(TARGET))["status"] == "ok"
    content = {"comm_id": "c", "target_name": "echo", "data": {}}
    await client.until_idle(await client.send("shell", "comm_open", content))
    return kernel, client


async def test_comm_message_sends_busy_then_output_then_idle(http: aiohttp.ClientSession, host: Host) -> None:
    _, client = await opened(http, host, mint(host, policy="widgets"))
    for number in range(3):  # a widget waits for idle before it sends the next change
        content = {"comm_id": "c", "data": {"value": number}}
        seen = await client.until_idle(await client.send("shell", "comm_msg", content))
        assert [message.msg_type for message in seen] == ["status", "stream", "comm_msg", "status"]
        assert texts_of(seen) == f"got {number} \n"
        assert seen[2].content["data"] == {"echo": number}


async def test_comm_output_reaches_other_clients_of_session(http: aiohttp.ClientSession, host: Host) -> None:
    bearer = mint(host, policy="widgets")
    kernel, client = await opened(http, host, bearer)
    other = await connect_again(http, host, bearer, kernel)
    sent = await client.send("shell", "comm_msg", {"comm_id": "c", "data": {"value": 1}})
    assert texts_of(await other.until_idle(sent)) == "got 1 \n"


async def test_output_of_comm_handler_is_capped(http: aiohttp.ClientSession, host: Host) -> None:
    _, client = await opened(http, host, mint(host, policy="widgets"))
    content = {"comm_id": "c", "data": {"value": 1, "padding": "x" * 2 * MAX_OUTPUT_BYTES}}
    seen = await client.until_idle(await client.send("shell", "comm_msg", content))
    assert texts_of(seen) == "[the rest of a widget's output was left out]\n"
    assert [message.msg_type for message in seen] == ["status", "stream", "status"]  # and no echo


async def test_comm_messages_of_code_are_capped_per_execution(http: aiohttp.ClientSession, host: Host) -> None:
    _, client = await start(http, host, mint(host, policy="widgets"))
    code = "from comm import create_comm\nc = create_comm('t')\nfor n in range(1000): c.send({'d': 'x' * 1000})"
    sent = await client.send("shell", "execute_request", {"code": code})
    received, note = 0, ""
    while (message := await client.receive()).content.get("execution_state") != "idle" or message.parent_id != sent:
        received += len(str(message.content)) if message.msg_type == "comm_msg" else 0
        note += str(message.content.get("text", ""))
    assert MAX_OUTPUT_BYTES / 2 < received <= MAX_OUTPUT_BYTES
    assert note == "[the rest of a widget's output was left out]\n"
    # The next execution may send as much again.
    await client.send("shell", "execute_request", {"code": "c.send({'d': 1})"})
    while (message := await client.receive()).msg_type != "comm_msg":
        pass
    assert message.content["data"] == {"d": 1}


async def test_text_and_comm_messages_of_code_keep_their_order(http: aiohttp.ClientSession, host: Host) -> None:
    _, client = await start(http, host, mint(host, policy="large"))
    code = (
        "from comm import create_comm\nc = create_comm('t')\n"
        "for n in range(200): print(n, flush=True); c.send({'n': n})"
    )
    sent, seen = await client.send("shell", "execute_request", {"code": code}), []
    while (message := await client.receive()).content.get("execution_state") != "idle" or message.parent_id != sent:
        if message.msg_type == "stream":  # may have several lines
            seen += [("text", int(line)) for line in message.content["text"].split()]
        elif message.msg_type == "comm_msg":
            seen.append(("comm", message.content["data"]["n"]))
    assert seen == [(kind, number) for number in range(200) for kind in ("text", "comm")]


async def test_status_forged_by_comm_handler_is_dropped(http: aiohttp.ClientSession, host: Host) -> None:
    _, client = await opened(http, host, mint(host, policy="widgets"))
    forging = """
def received(message):
    k = get_ipython().kernel
    for state in ('dead', 'busy', 'restarting'):
        k.session.send(k.iopub_socket, 'status', {'execution_state': state, 'more': 'x' * 1000}, parent=k.get_parent())
"""
    assert reply_of(await client.run(forging))["status"] == "ok"
    assert reply_of(await client.run("get_ipython().kernel.comm_manager.comms['c'].on_msg(received)"))["status"] == "ok"
    seen = await client.until_idle(await client.send("shell", "comm_msg", {"comm_id": "c", "data": {}}))
    assert [message.content for message in seen] == [{"execution_state": "busy"}, {"execution_state": "idle"}]


SLEEPING = """
import time
def received(message):
    print('begun', flush=True)
    try: time.sleep(60)
    finally: print('stopped', flush=True)
get_ipython().kernel.comm_manager.comms['c'].on_msg(received)
"""


async def test_interrupt_request_stops_comm_handler(http: aiohttp.ClientSession, host: Host) -> None:
    _, client = await opened(http, host, mint(host, policy="large"))
    assert reply_of(await client.run(SLEEPING))["status"] == "ok"
    sent = await client.send("shell", "comm_msg", {"comm_id": "c", "data": {}})
    while (await client.receive()).content.get("text") != "begun\n":
        pass
    await client.send("control", "interrupt_request", {})
    assert "stopped" in texts_of(await client.until_idle(sent))


async def test_comm_handler_beyond_execution_limit_is_interrupted(http: aiohttp.ClientSession, host: Host) -> None:
    _, client = await opened(http, host, mint(host, policy="quick"))
    assert reply_of(await client.run(SLEEPING))["status"] == "ok"
    seen = await client.until_idle(await client.send("shell", "comm_msg", {"comm_id": "c", "data": {}}))
    assert "A widget's code was interrupted after 1 s." in texts_of(seen) and "stopped" in texts_of(seen)


async def test_comm_message_of_dying_kernel_ends_idle(http: aiohttp.ClientSession, host: Host) -> None:
    _, client = await opened(http, host, mint(host, policy="large"))
    dying = "get_ipython().kernel.comm_manager.comms['c'].on_msg(lambda message: __import__('os')._exit(1))"
    assert reply_of(await client.run(dying))["status"] == "ok"
    seen = await client.until_idle(await client.send("shell", "comm_msg", {"comm_id": "c", "data": {}}))
    assert seen[-1].content == {"execution_state": "idle"}


async def test_comm_open_with_metadata_and_large_data_arrives_unchanged(
    http: aiohttp.ClientSession, host: Host
) -> None:
    _, client = await start(http, host, mint(host, policy="large"))
    code = (
        "from comm import create_comm\nc = create_comm('t', data={'d': 'x' * 300_000}, metadata={'version': '2.1.0'})"
    )
    await client.send("shell", "execute_request", {"code": code})
    while True:
        frame = await client.socket.receive_json(timeout=20)
        if frame["msg_type"] == "comm_open":
            break
    assert frame["metadata"] == {"version": "2.1.0"} and len(frame["content"]["data"]["d"]) == 300_000


@pytest.mark.parametrize("policy", ["asking", "plain"])
async def test_comms_without_allow_comms_or_with_approvals_are_refused(
    http: aiohttp.ClientSession, host: Host, policy: str
) -> None:
    _, client = await start(http, host, mint(host, policy=policy))
    sent = await client.send("shell", "comm_open", {"comm_id": "c", "target_name": "echo", "data": {}})
    seen = await client.until_idle(sent)
    assert "'allow_comms'" in texts_of(seen)
    assert [message.msg_type for message in seen] == ["status", "stream", "comm_close", "status"]
    assert reply_of(await client.until_idle(await client.send("shell", "comm_info_request", {})))["comms"] == {}
