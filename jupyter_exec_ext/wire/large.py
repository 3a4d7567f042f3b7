"""Large messages from a kernel, read in a worker thread so that nobody else has to wait for them.

What comes out is fit for the event loop: text in small pieces, one message each, and instead of values
that no execution could keep, their size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .jsontext import utf8_size
from .kernel import FrameCodec, KernelMessage
from .large_json import dump_in_pieces
from .pieces import PIECE_BYTES, KeepUpTo, LeftOut, Take, loads_in_pieces
from .translate import strip_ansi
from .written import WrittenDict

# From here on the way through a thread is worth its while.
LARGE_BYTES = 256 * 1024
_BUNDLES = ("display_data", "update_display_data", "execute_result")
_OTHERS = ("error", "execute_reply", "input_request", "status", "execute_input", "clear_output")


def read_large(
    codec: FrameCodec, channel: str, head: Sequence[bytes], content: memoryview, max_value_bytes: int
) -> list[KernelMessage]:
    """Return what is to be told of one large message.

    Parameters
    ----------
    head : sequence of bytes
        The frames before the content.
    max_value_bytes : int
        A string that is larger is left out.

    Raises
    ------
    ValueError
        If the message is malformed or its signature is wrong.
    """
    message = codec.open(channel, head, list(_slices(content)))
    if message.msg_type == "stream":
        body = loads_in_pieces(_copy(content), tuple)
        return _split(message, body if isinstance(body, dict) else {})
    if message.msg_type in _BUNDLES:
        keep = KeepUpTo(max_value_bytes)
        body = _without_holes(loads_in_pieces(_copy(content), keep))
        return [_with(message, _as_written(body, keep.written, len(content)))]
    if message.msg_type in _OTHERS:
        return [_with(message, _without_escapes(loads_in_pieces(_copy(content), _plain(max_value_bytes))))]
    return [_with(message, {})]  # of no interest to us, so not even parsed


def _slices(content: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


def _copy(content: memoryview) -> bytearray:
    """Return the content as something that can be searched, copied piece by piece."""
    copy = bytearray()
    for piece in _slices(content):
        copy += piece
    return copy


def _with(message: KernelMessage, content: Any) -> KernelMessage:
    return KernelMessage(message.channel, message.msg_type, message.parent_id, content)


def _split(message: KernelMessage, body: dict[str, Any]) -> list[KernelMessage]:
    text = body.get("text")
    pieces = text if isinstance(text, tuple) else (text,)
    return [_with(message, {**body, "text": piece}) for piece in pieces]


def _plain(max_bytes: int) -> Take:
    """Return a `take` that joins text without escape sequences, which are costly to find where there are many."""
    keep = KeepUpTo(max_bytes)

    def take(pieces: Iterable[str]) -> Any:
        return str(keep(strip_ansi(piece) for piece in pieces))

    return take


def _without_escapes(body: Any) -> Any:
    """Return an error's content with plain text; a traceback has escape sequences in its short lines, too."""
    if isinstance(body, dict) and isinstance(body.get("traceback"), list):
        lines = [strip_ansi(line) if isinstance(line, str) else line for line in body["traceback"]]
        return {**body, "traceback": lines}
    return body


def _as_written(body: dict[str, Any], written: Sequence[tuple[str, memoryview]], message_bytes: int) -> dict[str, Any]:
    """Return a display's content whose long strings need not be written again, if they are most of the message.

    All of it stays in memory with them, also what nobody counts.
    """
    data = body.get("data", {})
    views = {id(text): view for text, view in written}
    texts = {mime: views[id(value)] for mime, value in data.items() if id(value) in views}
    if 2 * sum(map(len, texts.values())) < message_bytes:
        return body
    return {**body, "data": WrittenDict(data, texts)}


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
