r"""The one way this package writes and reads JSON.

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


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_LENIENT = json.JSONDecoder(parse_constant=str, parse_float=_finite_or_text)
_ESCAPED = frozenset(b'"\\') | frozenset(range(0x20))
_AS_THEY_ARE = bytes(byte for byte in range(0x100) if byte not in _ESCAPED)
_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def dumps(value: Any) -> str:
    """Return `value` as compact JSON text."""
    return _ENCODER.encode(value)


def dump_bytes(value: Any) -> bytes:
    """Return `value` as compact JSON in UTF-8."""
    return to_bytes(_ENCODER.encode(value))


def to_bytes(text: str) -> bytes:
    """Encode JSON text; lone surrogates become JSON escapes."""
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
        If it is not JSON, or nested too deep to be parsed.
    """
    try:
        return _LENIENT.decode(raw if isinstance(raw, str) else any_text(raw))
    except RecursionError:
        raise ValueError("nested too deep") from None


def any_text(raw: bytes | bytearray) -> str:
    """Return what a kernel sent as text; see `loads_lenient`."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogateescape")


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


def utf8_size(text: str) -> int:
    """Return the number of bytes of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
