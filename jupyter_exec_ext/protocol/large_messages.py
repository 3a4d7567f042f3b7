"""Reader of large kernel messages, step by step in a worker thread, so that others need not wait.

Each step yields a message that is fit for the event loop: text in small pieces, one message each, and instead of values
that no execution could keep, their size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..models.plain_text import strip_ansi
from .kernel_messages import FrameCodec, KernelMessage
from .large_json_parser import PIECE_BYTES, Buffer, KeepUpTo, LeftOut, Take, TooComplexError, loads_in_pieces
from .large_values import dump_in_pieces
from .strict_json import utf8_size

_BUNDLES = ("display_data", "update_display_data", "execute_result")
_OTHERS = ("error", "execute_reply", "input_request", "status", "execute_input", "clear_output")


def read_large(
    codec: FrameCodec,
    channel: str,
    head: Sequence[bytes],
    content: Buffer,
    max_value_bytes: int,
    max_memory_bytes: int | None = None,
) -> Iterator[KernelMessage]:
    """Yield what one large message says; each step blocks for as long as a piece of it takes.

    Parameters
    ----------
    head : sequence of bytes
        The frames before the content.
    content : bytes or bytearray
        The content, which is not copied as a whole.
    max_value_bytes : int
        Strings that are larger, together, are left out.
    max_memory_bytes : int, optional
        The memory that the strings may take.

    Raises
    ------
    ValueError
        If the message is malformed or its signature is wrong.
    """
    # This checks the signature, so that nothing of a forged message is parsed.
    message = codec.open(channel, head, list(_slices(content)))
    if message.msg_type == "stream":
        # `_UnreadText` decodes nothing yet. Each step of the caller decodes one piece, so memory for one is enough.
        yield from _split(message, loads_in_pieces(content, _UnreadText))
    elif message.msg_type in _BUNDLES:
        yield message.with_content(_bundle(content, KeepUpTo(max_value_bytes, max_memory_bytes)))
    elif message.msg_type in _OTHERS or message.msg_type.startswith("comm_") or message.msg_type.endswith("_reply"):
        keep = _plain(KeepUpTo(max_value_bytes, max_memory_bytes))
        yield message.with_content(_without_escapes(loads_in_pieces(content, keep)))
    else:
        yield message.with_content({})  # of no interest here, so it is not even parsed


def _slices(content: Buffer) -> Iterator[memoryview]:
    view = memoryview(content).toreadonly()
    for start in range(0, len(content), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


def _bundle(content: Buffer, keep: KeepUpTo) -> dict[str, Any]:
    """Return a display's content; of one that is too complex to be parsed, all of it as a value that is left out."""
    try:
        return _without_holes(loads_in_pieces(content, keep))
    except TooComplexError:
        return {"data": {"application/json": LeftOut(len(content), _RawPieces(content))}}


@dataclass(frozen=True, slots=True)
class _UnreadText:
    """A long string that is decoded while it is handed on."""

    pieces: Iterable[str]


@dataclass(frozen=True, slots=True)
class _RawPieces:
    """A content as it came, as text in pieces."""

    content: Buffer

    def __iter__(self) -> Iterator[str]:
        return (str(piece, "utf-8", "replace") for piece in _slices(self.content))


def _split(message: KernelMessage, body: Any) -> Iterator[KernelMessage]:
    fields: Mapping[str, Any] = body if isinstance(body, dict) else {}
    text, name = fields.get("text"), fields.get("name")
    pieces = text.pieces if isinstance(text, _UnreadText) else (text,)
    for piece in pieces:
        yield message.with_content({"name": name if isinstance(name, str) else None, "text": piece})


def _plain(keep: KeepUpTo) -> Take:
    """Return a `take` that joins text without escape sequences, which are costly to find where there are many."""

    def take(pieces: Iterable[str]) -> Any:
        # These fields are text, so what is left out becomes its marker.
        return str(keep(strip_ansi(piece) for piece in pieces))

    return take


def _without_escapes(body: Any) -> Any:
    """Return an error's content with plain text; a traceback has escape sequences in its short lines, too."""
    if isinstance(body, dict) and isinstance(body.get("traceback"), list):
        lines = [strip_ansi(line) if isinstance(line, str) else line for line in body["traceback"]]
        return {**body, "traceback": lines}
    return body


def _without_holes(body: Any) -> dict[str, Any]:
    """Return a display's content where something left out stands for a whole value, never inside of one."""
    if not isinstance(body, dict):
        return {}
    data, metadata = body.get("data"), body.get("metadata")
    whole = {mime: _whole(value) for mime, value in data.items()} if isinstance(data, dict) else {}
    return {**body, "data": whole, "metadata": {} if _left_out(metadata) else metadata}


@dataclass(frozen=True, slots=True)
class _JSONPieces:
    """The JSON of a value, in pieces; strings that were left out included."""

    value: Any

    def __iter__(self) -> Iterator[str]:
        return dump_in_pieces(self.value)


def _whole(value: Any) -> Any:
    if isinstance(value, (str, LeftOut)) or not _left_out(value):
        return value
    pieces = _JSONPieces(value)
    return LeftOut(sum(map(utf8_size, pieces)), pieces)


def _left_out(value: Any) -> bool:
    """Return whether anything was left out anywhere inside `value`."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, LeftOut):
            return True
        if isinstance(item, dict):
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)
    return False
