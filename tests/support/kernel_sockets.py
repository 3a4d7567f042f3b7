"""Client of a kernel's WebSocket in the standard API, for tests."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import aiohttp

from jupyter_exec_ext.protocol.kernel_messages import decode_websocket, encode_websocket, new_header
from tests.support.bearers import Bearer
from tests.support.hosts import Host

V1 = "v1.kernel.websocket.jupyter.org"


class KernelSocket:
    """A client's WebSocket; `messages` has all that came."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self.socket = socket
        self.session = uuid.uuid4().hex

    async def send(self, channel: str, msg_type: str, content: Mapping[str, Any]) -> str:
        header = new_header(msg_type, self.session)
        frame = encode_websocket(channel, header, content, binary=self.socket.protocol == V1)
        await (self.socket.send_str(frame) if isinstance(frame, str) else self.socket.send_bytes(frame))
        return header["msg_id"]

    async def receive(self) -> Any:
        message = await self.socket.receive(timeout=20)
        assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), message
        return decode_websocket(message.data)

    async def until_idle(self, msg_id: str) -> list[Any]:
        """Return the messages about a request, up to the kernel's idle status."""
        seen = []
        while True:
            message = await self.receive()
            if message.parent_id == msg_id:
                seen.append(message)
                if message.msg_type == "status" and message.content["execution_state"] == "idle":
                    return seen

    async def run(self, code: str, **options: Any) -> list[Any]:
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, **options}
        return await self.until_idle(await self.send("shell", "execute_request", content))


async def start(http: aiohttp.ClientSession, host: Host, bearer: Bearer, protocols: tuple[str, ...] = ()) -> Any:
    url, headers = f"{host.info.url}exec/jupyter/api/kernels", {"Authorization": f"token {bearer.token}"}
    async with http.post(url, json={"name": "python3"}, headers=headers) as answer:
        assert answer.status == 201, await answer.text()
        kernel = await answer.json()
    socket = await http.ws_connect(f"{url}/{kernel['id']}/channels", headers=headers, protocols=protocols)
    return kernel, KernelSocket(socket)


def reply_of(seen: list[Any]) -> Mapping[str, Any]:
    """Return the content of the reply among the messages about a request."""
    (reply,) = [message for message in seen if message.channel in ("shell", "control")]
    content: Mapping[str, Any] = reply.content
    return content


def texts_of(seen: list[Any]) -> str:
    return "".join(message.content["text"] for message in seen if message.msg_type == "stream")


async def connect_again(
    http: aiohttp.ClientSession, host: Host, bearer: Bearer, kernel: Any, session: str = ""
) -> KernelSocket:
    url = f"{host.info.url}exec/jupyter/api/kernels/{kernel['id']}/channels"
    headers = {"Authorization": f"token {bearer.token}"}
    socket = KernelSocket(await http.ws_connect(url, params={"session_id": session}, headers=headers))
    socket.session = session or socket.session
    return socket
