"""WebSockets of the asynchronous driver, with aiohttp."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp

from ..api.steps import Connect, Failure, Socket
from .http_client import HttpClient, failure_of

# Shorter than the idle timeouts of common proxies (60 seconds), so that they keep the connection.
_PING_SECONDS = 30.0
# A dead server sends no close frame; the wait for it must not delay the caller.
_CLOSE_SECONDS = 1.0


async def connect(http: HttpClient, step: Connect) -> Socket | Failure:
    """Open a WebSocket."""
    try:
        connecting = http.session.ws_connect(
            http.connection.ws_url + step.path,
            headers=http.connection.auth_headers,
            protocols=step.subprotocols,
            max_msg_size=0,  # no limit: a message may hold a large output
            heartbeat=_PING_SECONDS,
            proxy=http.connection.proxy,
        )
        ws = await asyncio.wait_for(connecting, step.timeout_seconds)
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
        return failure_of(error)
    return Socket(ws.protocol, ws)


async def send(socket: Socket, data: str | bytes) -> Failure | None:
    """Send one message."""
    ws: aiohttp.ClientWebSocketResponse = socket.handle
    try:
        await (ws.send_str(data) if isinstance(data, str) else ws.send_bytes(data))
    except (aiohttp.ClientError, OSError) as error:
        return failure_of(error)
    return None


async def receive(socket: Socket, timeout_seconds: float) -> str | bytes | Failure | None:
    """Receive one message; return None after the timeout."""
    ws: aiohttp.ClientWebSocketResponse = socket.handle
    try:
        message = await ws.receive(timeout_seconds)
    except asyncio.TimeoutError:
        return None
    except (aiohttp.ClientError, OSError) as error:
        return failure_of(error)
    if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
        data: str | bytes = message.data
        return data
    return Failure(True, "the server closed the connection")


async def close(socket: Socket) -> None:
    """Close a WebSocket; this wakes a task that receives."""
    ws: aiohttp.ClientWebSocketResponse = socket.handle
    with contextlib.suppress(asyncio.TimeoutError):  # it is closed even if the server sends no close frame
        await asyncio.wait_for(ws.close(), _CLOSE_SECONDS)
