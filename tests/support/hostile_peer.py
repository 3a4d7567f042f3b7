"""A peer that speaks ZMTP by hand and can send anything, in the place of a kernel's sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_exec_ext.protocol.kernel_messages import FrameCodec
from jupyter_exec_ext.protocol.zmtp_frames import encode_message, opening

KEY = b"key"
CHANNELS = ("shell", "control", "stdin", "iopub")


class HostilePeer:
    """Four Unix sockets, as a kernel has them.

    Attributes
    ----------
    info : dict
        Addresses and key, as in a connection file.
    connections : dict
        How often each channel was connected to.
    """

    def __init__(self, directory: Path) -> None:
        self.info: dict[str, Any] = {"transport": "ipc", "ip": str(directory / "s"), "key": KEY}
        self.codec = FrameCodec(KEY, "hmac-sha256", "kernel")
        self.connections = dict.fromkeys(CHANNELS, 0)
        self._ports = {channel: number for number, channel in enumerate(CHANNELS, 1)}
        self.info |= {f"{channel}_port": number for channel, number in self._ports.items()}
        self._servers: list[asyncio.Server] = []
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._arrived: dict[str, asyncio.Event] = {channel: asyncio.Event() for channel in CHANNELS}
        self._tasks: set[asyncio.Task[None]] = set()
        self._greeting: bytes | None = None

    async def listen(self, greeting: bytes | None = None) -> None:
        """Begin to listen; say `greeting`, or what the protocol wants, to each client."""
        self._greeting = greeting
        for channel, number in self._ports.items():
            self._servers.append(
                await asyncio.start_unix_server(
                    partial(self._accept, channel),
                    f"{self.info['ip']}-{number}",
                )
            )

    async def _accept(self, channel: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections[channel] += 1
        self._writers[channel] = writer
        usual = opening("PUB" if channel == "iopub" else "ROUTER")
        writer.write(usual if self._greeting is None else self._greeting)
        self._arrived[channel].set()
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            return
        finally:
            writer.close()

    async def connected(self, channel: str) -> None:
        """Wait until the channel is connected to."""
        await asyncio.wait_for(self._arrived[channel].wait(), 30)

    async def send_bytes(self, channel: str, data: bytes) -> None:
        """Send bytes as they are."""
        await self.connected(channel)
        self._writers[channel].write(data)
        await self._writers[channel].drain()

    def frames(self, msg_type: Any, content: Any, parent: Any = None, **header: Any) -> list[bytes]:
        """Return the signed frames of a message."""
        _, frames = self.codec.encode("", {} if isinstance(content, bytes) else content)
        frames[2] = json.dumps({"msg_id": "m", "msg_type": msg_type, **header}).encode()
        frames[3] = json.dumps(parent).encode()
        if isinstance(content, bytes):
            frames[5] = content
        return [b"topic", frames[0], self.codec._sign(frames[2:]), *frames[2:]]

    async def send(self, channel: str, msg_type: Any, content: Any, parent: Any = None, **header: Any) -> None:
        """Send a signed message; `content` may be its JSON in bytes."""
        await self.send_bytes(channel, encode_message(self.frames(msg_type, content, parent, **header)))

    async def hang_up(self, channel: str) -> None:
        """Close a connection."""
        self._arrived[channel].clear()
        self._writers.pop(channel).close()

    async def close(self) -> None:
        """Close everything."""
        for server in self._servers:
            server.close()
        for writer in self._writers.values():
            writer.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)


@asynccontextmanager
async def hostile_peer(directory: Path) -> AsyncIterator[HostilePeer]:
    """Yield a peer whose sockets are in a directory."""
    peer = HostilePeer(directory)
    await peer.listen()
    try:
        yield peer
    finally:
        await peer.close()
