"""Fair turns in the proxy: a busy connection yields the event loop to all others."""

from __future__ import annotations

import asyncio
import socket

import h11

from jupyter_exec_ext.isolation.network.control_messages import ControlSocket
from jupyter_exec_ext.isolation.network.http_exchange import HttpPeer
from jupyter_exec_ext.isolation.network.streams import SocketStream

_HEAD = b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENTS = 5000


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


async def test_endless_small_chunks_yield_the_event_loop() -> None:
    peer = HttpPeer(h11.SERVER, _Endless())
    peer.state.receive_data(_HEAD)
    counter = _Counter()
    for _ in range(_EVENTS):
        assert isinstance(await peer.next_event(), (h11.Request, h11.Data))
    assert await counter.stop() >= _EVENTS // 100


async def test_data_that_is_always_there_yields_the_event_loop() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for sock in (ours, theirs):
            sock.setblocking(False)
        stream, counter = SocketStream(ours), _Counter()
        for _ in range(100):
            theirs.send(b"x")
            assert await stream.receive() == b"x"
        assert await counter.stop() >= 50


async def test_messages_that_are_always_there_yield_the_event_loop() -> None:
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
