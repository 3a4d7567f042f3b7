"""jupyter-mcp-server's ``execute_code`` in a Jupyter Server, called over its own endpoint, with a kernel each."""

from __future__ import annotations

import base64
import itertools
from typing import Any

import aiohttp

from .worker import serve


class Kernel:
    """A kernel of the server, used through the tool."""

    def __init__(self, session: aiohttp.ClientSession, kernel: str) -> None:
        self._session = session
        self._kernel = kernel
        self._ids = itertools.count()

    @classmethod
    async def make(cls, url: str, token: str) -> Kernel:
        """Start a kernel."""
        session = aiohttp.ClientSession(url, headers={"Authorization": f"token {token}"})
        async with session.post("/api/kernels", json={"name": "python3"}) as answer:
            answer.raise_for_status()
            return cls(session, (await answer.json())["id"])

    async def run(self, code: str) -> str:
        """Run code and return what it printed."""
        texts = [part["text"] for part in await self._contents(code) if part["type"] == "text"]
        return "".join(text for text in texts if not text.startswith("[No output"))

    async def image(self, code: str) -> int:
        """Run code and return the size of the picture that it shows."""
        shown = [part["data"] for part in await self._contents(code) if part["type"] == "image"]
        return len(base64.b64decode(shown[0]))

    async def _contents(self, code: str) -> list[dict[str, Any]]:
        arguments = {"code": code, "kernel_id": self._kernel, "timeout": 60}
        call = {"name": "execute_code", "arguments": arguments}
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": call}
        async with self._session.post("/mcp", json=request) as answer:
            answer.raise_for_status()
            found = await answer.json()
        assert "result" in found and not found["result"].get("isError"), str(found)[:1000]
        return list(found["result"]["content"])

    async def close(self) -> None:
        """Shut the kernel down."""
        async with self._session.delete(f"/api/kernels/{self._kernel}") as answer:
            answer.raise_for_status()
        await self._session.close()


if __name__ == "__main__":
    serve({"execute_code": Kernel.make})
