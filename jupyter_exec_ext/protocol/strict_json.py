r"""Strict JSON, read and written: lone surrogates survive, and NaN is never written.

Written text is UTF-8 without NaN: a lone surrogate (which code can print) is written as its ``\uXXXX`` escape, so
that any text a kernel sends survives the trip. In what kernels send, NaN and infinities are read as strings; in what
callers send they are refused, numbers too large for a float included.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:32]} is too large a number")
    return number


def _finite_or_text(text: str) -> float | str:
    number = float(text)
    return text if math.isinf(number) else number


#: Arrays and objects inside each other that are read from a kernel. What is nested deeper could not be written again.
MAX_DEPTH = 128
# Memory of a parsed value: an object with one key takes 232 bytes, and a short string with its place 56 (CPython 3.11,
# 64 bit).
_CONTAINER_BYTES, _ITEM_BYTES = 232, 56

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_LENIENT = json.JSONDecoder(parse_constant=str, parse_float=_finite_or_text)
_ESCAPED = frozenset(b'"\\') | frozenset(range(0x20))
_AS_THEY_ARE = bytes(byte for byte in range(0x100) if byte not in _ESCAPED)
_LONG_ESCAPES = bytes(set(range(0x20)) - set(b"\b\t\n\f\r"))
_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def dumps(value: Any) -> str:
    """Return `value` as compact JSON text."""
    return _ENCODER.encode(value)


def dump_bytes(value: Any) -> bytes:
    """Return `value` as compact JSON in UTF-8."""
    return to_bytes(_ENCODER.encode(value))


def to_bytes(text: str) -> bytes:
    """Encode JSON text; lone surrogates become JSON escapes."""
    # Only surrogates cannot be encoded, and Python's replacement for them (\ud800) is JSON's escape.
    return text.encode("utf-8", "backslashreplace")


def only_escaped(raw: bytes | bytearray) -> bytes | bytearray:
    """Return those bytes of text in UTF-8 that a JSON string has only escaped."""
    return raw.translate(None, _AS_THEY_ARE)


def loads_lenient(raw: bytes | str) -> Any:
    """Parse JSON from a kernel.

    Bytes that are not UTF-8 become lone surrogates, as Python has it for file names: ``print(os.listdir())`` sends
    such bytes.

    Raises
    ------
    ValueError
        If it is not JSON, or nested deeper than `MAX_DEPTH`.
    """
    text = raw if isinstance(raw, str) else any_text(raw)
    try:
        value = _LENIENT.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    # Counting brackets is quick. Only values with many of them are walked.
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [
            item
            for outer in level
            if isinstance(outer, (dict, list))
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, (dict, list))
        ]
    return bool(level)


def parsed_bytes(raw: str | bytes | bytearray) -> int:
    """Estimate the memory that JSON takes once it is parsed, beside its text."""
    if isinstance(raw, str):
        containers, items = raw.count("[") + raw.count("{"), raw.count(",")
    else:
        containers, items = raw.count(b"[") + raw.count(b"{"), raw.count(b",")
    return containers * _CONTAINER_BYTES + items * _ITEM_BYTES


def any_text(raw: bytes | bytearray) -> str:
    """Return what a kernel sent as text; see `loads_lenient`."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogateescape")  # jupyter_client encodes with this handler


def loads_strict(raw: bytes | str) -> Any:
    """Parse JSON from a caller or a server.

    Raises
    ------
    ValueError
        If it is not strict JSON in UTF-8, or nested too deep to be parsed.
    """
    try:
        return _STRICT.decode(raw if isinstance(raw, str) else raw.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def is_encodable(text: str) -> bool:
    """Return whether `text` can be written in UTF-8: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf8_size(text: str) -> int:
    """Return the number of bytes of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def encoded_size(text: str) -> int:
    """Return at least the number of bytes of `text` as a JSON string in UTF-8, and seldom more than that."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:  # lone surrogates
        raw = to_bytes(text)
    escaped = only_escaped(raw)
    if not escaped:
        return len(raw) + 2
    short = escaped.translate(None, _LONG_ESCAPES)  # such as \n; the others are written as \u001b
    return len(raw) + 2 + len(short) + 5 * (len(escaped) - len(short))
