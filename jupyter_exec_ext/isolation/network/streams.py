"""Byte streams of the proxy: over a socket, and over TLS on top of another stream; and copying between two of them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from .control_messages import until_ready

CHUNK_BYTES = 256 * 1024
_TLS_CHUNK_BYTES = 64 * 1024

# One buffer for all sockets: a chunk is sent before anything else runs, and what a slow peer does not accept at once is
# copied. So waiting connections need no memory of their own.
_shared_buffer = memoryview(bytearray(CHUNK_BYTES))


class Stream(Protocol):
    """A connection in both directions."""

    async def receive(self) -> bytes:
        """Return the next bytes; nothing at the end."""

    async def send(self, data: bytes) -> None:
        """Send bytes; wait until the system has them all."""

    async def send_end(self) -> None:
        """Say that no more bytes follow."""


class SocketStream:
    """Stream over a socket.

    Parameters
    ----------
    sock : socket.socket
        A connected socket, which the caller closes.
    received : bytes
        Bytes that were read from it before.
    """

    def __init__(self, sock: socket.socket, received: bytes = b"") -> None:
        self.sock = sock
        self.received = received
        self._loop = asyncio.get_running_loop()

    async def receive(self) -> bytes:
        """Return the next bytes; nothing at the end."""
        if self.received:
            data, self.received = self.received, b""
            return data
        while True:
            try:
                data = self.sock.recv(_TLS_CHUNK_BYTES)
            except BlockingIOError:
                await until_ready(self._loop.add_reader, self._loop.remove_reader, self.sock)
            else:
                await asyncio.sleep(0)  # other connections have their turn, also if there is always more
                return data

    async def send(self, data: bytes) -> None:
        """Send bytes; wait until the system has them all."""
        await self._loop.sock_sendall(self.sock, data)

    async def send_end(self) -> None:
        """Say that no more bytes follow."""
        with suppress(OSError):  # the peer may have gone already
            self.sock.shutdown(socket.SHUT_WR)


class TlsStream:
    """Stream of TLS over another stream.

    Parameters
    ----------
    below : Stream
        Stream of encrypted bytes.
    context : ssl.SSLContext
        Certificates and trust.
    server_hostname : str, optional
        Name to verify, on the client's side of TLS; None on the server's side.
    """

    def __init__(self, below: Stream, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_hostname is None, server_hostname=server_hostname
        )
        self._flushing = asyncio.Lock()

    async def handshake(self) -> None:
        """Do the handshake."""
        try:
            await self._run(self._tls.do_handshake)
        except ssl.SSLError:
            with suppress(OSError):
                await self._flush()  # the alert that says why
            raise

    async def receive(self) -> bytes:
        """Return the next bytes; nothing at the end."""
        try:
            return bytes(await self._run(self._tls.read, _TLS_CHUNK_BYTES))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    async def send(self, data: bytes) -> None:
        """Send bytes; wait until the system has them all."""
        for start in range(0, len(data), _TLS_CHUNK_BYTES):
            await self._run(self._tls.write, data[start : start + _TLS_CHUNK_BYTES])

    async def send_end(self) -> None:
        """Say that no more bytes follow."""
        with suppress(ssl.SSLError, OSError):  # `unwrap` wants the peer's answer, which is not needed
            self._tls.unwrap()
        with suppress(OSError):
            await self._flush()

    async def _run(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        while True:
            try:
                result = operation(*arguments)
            except ssl.SSLWantReadError:
                await self._flush()
                data = await self._below.receive()
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        async with self._flushing:
            if self._outgoing.pending:
                await self._below.send(self._outgoing.read())


async def copy_sockets(source: SocketStream, destination: SocketStream, count: Callable[[int], None]) -> None:
    """Copy bytes from one socket to another until the end, without a buffer of its own.

    Parameters
    ----------
    source, destination : SocketStream
        The two sockets.
    count : callable
        Called with the size of each chunk before it is sent; an exception of it ends the copying.
    """
    loop = asyncio.get_running_loop()
    if source.received:
        data = await source.receive()
        count(len(data))
        await destination.send(data)
    while True:
        try:
            size = source.sock.recv_into(_shared_buffer)
        except BlockingIOError:
            await until_ready(loop.add_reader, loop.remove_reader, source.sock)
            continue
        if not size:
            await destination.send_end()
            return
        count(size)
        try:
            sent = destination.sock.send(_shared_buffer[:size])
        except BlockingIOError:
            sent = 0
        if sent < size:
            await destination.send(bytes(_shared_buffer[sent:size]))
        else:
            await asyncio.sleep(0)


async def copy_streams(source: Stream, destination: Stream, inspect: Callable[[bytes], None]) -> None:
    """Copy bytes from one stream to another until the end; an exception of `inspect` ends the copying."""
    while data := await source.receive():
        inspect(data)
        await destination.send(data)
    await destination.send_end()


async def run_both(first: Any, second: Any) -> None:
    """Run two coroutines until both have ended, or one has failed; the other is cancelled then."""
    tasks = [asyncio.ensure_future(first), asyncio.ensure_future(second)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
