"""Code that says when it runs and when it does not any more, so that a test can stop it in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Beacon:
    """A port to which code connects; the connection lasts as long as the code runs."""

    def __init__(self, port: int) -> None:
        self._lit, self._out = asyncio.Event(), asyncio.Event()
        self.code = (
            "import socket\n"
            f"with socket.create_connection(('127.0.0.1', {port})) as beacon:\n"
            "    beacon.sendall(b'1')\n"
            "    while True:\n"
            "        pass\n"
        )

    async def lit(self) -> None:
        """Wait until the code runs."""
        await asyncio.wait_for(self._lit.wait(), 30)

    async def out(self) -> None:
        """Wait until it has ended."""
        await asyncio.wait_for(self._out.wait(), 30)

    async def _watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)  # then the code is where it closes the connection, however it is stopped
        self._lit.set()
        await reader.read()
        self._out.set()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def beacon() -> AsyncIterator[Beacon]:
    server = await asyncio.start_server(lambda reader, writer: found._watch(reader, writer), "127.0.0.1", 0)
    async with server:
        found = Beacon(server.sockets[0].getsockname()[1])
        yield found


#: Shows a picture that has the right first bytes and some more.
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(60)
SHOW_PICTURE = """\
from IPython.display import Image, display
print('here')
display(Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(60)))
"""
