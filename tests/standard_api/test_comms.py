"""Comms through a kernel's WebSocket, as widgets use them, with a real kernel's comm manager."""

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
    "asking": {"allow_comms": True, "approval": "always"},
    "plain": {},
}
# A target whose comms print what they get, and send it back.
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


async def test_a_comm_message_is_busy_until_it_is_idle_with_all_that_it_causes(
    http: aiohttp.ClientSession, host: Host
) -> None:
    _, client = await opened(http, host, mint(host, policy="widgets"))
    for number in range(3):  # a widget waits for idle before it sends the next change
        content = {"comm_id": "c", "data": {"value": number}}
        seen = await client.until_idle(await client.send("shell", "comm_msg", content))
        assert [message.msg_type for message in seen] == ["status", "stream", "comm_msg", "status"]
        assert texts_of(seen) == f"got {number} \n"
        assert seen[2].content["data"] == {"echo": number}


async def test_other_clients_of_the_session_see_a_comm_too(http: aiohttp.ClientSession, host: Host) -> None:
    bearer = mint(host, policy="widgets")
    kernel, client = await opened(http, host, bearer)
    other = await connect_again(http, host, bearer, kernel)
    sent = await client.send("shell", "comm_msg", {"comm_id": "c", "data": {"value": 1}})
    assert texts_of(await other.until_idle(sent)) == "got 1 \n"


async def test_output_for_a_comm_message_is_capped(http: aiohttp.ClientSession, host: Host) -> None:
    _, client = await opened(http, host, mint(host, policy="widgets"))
    content = {"comm_id": "c", "data": {"value": 1, "padding": "x" * 2 * MAX_OUTPUT_BYTES}}
    seen = await client.until_idle(await client.send("shell", "comm_msg", content))
    assert texts_of(seen) == "[the rest of a widget's output was left out]\n"
    assert [message.msg_type for message in seen] == ["status", "stream", "status"]  # and no echo


@pytest.mark.parametrize("policy", ["asking", "plain"])
async def test_without_the_policys_leave_there_are_no_comms(
    http: aiohttp.ClientSession, host: Host, policy: str
) -> None:
    _, client = await start(http, host, mint(host, policy=policy))
    sent = await client.send("shell", "comm_open", {"comm_id": "c", "target_name": "echo", "data": {}})
    while (message := await client.receive()).parent_id != sent:
        pass
    assert "'allow_comms'" in message.content["text"]
    assert reply_of(await client.until_idle(await client.send("shell", "comm_info_request", {})))["comms"] == {}
