"""The Jupyter messaging protocol, as far as running code needs it.

A message travels as signed ZeroMQ frames (`FrameCodec`) or over a WebSocket, as JSON text or in the binary
``v1.kernel.websocket.jupyter.org`` sub-protocol (`encode_websocket`, `decode_websocket`). Whichever way it came,
it is a `KernelMessage`; `protocol.message_translation` says what it means.

References
----------
https://jupyter-client.readthedocs.io/en/stable/messaging.html
https://jupyter-server.readthedocs.io/en/latest/developers/websocket-protocols.html
"""

from __future__ import annotations

import hmac
import struct
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any, NamedTuple

from .strict_json import dump_bytes, dumps, loads_lenient

PROTOCOL_VERSION = "5.3"
WEBSOCKET_PROTOCOL = "v1.kernel.websocket.jupyter.org"
DELIMITER = b"<IDS|MSG>"
#: How many frames after the delimiter the content is: signature, header, parent header and metadata stand before it.
CONTENT_AFTER_DELIMITER = 5
# Kernels choose these texts, and the server keeps and logs them.
_MAX_TYPE_CHARACTERS = 128
_MAX_ID_CHARACTERS = 256
_MAX_LANGUAGE_CHARACTERS = 128
_SHORT_BYTES = 16 * 1024


class Sender(NamedTuple):
    """A kernel's process, as jupyter_client's message ids name it: ``<session>_<pid>_<number>``.

    Parameters
    ----------
    session_id : str
        The kernel's own. Each kernel that is started has another one; a child that it forks has the same.
    pid : str
        The process.
    """

    session_id: str
    pid: str


class KernelMessage:
    """One received message; its content and metadata are parsed on first access."""

    __slots__ = ("_content", "_metadata", "_msg_id", "channel", "msg_type", "parent_id", "parent_type")

    def __init__(
        self,
        channel: str,
        msg_type: str,
        parent_id: str | None,
        content: Any,
        parent_type: str | None = None,
        msg_id: Any = None,
        metadata: bytes = b"{}",
    ) -> None:
        self.channel = channel
        self.msg_type = msg_type
        self.parent_id = parent_id
        self.parent_type = parent_type
        self._msg_id = msg_id
        self._metadata = metadata
        self._content = content

    @property
    def sender(self) -> Sender | None:
        """The process that sent the message; None where the message's id does not name it."""
        if not isinstance(self._msg_id, str) or len(self._msg_id) > _MAX_ID_CHARACTERS:
            return None
        session_id, _, rest = self._msg_id.partition("_")
        pid, _, number = rest.partition("_")
        # Kernels of other languages have ids of other forms, such as a UUID.
        return Sender(session_id, pid) if pid.isdecimal() and number.isdecimal() else None

    @property
    def content(self) -> Mapping[str, Any]:
        """The message's content; empty where it is not a JSON object."""
        if isinstance(self._content, (bytes, bytearray, memoryview)):
            self._content = _object(bytes(self._content))  # if it is none, the message still counts, by its type
        return self._content if isinstance(self._content, dict) else {}

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The message's metadata; empty where it is not a JSON object."""
        return _object(self._metadata)

    def with_content(self, content: Any) -> KernelMessage:
        """Return the same message with another content."""
        return KernelMessage(
            self.channel, self.msg_type, self.parent_id, content, self.parent_type, self._msg_id, self._metadata
        )


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = loads_lenient(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def new_header(msg_type: str, session_id: str, msg_id: str | None = None) -> dict[str, str]:
    """Return the header of a new message, with a time-zone-aware date as the protocol asks."""
    return {
        "msg_id": msg_id or uuid.uuid4().hex,
        "session": session_id,
        "username": "jupyter_exec_ext",
        "date": datetime.now(timezone.utc).isoformat(),
        "msg_type": msg_type,
        "version": PROTOCOL_VERSION,
    }


def language_told(info_reply: Mapping[str, Any]) -> str:
    """Return the language that the content of a ``kernel_info_reply`` names; empty if it names none."""
    info = info_reply.get("language_info")
    name = info.get("name") if isinstance(info, Mapping) else None
    return name[:_MAX_LANGUAGE_CHARACTERS] if isinstance(name, str) else ""


def execute_request(
    code: str,
    *,
    allow_input: bool,
    store_history: bool = True,
    user_expressions: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the content of an ``execute_request``. It is never silent, so that all output is seen.

    ``stop_on_error`` is off: requests are sent one at a time, so there is nothing of ours to abort, and other
    clients of the same kernel must not lose theirs.
    """
    return {
        "code": code,
        "silent": False,
        "store_history": store_history,
        "user_expressions": dict(user_expressions or {}),
        "allow_stdin": allow_input,
        "stop_on_error": False,
    }


class FrameCodec:
    """Sign and check the ZeroMQ frames of one kernel connection.

    Parameters
    ----------
    key : bytes
        The connection's signing key; empty if the kernel does not sign.
    signature_scheme : str
        ``"hmac-"`` and the name of a hash.
    session_id : str
        Our client session; also the ZeroMQ identity of the request sockets.
    """

    def __init__(self, key: bytes, signature_scheme: str, session_id: str) -> None:
        self.session_id = session_id
        self._key = key
        self._digest = signature_scheme.removeprefix("hmac-")
        self._signer = hmac.new(key, digestmod=self._digest) if key else None

    def _sign(self, parts: Sequence[bytes | memoryview]) -> bytes:
        if self._signer is None:
            return b""
        if sum(map(len, parts)) <= _SHORT_BYTES:  # copied in less time than several calls take
            return hmac.digest(self._key, b"".join(parts), self._digest).hex().encode()
        signer = self._signer.copy()  # `hmac.new` would hash the key again
        for part in parts:
            signer.update(part)
        return signer.hexdigest().encode()

    def encode(
        self, msg_type: str, content: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
    ) -> tuple[str, list[bytes]]:
        """Return the id and the frames of a new message."""
        header = new_header(msg_type, self.session_id)
        parts = [dump_bytes(header), b"{}", dump_bytes(metadata) if metadata else b"{}", dump_bytes(content)]
        return header["msg_id"], [DELIMITER, self._sign(parts), *parts]

    def decode(self, channel: str, frames: Sequence[bytes]) -> KernelMessage:
        """Return the message in `frames`.

        Raises
        ------
        ValueError
            If the frames are malformed or the signature is wrong.
        """
        parts = self._checked(frames)
        return _message(channel, loads_lenient(parts[0]), loads_lenient(parts[1]), parts[3], parts[2])

    def _checked(self, frames: Sequence[bytes]) -> Sequence[bytes]:
        # On iopub the topic of the subscription stands before the delimiter.
        start = frames.index(DELIMITER) + 1
        parts = frames[start + 1 : start + 5]
        if len(parts) < 4:
            raise ValueError("a kernel message has too few frames")
        if self._signer is not None and not hmac.compare_digest(self._sign(parts), frames[start]):
            raise ValueError("a kernel message has a wrong signature")
        return parts

    def open(self, channel: str, head: Sequence[bytes], content: Sequence[memoryview]) -> KernelMessage:
        """Return a message without its content, which was only checked.

        Parameters
        ----------
        head : sequence of bytes
            The frames before the content.
        content : sequence of memoryview
            The content in pieces; between them other threads get their turn.

        Raises
        ------
        ValueError
            If the frames are malformed or the signature is wrong.
        """
        start = head.index(DELIMITER) + 1
        parts = head[start + 1 : start + 4]
        if len(parts) < 3:
            raise ValueError("a large kernel message has too few frames")
        if self._signer is not None and not hmac.compare_digest(self._sign([*parts, *content]), head[start]):
            raise ValueError("a kernel message has a wrong signature")
        return _message(channel, loads_lenient(parts[0]), loads_lenient(parts[1]), {}, parts[2])

    # --- between ZeroMQ and a WebSocket of the v1 sub-protocol, without looking into the messages ---

    def frames_of(self, data: bytes) -> tuple[str, list[bytes]]:
        """Return the channel and the signed frames of a WebSocket message.

        Raises
        ------
        ValueError
            If it is malformed.
        """
        channel, *parts = unpack_parts(data)[:5]
        return channel.decode(), [DELIMITER, self._sign(parts), *parts]

    def websocket_of(self, channel: str, frames: Sequence[bytes]) -> bytes:
        """Return the WebSocket message of signed frames.

        Raises
        ------
        ValueError
            If the frames are malformed or the signature is wrong.
        """
        return pack_parts([channel.encode(), *self._checked(frames)])


def _message(channel: str, header: Any, parent: Any, content: Any, metadata: bytes = b"{}") -> KernelMessage:
    """Return a message, once everything in its header that is used has been checked."""
    parent = parent or {}
    if not isinstance(header, dict) or not isinstance(parent, dict):
        raise ValueError("a kernel message has a header that is not an object")
    msg_type = _text_field(header, "msg_type", _MAX_TYPE_CHARACTERS)
    if msg_type is None:
        raise ValueError("a kernel message has no type")
    return KernelMessage(
        channel,
        msg_type,
        _text_field(parent, "msg_id", _MAX_ID_CHARACTERS),
        content,
        _text_field(parent, "msg_type", _MAX_TYPE_CHARACTERS),
        header.get("msg_id"),  # `sender` checks it
        metadata,
    )


def _text_field(header: Mapping[str, Any], name: str, max_characters: int) -> str | None:
    value = header.get(name)
    # Parent ids are keys of dictionaries: a list among them would raise an error where a channel is read.
    if value is not None and (not isinstance(value, str) or len(value) > max_characters):
        raise ValueError(f"a kernel message has a malformed {name!r} in a header")
    return value


def encode_websocket(
    channel: str, header: Mapping[str, str], content: Mapping[str, Any], *, binary: bool
) -> str | bytes:
    """Return a message for a kernel WebSocket, in the v1 sub-protocol if `binary`."""
    if not binary:
        message = {
            "channel": channel,
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "buffers": [],
        }
        return dumps(message)
    return pack_parts([channel.encode(), dump_bytes(header), b"{}", b"{}", dump_bytes(content)])


def pack_parts(parts: Sequence[bytes]) -> bytes:
    """Return a message of the v1 sub-protocol: channel, header, parent header, metadata, content, buffers."""
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return b"".join([struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets), *parts])


def decode_websocket(data: str | bytes) -> KernelMessage:
    """Return the message in a WebSocket frame of either protocol.

    Raises
    ------
    ValueError
        If the frame is malformed.
    """
    if isinstance(data, str):
        message = loads_lenient(data)
        if not isinstance(message, dict):
            raise ValueError("a kernel message is not an object")
        return _message(
            str(message.get("channel", "iopub")),
            message.get("header"),
            message.get("parent_header"),
            message.get("content"),
        )
    channel, header, parent, _metadata, content = unpack_parts(data)[:5]
    return _message(channel.decode(), loads_lenient(header), loads_lenient(parent), content)


def unpack_parts(data: bytes) -> list[bytes]:
    """Return the parts of a message of the v1 sub-protocol, of which there are at least five."""
    try:
        (count,) = struct.unpack_from("<Q", data)
        # The last offset is the message's end, so five parts have six.
        if not 6 <= count <= 1024:
            raise ValueError("a kernel message has too many parts, or too few")
        offsets = struct.unpack_from(f"<{count}Q", data, 8)
        # Parts that overlap would take many times the memory of the message.
        if offsets[0] < 8 * (count + 1) or offsets[-1] > len(data) or any(a > b for a, b in pairwise(offsets)):
            raise ValueError("the parts of a kernel message overlap, or lie outside of it")
    except (struct.error, ValueError) as error:
        raise ValueError(f"a kernel message is malformed: {error}") from None
    return [data[a:b] for a, b in pairwise(offsets)]
