"""A process of its own that runs code in a kernel of the standard API and reads all that it prints.

Its arguments are the WebSocket's URL, the token and the code; it prints how many characters came, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

import aiohttp

from tests.support.kernel_sockets import V1, KernelSocket, reply_of


async def read_all(url: str, token: str, code: str) -> dict[str, object]:
    characters = 0
    async with aiohttp.ClientSession(headers={"Authorization": f"token {token}"}) as http:
        socket = KernelSocket(await http.ws_connect(url, protocols=(V1,), max_msg_size=0))
        sent = await socket.send("shell", "execute_request", {"code": code})
        while True:
            message = await socket.receive()
            if message.parent_id != sent:
                continue
            if message.msg_type == "stream":
                characters += len(message.content["text"])
            elif message.msg_type == "execute_reply":
                return {"characters": characters, "status": reply_of([message])["status"]}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(read_all(*sys.argv[1:]))))
