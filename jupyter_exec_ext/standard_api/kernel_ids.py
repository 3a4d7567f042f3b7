"""Kernel ids of Jupyter's kernels API: UUIDs that are computed from sessions' ids."""

from __future__ import annotations

from ..protocol.record_ids import parse_id

# The random part of a session's id has 24 digits, and a UUID has 32.
_FILLER = "0" * 8


def kernel_id_of(session_id: str) -> str:
    """Return the id of a session's kernel, which stays the same after a restart.

    Parameters
    ----------
    session_id : str
        Id of the session.

    Returns
    -------
    str
        A UUID.
    """
    parsed = parse_id(session_id)
    assert parsed is not None  # the server created it
    digits = parsed.digits + _FILLER
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
