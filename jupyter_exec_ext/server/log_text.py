"""Text of a caller's, as the log may have it: one short line, whatever was sent."""

from __future__ import annotations

MAX_CHARACTERS = 400


def one_line(text: str) -> str:
    """Return text with everything escaped that is not plain ASCII, and without what is too long of it."""
    shown = ascii(text[:MAX_CHARACTERS])[1:-1]
    return shown[:MAX_CHARACTERS] + ("..." if len(text) > MAX_CHARACTERS or len(shown) > MAX_CHARACTERS else "")
