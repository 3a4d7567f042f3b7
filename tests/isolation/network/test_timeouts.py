"""Cancellations and turns in the proxy: a cut is never lost, and no connection keeps the others waiting."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import h11
import pytest

from jupyter_exec_ext.isolation import network
from jupyter_exec_ext.isolation.network.control_messages import ControlSocket
from jupyter_exec_ext.isolation.network.http_exchange import HttpPeer
from jupyter_exec_ext.isolation.network.streams import SocketStream
from jupyter_exec_ext.isolation.network.timeouts import finish_within

_HEAD = b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENTS = 5000


@pytest.mark.parametrize("turns", range(5))
async def test_cancellation_at_the_end_of_an_operation_is_not_lost(turns: int) -> None:
    operation = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(finish_within(5, operation))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    operation.set_result("done")
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert task.result() == "done"


async def test_operation_that_takes_too_long_is_cancelled() -> None:
    operation = asyncio.create_task(asyncio.sleep(60))
    with pytest.raises(asyncio.TimeoutError):
        await finish_within(0.01, operation)
    assert operation.cancelled()
    with pytest.raises(ValueError, match="wrong"):
        await finish_within(1, _fail())


async def _fail() -> None:
    raise ValueError("wrong")


def test_proxy_does_not_use_what_can_lose_a_cancellation() -> None:
    directory = Path(network.__file__).parent
    assert [path.name for path in directory.glob("*.py") if "asyncio.wait_for(" in path.read_text()] == []


class _Counter:
    """Turns that others had while something ran."""

    def __init__(self) -> None:
        self.turns = 0
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)

    async def stop(self) -> int:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return self.turns


class _Endless:
    """A program that sends a chunk of one byte after the other, and never lets the proxy wait."""

    async def receive(self) -> bytes:
        return b"1\r\nx\r\n" * 10_000

    async def send(self, data: bytes) -> None:
        raise AssertionError(data)

    async def send_end(self) -> None:
        raise AssertionError


async def test_endless_small_chunks_leave_turns_for_others() -> None:
    peer = HttpPeer(h11.SERVER, _Endless())
    peer.state.receive_data(_HEAD)
    counter = _Counter()
    for _ in range(_EVENTS):
        assert isinstance(await peer.next_event(), (h11.Request, h11.Data))
    assert await counter.stop() >= _EVENTS // 100


async def test_data_that_is_always_there_leaves_turns_for_others() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for sock in (ours, theirs):
            sock.setblocking(False)
        stream, counter = SocketStream(ours), _Counter()
        for _ in range(100):
            theirs.send(b"x")
            assert await stream.receive() == b"x"
        assert await counter.stop() >= 50


async def test_messages_that_are_always_there_leave_turns_for_others() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sender, receiver = ControlSocket(theirs), ControlSocket(ours)
    for number in range(100):
        await sender.send({"id": number})
    counter = _Counter()
    for number in range(100):
        assert await receiver.receive() == ({"id": number}, [])
    assert await counter.stop() >= 50
    sender.close()
    receiver.close()
