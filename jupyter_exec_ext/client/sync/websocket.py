"""The WebSocket steps of the synchronous driver, with websocket-client."""

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

# A connection on which nothing comes for this long is asked whether anybody is there, and lost if nobody answers.
_PING_SECONDS = 30.0
_PONG_SECONDS = 15.0
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
    """Keep the environment's proxy away from this machine; the library heeds exceptions only beside a proxy."""
    if not connection.is_loopback:
        return {}
    return {"http_proxy_host": "none", "http_proxy_port": 1, "http_no_proxy": ["*"]}


def connect(connection: JupyterConnectionInfo, step: Connect, cookies: Mapping[str, str]) -> Socket | Failure:
    """Open a WebSocket; the token goes into a header, never into the URL, and to no other address."""
    try:
        ws = websocket.create_connection(
            connection.ws_url + step.path,
            timeout=step.timeout_seconds,
            header=connection.auth_headers | _subprotocols_offered(step),
            cookie="; ".join(f"{name}={value}" for name, value in cookies.items()) or None,
            sslopt=_ssl_options(connection),
            suppress_origin=True,
            enable_multithread=True,
            redirect_limit=0,
            **_proxy_options(connection),
        )
    except websocket.WebSocketBadStatusException as error:
        # Its own message shows the answer's headers, and so its cookies.
        return Failure(True, f"the server answered {error.status_code} instead of opening a WebSocket")
    except (websocket.WebSocketException, OSError) as error:
        return Failure(True, str(error)[:300])
    return Socket((ws.getheaders() or {}).get("sec-websocket-protocol"), _Peer(ws))


def _subprotocols_offered(step: Connect) -> dict[str, str]:
    """Return the header that offers sub-protocols; the library's own option fails where the server selects none."""
    return {"Sec-WebSocket-Protocol": ", ".join(step.subprotocols)} if step.subprotocols else {}


class _Peer:
    """An open WebSocket that notices when nobody is at its other end any more."""

    def __init__(self, ws: Any) -> None:
        self._ws = ws
        self._heard_at = time.monotonic()
        self._pinged_at: float | None = None
        self._receiving = ProcessLock()
        self._is_ours = True
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the connection to the parent."""
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
        """Return the next message as opcode and data; None when the time is up."""
        self._require_ours()
        with self._receiving:
            return self._receive(time.monotonic() + timeout_seconds)

    def _receive(self, give_up_at: float) -> tuple[int, bytes] | None:
        while True:
            look_at = self._heard_at + _PING_SECONDS if self._pinged_at is None else self._pinged_at + _PONG_SECONDS
            self._ws.settimeout(max(min(give_up_at, look_at) - time.monotonic(), 0.001))
            try:
                opcode, data = self._ws.recv_data(control_frame=True)
            except websocket.WebSocketTimeoutException:
                self._ping_if_silent()
                if time.monotonic() >= give_up_at:
                    return None
                continue
            self._heard_at, self._pinged_at = time.monotonic(), None
            if opcode not in (websocket.ABNF.OPCODE_PING, websocket.ABNF.OPCODE_PONG):
                return opcode, data

    def _ping_if_silent(self) -> None:
        now = time.monotonic()
        if self._pinged_at is not None and now > self._pinged_at + _PONG_SECONDS:
            raise websocket.WebSocketConnectionClosedException("nobody answers at the other end")
        if self._pinged_at is None and now > self._heard_at + _PING_SECONDS:
            self._ws.ping()
            self._pinged_at = now

    def close(self) -> None:
        """Say goodbye and close, without waiting for an answer; whoever waits for a message is woken up."""
        if not self._is_ours:
            return
        with contextlib.suppress(websocket.WebSocketException, OSError):
            self._ws.settimeout(1.0)
            self._ws.send_close()
        self._ws.abort()
        with self._receiving:  # it ends at once; its descriptor must not be taken away before
            self._ws.shutdown()


def send(socket: Socket, data: str | bytes) -> Failure | None:
    """Send one message."""
    try:
        socket.handle.send(data)
    except (websocket.WebSocketException, OSError) as error:
        return Failure(True, str(error)[:300])
    return None


def receive(socket: Socket, timeout_seconds: float) -> str | bytes | Failure | None:
    """Receive one message; a connection that also leaves pings unanswered counts as lost."""
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
