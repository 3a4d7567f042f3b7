"""Cutting text to a number of bytes in UTF-8, always between characters."""

from __future__ import annotations

from .output_joining import truncation_marker
from .strict_json import utf8_size


def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def head_of(text: str, max_bytes: int) -> str:
    """Return the longest prefix of `text` with at most `max_bytes` in UTF-8, cut between characters."""
    if text.isascii():
        return text[:max_bytes]
    raw = text.encode("utf-8", "surrogatepass")
    end = min(max_bytes, len(raw))
    while 0 < end < len(raw) and _is_continuation(raw[end]):
        end -= 1
    return raw[:end].decode("utf-8", "surrogatepass")


def tail_of(text: str, max_bytes: int) -> str:
    """Return the longest suffix of `text` with at most `max_bytes` in UTF-8, cut between characters."""
    if text.isascii():
        return text[max(len(text) - max_bytes, 0) :]
    raw = text.encode("utf-8", "surrogatepass")
    start = max(len(raw) - max_bytes, 0)
    while start < len(raw) and _is_continuation(raw[start]):
        start += 1
    return raw[start:].decode("utf-8", "surrogatepass")


def clip_middle(text: str, max_bytes: int, name: str) -> tuple[str, int]:
    """Return `text` with a marker in place of its middle, if it is too long, and the number of bytes left out."""
    size = utf8_size(text)
    if size <= max_bytes:
        return text, 0
    head, tail = head_of(text, max_bytes // 2), tail_of(text, max_bytes // 2)
    dropped = size - utf8_size(head) - utf8_size(tail)
    return head + truncation_marker(dropped, name) + tail, dropped
