"""Frames of a kernel's WebSocket as its server reads and writes them, in both of Jupyter's forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .kernel_messages import pack_parts, unpack_parts
from .strict_json import dump_bytes, loads_strict


def pack_message(channel: str, header: Mapping[str, str], parent: Mapping[str, Any], content: bytes) -> bytes:
    """Return a message for a client of a kernel's WebSocket, in the v1 sub-protocol; `content` is JSON."""
    return pack_parts([channel.encode(), dump_bytes(header), dump_bytes(parent), b"{}", content])


def decode_client_message(frame: str | bytes, *, is_v1: bool) -> tuple[Any, Any, Any, Any]:
    """Return channel, header, parent header and content of a client's message, as they are, for the caller to check.

    Raises
    ------
    ValueError
        If the frame is malformed, or has binary buffers.
    """
    if is_v1:
        if isinstance(frame, str):
            raise ValueError("messages of the v1 sub-protocol are binary")
        channel, header, parent, _metadata, content, *buffers = unpack_parts(frame)
        if any(buffers):
            raise ValueError("binary buffers are not passed on")
        return channel.decode(), loads_strict(header), loads_strict(parent), loads_strict(content)
    if isinstance(frame, bytes):
        raise ValueError("binary buffers are not passed on")
    message = loads_strict(frame)
    if not isinstance(message, dict):
        raise ValueError("a message must be an object")
    # The default is Jupyter Server's, too: smolagents 1.26 names no channel.
    return message.get("channel", "shell"), message.get("header"), message.get("parent_header"), message.get("content")
