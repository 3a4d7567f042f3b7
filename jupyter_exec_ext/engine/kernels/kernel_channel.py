"""Channels to a kernel: connections to its sockets that are read on the event loop, with a bound on every buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import zmq

from ...protocol.zmtp import RawMessage, SkippedMessage
from .libzmq_channel import LibzmqChannel
from .message_memory import KernelMemory
from .zmtp_channel import ZmtpChannel

_SOCKET_TYPES = {"shell": "DEALER", "control": "DEALER", "stdin": "DEALER", "iopub": "SUB"}
#: The names of a kernel's channels.
CHANNELS = tuple(_SOCKET_TYPES)


class KernelChannel(Protocol):
    """A connection to one of a kernel's sockets."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    @property
    def has_input(self) -> bool:
        """Whether something has arrived that `receive` has not returned yet."""

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a message, as soon as there is a connection."""

    def fill(self) -> bool:
        """Read some of what has arrived, without being told that there is any; return whether there was."""

    def receive(self) -> RawMessage | SkippedMessage | None:
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
        Which channel it is; ``iopub`` subscribes to everything.
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
    if info.get("curve_publickey") or info["transport"] not in ("ipc", "tcp"):
        return LibzmqChannel(_SOCKET_TYPES[name], port, info, identity, memory, on_input, context)
    address = f"{info['ip']}-{port}" if info["transport"] == "ipc" else (str(info["ip"]), int(port))
    return ZmtpChannel(_SOCKET_TYPES[name], address, identity, memory, on_input, read_ahead_bytes=read_ahead_bytes)
