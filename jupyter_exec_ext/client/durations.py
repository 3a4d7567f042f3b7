"""Durations as people type them, such as ``90s`` or ``2h``, for the command line and ``%%exec``."""

from __future__ import annotations

import math

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def duration(text: str) -> float:
    """Parse a positive duration, such as ``90``, ``90s``, ``1.5h`` or ``30d``, to seconds.

    Raises
    ------
    ValueError
        For any other text.
    """
    value = duration_or_never(text)
    if value == 0:
        raise ValueError
    return value


def duration_or_never(text: str) -> float:
    """Parse a duration as `duration` does; 0 stands for never or not at all."""
    unit = _UNITS.get(text[-1:])
    value = float(text) if unit is None else float(text[:-1]) * unit
    if not (value >= 0 and math.isfinite(value)):  # no comparison with NaN is true
        raise ValueError
    return value


# argparse's messages use these names.
duration.__name__ = "duration (such as 90, 90s, 30m, 8h or 30d)"
duration_or_never.__name__ = "duration (such as 0, 90, 90s, 30m, 8h or 30d)"
