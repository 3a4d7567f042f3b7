"""The floor for HTTP: a Tornado handler that answers a POST with what an execution's answer weighs, and its clients.

As a script with a port it is the server, without one it serves the line protocol.
"""

from __future__ import annotations

import asyncio
import json
import sys

import aiohttp
import requests
import tornado.web

from .worker import serve

_ANSWER = json.dumps({"id": "0" * 32, "stdout": "1\n", "about": "x" * 500}).encode()
_PIECE = b"data: " + b"x" * 65528 + b"\n\n"  # in a stream of events


class _Bare(tornado.web.RequestHandler):
    def post(self) -> None:
        """Answer as an execution would be answered."""
        json.loads(self.request.body)
        self.set_header("Content-Type", "application/json")
        self.finish(_ANSWER)

    async def get(self) -> None:
        """Send as many bytes as are asked for, as a stream of events."""
        self.set_header("Content-Type", "text/event-stream")
        left = int(self.get_query_argument("bytes"))
        while left > 0:
            self.write(_PIECE)
            await self.flush()
            left -= len(_PIECE)


async def _listen(port: int) -> None:
    tornado.web.Application([("/api", _Bare), ("/", _Bare)]).listen(port, "127.0.0.1")
    await asyncio.Event().wait()


class Aiohttp:
    """Posts with what `AsyncExecClient` stands on."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @classmethod
    async def make(cls, url: str) -> Aiohttp:
        """Make the client's session."""
        return cls(aiohttp.ClientSession(url))

    async def run(self, code: str) -> str:
        """Post code, which nobody runs, and return the text in the answer."""
        async with self._session.post("/", json={"code": code}) as answer:
            return str((await answer.json())["stdout"])

    async def stream(self, size_bytes: int) -> dict[str, int]:
        """Read a stream of events of some size."""
        characters = 0
        async with self._session.get("/", params={"bytes": str(size_bytes)}) as answer:
            async for piece in answer.content.iter_any():
                characters += len(piece)
        return {"events": 1, "characters": characters}

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()


class Requests:
    """Posts with what `ExecClient` stands on."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = requests.Session()

    def run(self, code: str) -> str:
        """Post code, which nobody runs, and return the text in the answer."""
        return str(self._session.post(self._url, json={"code": code}, timeout=60).json()["stdout"])

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(_listen(int(sys.argv[1])))
    else:
        serve({"aiohttp": Aiohttp.make, "requests": Requests})
