"""Frames of ZMTP 3.0 as a client writes them: its greeting, its subscription and its messages. Pure.

References
----------
https://rfc.zeromq.org/spec/23/
"""

from __future__ import annotations

from collections.abc import Sequence

#: Flags of a frame.
MORE, LONG, COMMAND = 1, 2, 4
#: First and last byte of the signature, with which a greeting begins.
SIGNATURE_START, SIGNATURE_END = 0xFF, 0x7F
MAJOR_VERSION = 3
#: Names of commands, each after its length.
READY, ERROR = b"\x05READY", b"\x05ERROR"
_SUBSCRIBE_TO_ALL = b"\x01"


def encode_message(frames: Sequence[bytes]) -> bytes:
    """Return a message of these frames as it is sent."""
    parts: list[bytes] = []
    last = len(frames) - 1
    for number, frame in enumerate(frames):
        parts += (_frame_start(MORE if number < last else 0, len(frame)), frame)
    return b"".join(parts)


def _frame_start(flags: int, size: int) -> bytes:
    if size < 256:
        return bytes((flags, size))
    return bytes((flags | LONG,)) + size.to_bytes(8, "big")


def opening(socket_type: str, identity: bytes = b"") -> bytes:
    """Return what a client sends first: its greeting, and the command READY of the mechanism NULL.

    Parameters
    ----------
    socket_type : str
        ``"DEALER"`` or ``"SUB"``.
    identity : bytes
        Under which a ROUTER socket knows the client.
    """
    # Version 3.0: from 3.1 on a subscription is a command instead of a message.
    greeting = bytes((SIGNATURE_START, *bytes(8), SIGNATURE_END, MAJOR_VERSION, 0))
    ready = READY + _property(b"Socket-Type", socket_type.encode())
    if identity:
        ready += _property(b"Identity", identity)
    # The 32 zeros are the flag "as server", which is off with NULL, and the filler up to 64 bytes.
    return greeting + b"NULL".ljust(20, b"\0") + bytes(32) + _frame_start(COMMAND, len(ready)) + ready


def subscription() -> bytes:
    """Return the message by which a SUB socket subscribes to everything."""
    return encode_message([_SUBSCRIBE_TO_ALL])


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value
