"""jupyter-server-nbmodel's endpoint on a Jupyter Server: post the code, then ask for the result every 10 ms."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import aiohttp

from .worker import serve

# What its own front end waits between two questions is longer than that.
_ASK_EVERY_SECONDS = 0.01


class Kernel:
    """A kernel of the server, used through the endpoint."""

    def __init__(self, session: aiohttp.ClientSession, kernel: str) -> None:
        self._session = session
        self._kernel = kernel

    @classmethod
    async def make(cls, url: str, token: str) -> Kernel:
        """Start a kernel."""
        session = aiohttp.ClientSession(url, headers={"Authorization": f"token {token}"})
        async with session.post("/api/kernels", json={"name": "python3"}) as answer:
            answer.raise_for_status()
            return cls(session, (await answer.json())["id"])

    async def run(self, code: str) -> str:
        """Run code and return what it printed."""
        return "".join(output["text"] for output in await self._outputs(code) if output["output_type"] == "stream")

    async def image(self, code: str) -> int:
        """Run code and return the size of the picture that it shows."""
        shown = [output["data"]["image/png"] for output in await self._outputs(code) if "data" in output]
        return len(base64.b64decode(shown[0]))

    async def _outputs(self, code: str) -> list[dict[str, Any]]:
        async with self._session.post(f"/api/kernels/{self._kernel}/execute", json={"code": code}) as answer:
            answer.raise_for_status()
            place = answer.headers["Location"]
        while True:
            async with self._session.get(place) as answer:
                answer.raise_for_status()
                if answer.status == 200:
                    found = await answer.json()
                    outputs = found["outputs"]
                    return list(json.loads(outputs) if isinstance(outputs, str) else outputs)
            await asyncio.sleep(_ASK_EVERY_SECONDS)

    async def close(self) -> None:
        """Shut the kernel down."""
        async with self._session.delete(f"/api/kernels/{self._kernel}") as answer:
            answer.raise_for_status()
        await self._session.close()


if __name__ == "__main__":
    serve({"nbmodel": Kernel.make})
