"""Channels to a kernel: connections to its sockets, read on the event loop, with a bound on every buffer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import zmq

from ...protocol.kernel_messages import CONTENT_AFTER_DELIMITER, DELIMITER
from ...protocol.zmtp import LARGE_BYTES, FrameBuffer, RawMessage, SkippedMessage, Unfinished
from .backpressure import KernelMemory
from .zmtp_channel import ZmtpChannel

# Messages of one connection that wait in libzmq's own memory.
_MAX_WAITING_MESSAGES = 16


class LibzmqChannel:
    """A connection that libzmq makes and reads."""

    def __init__(
        self,
        socket_type: str,
        port: object,
        info: Mapping[str, Any],
        identity: bytes,
        memory: KernelMemory,
        on_input: Callable[[], None],
        context: zmq.Context[zmq.Socket[bytes]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._memory = memory
        self._on_input = on_input
        made = self._socket = context.socket(getattr(zmq, socket_type))
        made.linger = 0
        made.maxmsgsize = memory.max_message_bytes
        made.rcvhwm = _MAX_WAITING_MESSAGES
        made.reconnect_ivl, made.reconnect_ivl_max = 10, 500
        if info.get("curve_publickey"):
            # The connection file has one key pair, which both sides use.
            made.curve_publickey = made.curve_serverkey = _as_bytes(info["curve_publickey"])
            made.curve_secretkey = _as_bytes(info["curve_secretkey"])
        if socket_type == "SUB":
            made.subscribe(b"")
        else:
            made.identity = identity
        between = "-" if info["transport"] == "ipc" else ":"
        made.connect(f"{info['transport']}://{info['ip']}{between}{port}")
        self._watching = False
        self.resume()
        self._loop.call_soon(self._report)  # ZeroMQ promises a signal only for what comes after a look

    @property
    def closed(self) -> bool:
        """True if it was closed."""
        return bool(self._socket.closed)

    @property
    def has_input(self) -> bool:
        """True if something has arrived that `receive` has not returned yet."""
        return False

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a message, as soon as there is a connection."""
        self._socket.send_multipart(frames)
        # Sending can use up the socket's edge-triggered readiness, so look for input once more.
        self._loop.call_soon(self._report)

    def _report(self) -> None:
        if self._watching:
            self._on_input()

    def fill(self) -> bool:
        """Return False: libzmq reads by itself."""
        return False

    def receive(self) -> RawMessage | SkippedMessage | None:
        """Return the next message that has arrived; None if there is none."""
        if self.closed:
            return None
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        if DELIMITER not in frames:
            return SkippedMessage("a message has no delimiter")
        end = frames.index(DELIMITER) + CONTENT_AFTER_DELIMITER
        content = frames[end] if len(frames) > end else b""
        return RawMessage(frames[:end], self._collected(content) if len(content) > LARGE_BYTES else content)

    def _collected(self, content: bytes) -> FrameBuffer:
        collected = FrameBuffer(lambda size: None)  # libzmq has taken the memory without being asked
        collected += content
        return collected

    def partial_bytes(self) -> int:
        """Return 0: what libzmq has of a message cannot be seen."""
        return 0

    def skip(self) -> None:
        """Do nothing: there is no message that is seen to be incomplete."""

    def pause(self) -> None:
        """Report no further input."""
        if self._watching:
            self._watching = False
            self._loop.remove_reader(self._socket.FD)

    def resume(self) -> None:
        """Report input again."""
        if not self._watching:
            self._watching = True
            self._loop.add_reader(self._socket.FD, self._report)

    def close(self) -> None:
        """Close the connection; what was not received is dropped."""
        if not self.closed:
            self.pause()
            self._socket.close()


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


_SOCKET_TYPES = {"shell": "DEALER", "control": "DEALER", "stdin": "DEALER", "iopub": "SUB"}
#: The names of a kernel's channels.
CHANNELS = tuple(_SOCKET_TYPES)


class KernelChannel(Protocol):
    """A connection to one of a kernel's sockets."""

    @property
    def closed(self) -> bool:
        """True if it was closed."""

    @property
    def has_input(self) -> bool:
        """True if something has arrived that `receive` has not returned yet."""

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a message, as soon as there is a connection."""

    def fill(self) -> bool:
        """Read some of what has arrived, without being told that there is any; return whether there was."""

    def receive(self) -> RawMessage | SkippedMessage | Unfinished | None:
        """Return the next message that has arrived; None if there is none."""

    def partial_bytes(self) -> int:
        """Return the size of a large message that is still incomplete."""

    def skip(self) -> None:
        """Leave out the message that is still incomplete."""

    def pause(self) -> None:
        """Report no further input."""

    def resume(self) -> None:
        """Report input again."""

    def close(self) -> None:
        """Close the connection; what was not received is dropped."""


def open_channel(
    name: str,
    info: Mapping[str, Any],
    identity: bytes,
    memory: KernelMemory,
    on_input: Callable[[], None],
    context: zmq.Context[zmq.Socket[bytes]],
    *,
    read_ahead_bytes: int,
) -> KernelChannel:
    """Connect to a kernel's socket; a kernel that does not listen yet is tried again and again.

    Parameters
    ----------
    name : str
        The channel's name; ``iopub`` subscribes to everything.
    info : mapping
        Addresses, as in a connection file.
    identity : bytes
        Under which the kernel knows the client.
    on_input : callable
        Called when something can be received.
    context : zmq.Context
        For connections that are left to libzmq.
    read_ahead_bytes : int
        How much is read while the channel is paused, so that a kernel which does not wait for its readers loses
        nothing meanwhile.

    Raises
    ------
    KernelStartFailed
        If what is at the address is no socket.
    OSError, zmq.ZMQError
        If this process can open nothing more.
    """
    port = info[f"{name}_port"]
    # `protocol/zmtp.py` has no encryption, and only these two transports.
    if info.get("curve_publickey") or info["transport"] not in ("ipc", "tcp"):
        return LibzmqChannel(_SOCKET_TYPES[name], port, info, identity, memory, on_input, context)
    address = f"{info['ip']}-{port}" if info["transport"] == "ipc" else (str(info["ip"]), int(port))
    return ZmtpChannel(_SOCKET_TYPES[name], address, identity, memory, on_input, read_ahead_bytes=read_ahead_bytes)
