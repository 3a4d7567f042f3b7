r"""The one way this package writes and reads JSON.

Written text is UTF-8 without NaN: a lone surrogate (which code can print) is written as its ``\uXXXX`` escape, so
that any text a kernel sends survives the trip. In what kernels send, NaN and infinities are read as strings; in what
callers send they are refused.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_LENIENT = json.JSONDecoder(parse_constant=str)
_STRICT = json.JSONDecoder(parse_constant=_refuse)


def dumps(value: Any) -> str:
    """Return `value` as compact JSON text."""
    return _ENCODER.encode(value)


def dump_bytes(value: Any) -> bytes:
    """Return `value` as compact JSON in UTF-8."""
    return to_bytes(_ENCODER.encode(value))


def to_bytes(text: str) -> bytes:
    """Encode JSON text; lone surrogates become JSON escapes."""
    return text.encode("utf-8", "backslashreplace")


def loads_lenient(raw: bytes | str) -> Any:
    """Parse JSON from a kernel.

    Raises
    ------
    ValueError
        If it is not JSON in UTF-8.
    """
    return _LENIENT.decode(raw if isinstance(raw, str) else raw.decode("utf-8", "surrogatepass"))


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
