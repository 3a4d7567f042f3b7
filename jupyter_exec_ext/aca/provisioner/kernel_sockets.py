"""The kernel's five sockets, read on the loop of all ACA kernels, and its signed messages."""

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
    """The sockets of one kernel; all methods are called in the loop's thread.

    Parameters
    ----------
    info : mapping
        As in a connection file; a port of 0 is chosen here.
    on_request : callable
        Gets the channel, the identities and the message of each request whose signature is right.
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
        except BaseException:
            self.close()
            raise
        for channel in ("hb", "iopub", *_REQUESTS):
            self._loop.add_reader(self._sockets[channel].FD, self._drain, channel)
            self._loop.call_soon(self._drain, channel)  # ZeroMQ promises a signal only for what comes after a look

    def _bind(self, socket: zmq.Socket[bytes], channel: str, info: Mapping[str, Any]) -> None:
        self._sockets[channel] = socket
        socket.linger = 1000
        socket.sndhwm = 0  # what a session hands over is bounded; nothing of it is dropped here
        if channel != "iopub":
            socket.router_handover = True  # a client that connects again under its name is heard
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
                self._take(channel, frames)
            except Exception:  # those behind it must be read: nothing wakes us again
                self._log.exception("a message on %s could not be taken in", channel)
            if channel not in self._sockets:
                return
        self._loop.call_soon(self._drain, channel)  # others first

    def _take(self, channel: str, frames: list[bytes]) -> None:
        if channel == "hb":
            self._sockets["hb"].send_multipart(frames)
        elif channel == "iopub":
            if frames[0][:1] == b"\x01":  # JEP 65: whoever has subscribed is told so
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
        """Send a message to everybody who listens."""
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
        """Close the sockets when what was sent has left, within a second."""
        for socket in self._sockets.values():
            self._loop.remove_reader(socket.FD)
            socket.close()
        self._sockets = {}


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
