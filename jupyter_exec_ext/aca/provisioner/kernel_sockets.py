"""The five ZeroMQ sockets of a kernel, with signed Jupyter messages, read on the loop of all ACA kernels."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import zmq
from jupyter_client.session import Session

_KINDS = {"shell": zmq.ROUTER, "iopub": zmq.XPUB, "stdin": zmq.ROUTER, "control": zmq.ROUTER, "hb": zmq.ROUTER}
_REQUESTS = ("shell", "control")
_MESSAGES_PER_TURN = 16

Message = dict[str, Any]


class KernelSockets:
    """The sockets of one kernel. Call all methods in the loop's thread.

    Parameters
    ----------
    context : zmq.Context
        Context of the sockets.
    info : mapping
        As in a connection file; each port of 0 is replaced by a free one.
    on_request : callable
        Called with the channel, the identities and the message of each request with a valid signature.
    log : Logger
        Log of messages that cannot be handled.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        info: Mapping[str, Any],
        on_request: Callable[[str, list[bytes], Message], None],
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_request = on_request
        self._log = log
        self._session = Session(key=_as_bytes(info["key"]), signature_scheme=info["signature_scheme"])
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        self.ports: dict[str, int] = {}
        try:
            for channel, kind in _KINDS.items():
                self._bind(context.socket(kind), channel, info)
        except BaseException:  # close the sockets that are bound already
            self.close()
            raise
        for channel in ("hb", "iopub", *_REQUESTS):
            self._loop.add_reader(self._sockets[channel].FD, self._drain, channel)
            self._loop.call_soon(self._drain, channel)  # ZeroMQ signals only messages that come after a read

    def _bind(self, socket: zmq.Socket[bytes], channel: str, info: Mapping[str, Any]) -> None:
        self._sockets[channel] = socket
        socket.linger = 1000
        socket.sndhwm = 0  # the session's answers are bounded, so nothing has to be dropped here
        if channel != "iopub":
            socket.router_handover = True  # accept a client that reconnects under its name
        else:
            socket.xpub_verbose = True
        if info.get("curve_secretkey"):
            socket.curve_server = True
            socket.curve_publickey = _as_bytes(info["curve_publickey"])
            socket.curve_secretkey = _as_bytes(info["curve_secretkey"])
        port, place = info.get(f"{channel}_port", 0), f"{info['transport']}://{info['ip']}"
        if info["transport"] == "ipc":
            port = port or len(self._sockets)
            socket.bind(f"{place}-{port}")
        elif port:
            socket.bind(f"{place}:{port}")
        else:
            port = socket.bind_to_random_port(place)
        self.ports[channel] = port

    def _drain(self, channel: str) -> None:
        socket = self._sockets.get(channel)
        if socket is None:
            return
        for _ in range(_MESSAGES_PER_TURN):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._handle(channel, frames)
            except Exception:  # the messages behind it must be read: ZeroMQ does not signal them again
                self._log.exception("could not handle a message on %s", channel)
            if channel not in self._sockets:
                return
        self._loop.call_soon(self._drain, channel)  # let other kernels run first

    def _handle(self, channel: str, frames: list[bytes]) -> None:
        if channel == "hb":
            self._sockets["hb"].send_multipart(frames)
        elif channel == "iopub":
            if frames[0][:1] == b"\x01":  # JEP 65: greet a new subscriber
                self.publish("iopub_welcome", {"subscription": frames[0][1:].decode("utf-8", "replace")}, None)
        else:
            identities, parts = self._session.feed_identities(frames)
            try:
                message = self._session.deserialize(parts)
            except (ValueError, KeyError, TypeError) as error:
                self._log.warning("ignored a message on %s: %s", channel, error)
                return
            self._on_request(channel, identities, message)

    def publish(self, msg_type: str, content: Mapping[str, Any], parent: Message | None) -> None:
        """Send a message to all subscribers."""
        self._send("iopub", msg_type, content, parent, [msg_type.encode()])

    def reply(self, channel: str, content: Mapping[str, Any], request: Message, identities: list[bytes]) -> None:
        """Answer a request."""
        msg_type = request["header"]["msg_type"].replace("_request", "_reply")
        self._send(channel, msg_type, content, request, identities)

    def _send(
        self, channel: str, msg_type: str, content: Mapping[str, Any], parent: Message | None, identities: list[bytes]
    ) -> None:
        socket = self._sockets.get(channel)
        if socket is None:
            return
        self._session.send(socket, msg_type, dict(content), parent, ident=identities)
        # Sending can use up the socket's edge-triggered readiness, so look for input once more.
        self._loop.call_soon(partial(self._drain, channel))

    def close(self) -> None:
        """Close the sockets; messages that were sent get a second to leave."""
        for socket in self._sockets.values():
            self._loop.remove_reader(socket.FD)
            socket.close()
        self._sockets = {}


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
