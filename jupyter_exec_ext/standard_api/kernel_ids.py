"""Kernel ids: sessions as Jupyter's standard API names them, by UUIDs that follow from the sessions' ids."""

from __future__ import annotations

from ..protocol.record_ids import parse_id

# The random part of a session's id has 24 digits, and a UUID has 32.
_FILLER = "0" * 8


def kernel_id_of(session_id: str) -> str:
    """Return the id of a session's kernel. It stays the same when the kernel is restarted or replaced."""
    parsed = parse_id(session_id)
    assert parsed is not None  # the server has made it
    digits = parsed.digits + _FILLER
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
