"""Large values in pieces, which never hold the interpreter lock for long: as JSON, and as files of a spool.

`large_json_parser` reads such JSON. A file holds a picture itself, text in UTF-8, and any other value as JSON, while
notebooks hold pictures in base64.
"""

from __future__ import annotations

import binascii
import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..models import DisplayEvent, EndEvent, Execution, OutputEvent, ResultEvent, StreamEvent
from ..models.mime_bundles import is_base64
from .large_json_parser import LeftOut
from .strict_json import dumps, only_escaped, to_bytes

# From here on a record or event is worth a worker thread.
LARGE_CHARACTERS = 256 * 1024
_LONG_EVENT_CHARACTERS = 64 * 1024
_PIECE_CHARACTERS = 512 * 1024
_SHORT_CHARACTERS = 1024
_BATCH = 256
_BACKSLASH = 0x5C
_FEW = 32  # one character in so many


def is_large(value: Any, characters: int = LARGE_CHARACTERS) -> bool:
    """Return whether the JSON of `value` takes so long to write that it belongs in a worker thread."""
    # Each item costs something, so that the walk is bounded in values of many small items, too.
    left = characters
    todo = [value]
    while todo:
        item = todo.pop()
        left -= 8
        if isinstance(item, str):
            left -= len(item)
        elif isinstance(item, Execution):
            todo += [item.stdout, item.stderr, item.outputs, item.code, item.metadata]
        elif isinstance(item, dict):
            left -= 8 * len(item)
            todo += item.values() if left > 0 else ()
        elif isinstance(item, (list, tuple)):
            left -= 8 * len(item)
            todo += item if left > 0 else ()
        if left < 0:
            return True
    return False


def event_is_large(event: OutputEvent) -> bool:
    """Return whether an output event is worth being written at once, and in pieces."""
    if isinstance(event, StreamEvent):
        return len(event.text) > _LONG_EVENT_CHARACTERS
    if isinstance(event, (DisplayEvent, ResultEvent)):
        return is_large(event.data, _LONG_EVENT_CHARACTERS)
    return isinstance(event, EndEvent) and is_large(event.execution)


def dump_in_pieces(value: Any) -> Iterator[str]:
    """Yield the text that `dumps` returns, in pieces."""
    if isinstance(value, str):
        yield from _string(value)
    elif isinstance(value, LeftOut):
        yield '"'
        for piece in value.pieces:
            yield dumps(piece)[1:-1]
        yield '"'
    elif isinstance(value, dict):
        yield "{"
        for number, (key, item) in enumerate(value.items()):
            yield f"{',' if number else ''}{dumps(str(key))}:"
            yield from dump_in_pieces(item)
        yield "}"
    elif isinstance(value, (list, tuple)):
        yield "["
        yield from _items(value)
        yield "]"
    else:
        yield dumps(value)


def encode_in_pieces(value: Any) -> Iterator[bytes]:
    """Yield the same in UTF-8."""
    return map(to_bytes, dump_in_pieces(value))


def _string(text: str) -> Iterator[str]:
    if len(text) <= _SHORT_CHARACTERS:
        yield dumps(text)
        return
    yield '"'
    for start in range(0, len(text), _PIECE_CHARACTERS):
        yield _escaped(text[start : start + _PIECE_CHARACTERS])
    yield '"'


def _escaped(text: str) -> str:
    """Return `text` as JSON has it between quotes.

    Of base64 nothing is escaped, and of most other text little; looking for that takes a fraction of the time that the
    encoder takes to look at every character.
    """
    found = only_escaped(text.encode("utf-8", "surrogatepass"))
    if len(found) * _FEW > len(text):
        return dumps(text)[1:-1]
    for byte in sorted(set(found), key=lambda byte: byte != _BACKSLASH):  # first, as there are more of them afterwards
        text = text.replace(chr(byte), dumps(chr(byte))[1:-1])
    return text


def _items(values: list[Any] | tuple[Any, ...]) -> Iterator[str]:
    """Yield the members of an array: numbers many at a time, whatever may be large one by one."""
    for start in range(0, len(values), _BATCH):
        batch = values[start : start + _BATCH]
        if start:
            yield ","
        if all(item is None or isinstance(item, (bool, int, float)) for item in batch):
            yield dumps(batch)[1:-1]
            continue
        for number, item in enumerate(batch):
            if number:
                yield ","
            yield from dump_in_pieces(item)


def collect(parts: Iterator[bytes]) -> list[bytes]:
    """Return what was encoded, joined to pieces of a sensible size."""
    done: list[bytes] = []
    pending: list[bytes] = []
    size = 0
    for part in parts:
        pending.append(part)
        size += len(part)
        if size >= _PIECE_CHARACTERS:
            done.append(b"".join(pending))
            pending, size = [], 0
    return [*done, b"".join(pending)] if pending else done


_SLICE_CHARACTERS = 256 * 1024
# All surrogates but U+DC80 to U+DCFF, by which 'surrogateescape' stands for the bytes 0x80 to 0xFF.
_NO_BYTE = re.compile("([\ud800-\udc7f\udd00-\udfff]+)")
_SPACE = b" \t\r\n\v\f"
_DIGITS = (string.ascii_letters + string.digits + "+/").encode()


def raw_bytes(text: str) -> bytes:
    """Return what a program wrote that printed `text`: bytes that were no UTF-8 are those bytes again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # lone surrogates that stand for no byte, such as a program can print
        parts = _NO_BYTE.split(text)
        return b"".join(
            part.encode("utf-8", "surrogatepass" if number % 2 else "surrogateescape")  # odd parts are matches
            for number, part in enumerate(parts)
        )


@dataclass(frozen=True, slots=True)
class TextContent:
    """Text as bytes, in pieces."""

    text: str

    def __iter__(self) -> Iterator[bytes]:
        return map(raw_bytes, _slices(self.text))


@dataclass(frozen=True, slots=True)
class ValueContent:
    """A value as bytes, in pieces: a picture itself, any other text in UTF-8, the rest as JSON."""

    mime_type: str
    value: Any

    def __iter__(self) -> Iterator[bytes]:
        texts = self._texts()
        return _decoded(texts) if self._may_be_base64() and _is_base64(texts) else map(raw_bytes, texts)

    def _texts(self) -> Iterable[str]:
        if isinstance(self.value, LeftOut):
            return self.value.pieces
        # A list, because base64 is read twice: once to check it, once to decode it.
        return list(_slices(self.value)) if isinstance(self.value, str) else dump_in_pieces(self.value)

    def _may_be_base64(self) -> bool:
        return is_base64(self.mime_type) and isinstance(self.value, (str, LeftOut))


def _slices(text: str) -> Iterator[str]:
    return (text[start : start + _SLICE_CHARACTERS] for start in range(0, len(text), _SLICE_CHARACTERS))


def _is_base64(texts: Iterable[str]) -> bool:
    """True if it is base64, white space aside. It uses `translate`, because the interpreter lock is held meanwhile."""
    padded, length = False, 0
    for text in texts:
        if not text.isascii():
            return False
        data = text.encode().translate(None, _SPACE)
        digits = data.rstrip(b"=")
        if digits.translate(None, _DIGITS) or (padded and digits):  # nothing follows padding
            return False
        padded, length = padded or len(digits) < len(data), length + len(digits)
    return length % 4 != 1  # a digit alone is less than a byte


def _decoded(texts: Iterable[str]) -> Iterator[bytes]:
    rest = b""
    for text in texts:
        # Padding may be missing or incomplete, so it is dropped here and made anew at the end.
        rest += text.encode().translate(None, _SPACE + b"=")
        whole = len(rest) - len(rest) % 4
        yield binascii.a2b_base64(rest[:whole])
        rest = rest[whole:]
    if len(rest) > 1:
        yield binascii.a2b_base64(rest + b"=" * (-len(rest) % 4))
