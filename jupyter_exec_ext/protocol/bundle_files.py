"""A value of a MIME bundle as a file: its name, and its content in pieces.

Notebooks hold pictures in base64 and everything that is neither text nor a picture as JSON.
"""

from __future__ import annotations

import binascii
import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..models.mime_bundles import is_base64
from .json_pieces import LeftOut
from .large_json import dump_in_pieces

_PIECE_CHARACTERS = 256 * 1024
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
            part.encode("utf-8", "surrogatepass" if number % 2 else "surrogateescape")
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
        return list(_slices(self.value)) if isinstance(self.value, str) else dump_in_pieces(self.value)

    def _may_be_base64(self) -> bool:
        return is_base64(self.mime_type) and isinstance(self.value, (str, LeftOut))


def _slices(text: str) -> Iterator[str]:
    return (text[start : start + _PIECE_CHARACTERS] for start in range(0, len(text), _PIECE_CHARACTERS))


def _is_base64(texts: Iterable[str]) -> bool:
    """Whether it is base64, white space aside; with the fastest there is, since nobody else runs meanwhile."""
    padded, length = False, 0
    for text in texts:
        if not text.isascii():
            return False
        data = text.encode().translate(None, _SPACE)
        digits = data.rstrip(b"=")
        if digits.translate(None, _DIGITS) or (padded and digits):
            return False
        padded, length = padded or len(digits) < len(data), length + len(digits)
    return length % 4 != 1


def _decoded(texts: Iterable[str]) -> Iterator[bytes]:
    rest = b""
    for text in texts:
        rest += text.encode().translate(None, _SPACE + b"=")
        whole = len(rest) - len(rest) % 4
        yield binascii.a2b_base64(rest[:whole])
        rest = rest[whole:]
    if len(rest) > 1:
        yield binascii.a2b_base64(rest + b"=" * (-len(rest) % 4))
