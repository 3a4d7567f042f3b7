"""Relative times for people, such as ``3 min ago``; JSON output has the exact ones."""

from __future__ import annotations

import time

from ..protocol.records_json import seconds_of

_MINUTE_SECONDS, _HOUR_SECONDS, _DAY_SECONDS = 60, 3600, 86_400
# Below this many hours a person counts in hours, as for a token of 36 h.
_MAX_HOURS = 48


def relative_time(timestamp: str | None, now_seconds: float | None = None) -> str:
    """Return a timestamp of the server relative to now.

    Parameters
    ----------
    timestamp : str or None
        A time in ISO 8601; None or an empty text for none, which is shown as ``-``. Any other text is returned as it
        is.
    now_seconds : float, optional
        Seconds after the epoch; by default the current time.
    """
    if not timestamp:
        return "-"
    try:
        distance = seconds_of(timestamp) - (time.time() if now_seconds is None else now_seconds)
    except ValueError:
        return timestamp
    amount = _amount(abs(distance))
    return f"in {amount}" if distance > 0 else f"{amount} ago"


def exact_and_relative(timestamp: str | None) -> str:
    """Return a timestamp, and the same relative to now in parentheses; ``-`` for none."""
    return f"{timestamp} ({relative_time(timestamp)})" if timestamp else "-"


def _amount(seconds: float) -> str:
    if seconds < _MINUTE_SECONDS:
        return f"{seconds:.0f} s"
    if seconds < _HOUR_SECONDS:
        return f"{seconds / _MINUTE_SECONDS:.0f} min"
    if seconds < _MAX_HOURS * _HOUR_SECONDS:
        return f"{seconds / _HOUR_SECONDS:.0f} h"
    return f"{seconds / _DAY_SECONDS:.0f} d"
