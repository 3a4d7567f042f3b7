"""Frames of a kernel's WebSocket as its server reads and writes them, in both of Jupyter's forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .kernel_messages import pack_parts, unpack_parts
from .strict_json import dump_bytes, loads_strict


def pack_message(
    channel: str, header: Mapping[str, str], parent: Mapping[str, Any], metadata: Mapping[str, Any], content: bytes
) -> bytes:
    """Return a frame of the v1 sub-protocol for a client of a kernel's WebSocket; `content` is JSON."""
    return pack_parts([channel.encode(), dump_bytes(header), dump_bytes(parent), dump_bytes(metadata), content])


class DecodedMessage(NamedTuple):
    """Parts of a client's message as they are, for the caller to check."""

    channel: Any
    header: Any
    parent: Any
    metadata: Any
    content: Any


def decode_client_message(frame: str | bytes, *, is_v1: bool) -> DecodedMessage:
    """Return the parts of a client's message.

    Parameters
    ----------
    frame : str or bytes
        The frame of the WebSocket.
    is_v1 : bool
        True for the sub-protocol ``v1.kernel.websocket.jupyter.org``, in which frames are binary.

    Raises
    ------
    ValueError
        If the frame is malformed, or has binary buffers.
    """
    if is_v1:
        if isinstance(frame, str):
            raise ValueError("messages of the v1 sub-protocol are binary")
        channel, *objects = unpack_parts(frame)
        if any(objects[4:]):
            raise ValueError("binary buffers are not passed on")
        return DecodedMessage(channel.decode(), *map(loads_strict, objects[:4]))
    if isinstance(frame, bytes):
        raise ValueError("binary buffers are not passed on")
    message = loads_strict(frame)
    if not isinstance(message, dict):
        raise ValueError("a message must be an object")
    # The default is Jupyter Server's, too: smolagents 1.26 names no channel.
    return DecodedMessage(
        message.get("channel", "shell"),
        message.get("header"),
        message.get("parent_header"),
        message.get("metadata"),
        message.get("content"),
    )
