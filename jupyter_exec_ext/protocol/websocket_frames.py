"""Frames of a kernel's WebSocket, as the server decodes and encodes them, in both of Jupyter's forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .kernel_messages import pack_parts, unpack_parts
from .strict_json import dump_bytes, loads_strict


def pack_message(
    channel: str, header: Mapping[str, str], parent: Mapping[str, Any], metadata: Mapping[str, Any], content: bytes
) -> bytes:
    """Encode a message for a client as a frame of the v1 sub-protocol.

    Parameters
    ----------
    channel : str
        Channel of the message.
    header : mapping
        Header of the message.
    parent : mapping
        Parent header.
    metadata : mapping
        Metadata.
    content : bytes
        Content as JSON.

    Returns
    -------
    bytes
        The frame.
    """
    return pack_parts([channel.encode(), dump_bytes(header), dump_bytes(parent), dump_bytes(metadata), content])


class DecodedMessage(NamedTuple):
    """Unchecked parts of a client's message."""

    channel: Any
    header: Any
    parent: Any
    metadata: Any
    content: Any


def decode_client_message(frame: str | bytes, *, is_v1: bool) -> DecodedMessage:
    """Decode a client's message.

    Parameters
    ----------
    frame : str or bytes
        The frame of the WebSocket.
    is_v1 : bool
        True for the sub-protocol ``v1.kernel.websocket.jupyter.org``, in which frames are binary.

    Returns
    -------
    DecodedMessage
        Parts of the message, unchecked.

    Raises
    ------
    ValueError
        If the frame is malformed, or has binary buffers.
    """
    if is_v1:
        if isinstance(frame, str):
            raise ValueError("a frame of the v1 sub-protocol must be binary")
        channel, *objects = unpack_parts(frame)
        if any(objects[4:]):
            raise ValueError("binary buffers are not supported")
        return DecodedMessage(channel.decode(), *map(loads_strict, objects[:4]))
    if isinstance(frame, bytes):
        raise ValueError("binary buffers are not supported")
    message = loads_strict(frame)
    if not isinstance(message, dict):
        raise ValueError("a message must be an object")
    # Jupyter Server has the same default; smolagents 1.26 names no channel.
    return DecodedMessage(
        message.get("channel", "shell"),
        message.get("header"),
        message.get("parent_header"),
        message.get("metadata"),
        message.get("content"),
    )
