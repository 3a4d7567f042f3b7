"""The WebSocket steps of the synchronous driver, with websocket-client."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from typing import Any

import websocket

from .connection import JupyterConnectionInfo
from .steps import Connect, Failure, Socket

_PING_SECONDS = 30.0


def _ssl_options(connection: JupyterConnectionInfo) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if connection.verify is False:
        options.update(cert_reqs=ssl.CERT_NONE, check_hostname=False)
    elif connection.ca_bundle is not None:
        options["ca_certs"] = connection.ca_bundle
    if isinstance(connection.client_cert, tuple):
        options["certfile"], options["keyfile"] = connection.client_cert
    elif connection.client_cert is not None:
        options["certfile"] = connection.client_cert
    return options


def connect(connection: JupyterConnectionInfo, step: Connect, cookies: Mapping[str, str]) -> Socket | Failure:
    """Open a WebSocket; the token goes into a header, never into the URL."""
    try:
        ws = websocket.create_connection(
            connection.ws_url + step.path,
            timeout=step.timeout_seconds,
            header=connection.auth_headers,
            cookie="; ".join(f"{name}={value}" for name, value in cookies.items()) or None,
            subprotocols=list(step.subprotocols),
            sslopt=_ssl_options(connection),
            suppress_origin=True,
            enable_multithread=True,
        )
    except (websocket.WebSocketException, OSError) as error:
        return Failure(True, str(error)[:300])
    return Socket(ws.getsubprotocol(), ws)


def send(socket: Socket, data: str | bytes) -> Failure | None:
    """Send one message."""
    opcode = websocket.ABNF.OPCODE_TEXT if isinstance(data, str) else websocket.ABNF.OPCODE_BINARY
    try:
        socket.handle.send(data, opcode)
    except (websocket.WebSocketException, OSError) as error:
        return Failure(True, str(error)[:300])
    return None


def receive(socket: Socket, timeout_seconds: float | None) -> str | bytes | Failure | None:
    """Receive one message; a connection that also leaves pings unanswered counts as lost."""
    socket.handle.settimeout(timeout_seconds)
    try:
        opcode, data = socket.handle.recv_data()
    except websocket.WebSocketTimeoutException:
        return None
    except (websocket.WebSocketException, OSError) as error:
        return Failure(True, str(error)[:300])
    if opcode == websocket.ABNF.OPCODE_CLOSE:
        return Failure(True, "the server closed the connection")
    return data.decode("utf-8", "replace") if opcode == websocket.ABNF.OPCODE_TEXT else bytes(data)


def close(socket: Socket) -> None:
    """Close the connection."""
    with contextlib.suppress(websocket.WebSocketException, OSError):
        socket.handle.close(timeout=1)
