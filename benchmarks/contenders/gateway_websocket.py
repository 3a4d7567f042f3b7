"""Jupyter's kernels API and WebSocket, by hand with aiohttp, the fastest client at hand."""

from __future__ import annotations

import base64
import json
import socket
import uuid
from typing import TYPE_CHECKING, Any

import aiohttp

from .load import Load
from .worker import serve

if TYPE_CHECKING:
    from typing_extensions import Self

_SECONDS = 120.0


class Kernel:
    """A kernel of the gateway, and one WebSocket to it."""

    protocols: tuple[str, ...] = ()
    acknowledges_at_once = False

    def __init__(self, session: aiohttp.ClientSession, kernel: str, connected: Any) -> None:
        self._session = session
        self._kernel = kernel
        self._socket = connected
        self._id = uuid.uuid4().hex

    @classmethod
    async def make(cls, url: str, token: str, prefix: str = "", acknowledges_at_once: bool = False) -> Self:
        """Start a kernel and connect to it.

        Parameters
        ----------
        prefix : str
            The path before ``/api``.
        acknowledges_at_once : bool
            Whether the client acknowledges what it gets without the delay that TCP has for that.
        """
        session = aiohttp.ClientSession(url, headers={"Authorization": f"token {token}"})
        async with session.post(f"{prefix}/api/kernels", json={"name": "python3"}) as answer:
            answer.raise_for_status()
            kernel = f"{prefix}/api/kernels/{(await answer.json())['id']}"
        connected = await session.ws_connect(f"{kernel}/channels", protocols=cls.protocols, max_msg_size=0)
        made = cls(session, kernel, connected)
        made.acknowledges_at_once = acknowledges_at_once
        return made

    async def run(self, code: str) -> str:
        """Run code and return what it printed."""
        return "".join(content["text"] for kind, content in await self._contents(code) if kind == "stream")

    async def image(self, code: str) -> int:
        """Run code and return the size of the picture that it shows."""
        shown = [content["data"]["image/png"] for kind, content in await self._contents(code) if kind == "display_data"]
        return len(base64.b64decode(shown[0]))

    async def stream(self, code: str) -> dict[str, int]:
        """Run code and return how many messages came, and how many characters they held."""
        found = await self._contents(code)
        return {"events": len(found), "characters": sum(len(content.get("text", "")) for _, content in found)}

    async def _contents(self, code: str) -> list[tuple[str, Any]]:
        msg_id = uuid.uuid4().hex
        header = {
            "msg_id": msg_id,
            "msg_type": "execute_request",
            "username": "",
            "session": self._id,
            "version": "5.3",
        }
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        await self._send(message)
        found: list[tuple[str, Any]] = []
        waits_for = {"status", "execute_reply"}
        while waits_for:
            answer = await self._receive()
            if self.acknowledges_at_once:  # the system forgets it with each packet
                connection = self._socket.get_extra_info("socket")
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            if answer["parent_header"].get("msg_id") != msg_id:
                continue
            kind = answer["header"]["msg_type"]
            if kind == "status" and answer["content"]["execution_state"] == "idle":
                waits_for.discard("status")
            elif kind == "execute_reply":
                assert answer["content"]["status"] == "ok", answer["content"]
                waits_for.discard("execute_reply")
            else:
                found.append((kind, answer["content"]))
        return found

    async def _send(self, message: dict[str, Any]) -> None:
        await self._socket.send_str(json.dumps(message))

    async def _receive(self) -> dict[str, Any]:
        return dict(await self._socket.receive_json(timeout=_SECONDS))

    async def close(self) -> None:
        """Shut the kernel down."""
        await self._socket.close()
        async with self._session.delete(self._kernel) as answer:
            answer.raise_for_status()
        await self._session.close()


async def make_load(url: str, token: str, sessions: int) -> Load:
    """Start many kernels, each with its WebSocket."""
    return await Load.make(lambda: Kernel.make(url, token), sessions)


if __name__ == "__main__":
    serve({"websocket": Kernel.make, "load": make_load})
