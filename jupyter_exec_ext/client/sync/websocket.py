"""WebSockets of the synchronous driver, with websocket-client: connection, messages, and pings."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Mapping
from typing import Any

import websocket

from ..api.steps import Connect, Failure, Socket
from ..fork_safety import ProcessLock, keep_for_parent, renew_after_fork
from ..server_connection import JupyterConnectionInfo

# A connection without a message for this long gets a ping. Without a pong in time it counts as lost.
_PING_SECONDS = 30.0
_PONG_SECONDS = 15.0
# Without a timeout, a dead server would block a large message for ever.
_SEND_SECONDS = 60.0


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


def _proxy_options(connection: JupyterConnectionInfo) -> dict[str, Any]:
    """Return options that bypass the environment's proxy for this machine."""
    if not connection.is_loopback:
        return {}
    # The library reads `http_no_proxy` only if a proxy is given, so this one is never used.
    return {"http_proxy_host": "none", "http_proxy_port": 1, "http_no_proxy": ["*"]}


def connect(connection: JupyterConnectionInfo, step: Connect, cookies: Mapping[str, str]) -> Socket | Failure:
    """Open a WebSocket. The token goes into a header, not into the URL, and redirects are not followed."""
    try:
        ws = websocket.create_connection(
            connection.ws_url + step.path,
            timeout=step.timeout_seconds,
            header=connection.auth_headers | _subprotocols_offered(step),
            cookie="; ".join(f"{name}={value}" for name, value in cookies.items()) or None,
            sslopt=_ssl_options(connection),
            # Jupyter accepts a client without Origin. The library's own is refused if a proxy changes the Host header.
            suppress_origin=True,
            enable_multithread=True,
            redirect_limit=0,
            **_proxy_options(connection),
        )
    except websocket.WebSocketBadStatusException as error:
        # The error's own message has the answer's headers, and so its cookies.
        return Failure(True, f"the server answered {error.status_code} instead of opening a WebSocket")
    except (websocket.WebSocketException, OSError) as error:
        return Failure(True, str(error)[:300])
    return Socket((ws.getheaders() or {}).get("sec-websocket-protocol"), _PingedSocket(ws))


def _subprotocols_offered(step: Connect) -> dict[str, str]:
    """Return the header that offers subprotocols; the library's own option fails if the server selects none."""
    return {"Sec-WebSocket-Protocol": ", ".join(step.subprotocols)} if step.subprotocols else {}


class _PingedSocket:
    """Open WebSocket with pings, which detect a lost connection."""

    def __init__(self, ws: Any) -> None:
        self._ws = ws
        self._heard_at = time.monotonic()
        self._pinged_at: float | None = None
        self._receive_lock = ProcessLock()
        self._is_ours = True
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the connection to the parent: reads in both processes would take each other's messages."""
        self._is_ours = False
        keep_for_parent(self._ws)

    def _require_ours(self) -> None:
        if not self._is_ours:
            raise websocket.WebSocketConnectionClosedException("it belongs to the process that has forked this one")

    def send(self, data: str | bytes) -> None:
        self._require_ours()
        self._ws.settimeout(_SEND_SECONDS)
        self._ws.send(data, websocket.ABNF.OPCODE_TEXT if isinstance(data, str) else websocket.ABNF.OPCODE_BINARY)

    def receive(self, timeout_seconds: float) -> tuple[int, bytes] | None:
        """Return the next message as opcode and data, None after the timeout."""
        self._require_ours()
        with self._receive_lock:
            return self._receive(time.monotonic() + timeout_seconds)

    def _receive(self, deadline: float) -> tuple[int, bytes] | None:
        while True:
            ping_deadline = self._heard_at + _PING_SECONDS
            if self._pinged_at is not None:
                ping_deadline = self._pinged_at + _PONG_SECONDS
            # Not zero, which would make the socket non-blocking.
            self._ws.settimeout(max(min(deadline, ping_deadline) - time.monotonic(), 0.001))
            try:
                opcode, data = self._ws.recv_data(control_frame=True)  # pongs, too, show that the server lives
            except websocket.WebSocketTimeoutException:
                self._ping_if_silent()
                if time.monotonic() >= deadline:
                    return None
                continue
            self._heard_at, self._pinged_at = time.monotonic(), None
            if opcode not in (websocket.ABNF.OPCODE_PING, websocket.ABNF.OPCODE_PONG):
                return opcode, data

    def _ping_if_silent(self) -> None:
        now = time.monotonic()
        if self._pinged_at is not None and now > self._pinged_at + _PONG_SECONDS:
            raise websocket.WebSocketConnectionClosedException("the server does not answer pings")
        if self._pinged_at is None and now > self._heard_at + _PING_SECONDS:
            self._ws.ping()
            self._pinged_at = now

    def close(self) -> None:
        """Send a close frame and close without waiting for an answer; this wakes a thread that receives."""
        if not self._is_ours:
            return
        with contextlib.suppress(websocket.WebSocketException, OSError):
            self._ws.settimeout(1.0)  # a dead server's full send buffer must not delay the caller
            self._ws.send_close()
        self._ws.abort()
        with self._receive_lock:  # until the receiving thread has returned, its descriptor must stay open
            self._ws.shutdown()


def send(socket: Socket, data: str | bytes) -> Failure | None:
    """Send one message."""
    try:
        socket.handle.send(data)
    except (websocket.WebSocketException, OSError) as error:
        return Failure(True, str(error)[:300])
    return None


def receive(socket: Socket, timeout_seconds: float) -> str | bytes | Failure | None:
    """Receive one message; a connection without pongs counts as lost."""
    try:
        received = socket.handle.receive(timeout_seconds)
    except (websocket.WebSocketException, OSError) as error:
        return Failure(True, str(error)[:300])
    if received is None:
        return None
    opcode, data = received
    if opcode == websocket.ABNF.OPCODE_CLOSE:
        return Failure(True, "the server closed the connection")
    return data.decode("utf-8", "replace") if opcode == websocket.ABNF.OPCODE_TEXT else bytes(data)


def close(socket: Socket) -> None:
    """Close the connection."""
    socket.handle.close()
