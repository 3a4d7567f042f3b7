"""A process of its own that runs code in a kernel of the standard API and reads all that it prints.

Its arguments are the WebSocket's URL, the token, the code and how often to run it. It prints as JSON how many
characters came, and how the runs ended.
"""

from __future__ import annotations

import asyncio
import json
import sys

import aiohttp

from tests.support.kernel_sockets import V1, KernelSocket, reply_of


async def read_all(url: str, token: str, code: str, times: str) -> dict[str, object]:
    characters, statuses = 0, []
    async with aiohttp.ClientSession(headers={"Authorization": f"token {token}"}) as http:
        socket = KernelSocket(await http.ws_connect(url, protocols=(V1,), max_msg_size=0))
        for _ in range(int(times)):
            sent = await socket.send("shell", "execute_request", {"code": code})
            while (message := await socket.receive()).msg_type != "execute_reply" or message.parent_id != sent:
                if message.msg_type == "stream":
                    characters += len(message.content["text"])
            statuses.append(reply_of([message])["status"])
    return {"characters": characters, "statuses": statuses}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(read_all(*sys.argv[1:]))))
