"""Speed of this machine, beside one on which a warm `print(1)` through jupyter_client takes 4.0 ms.

Time limits of tests are for that one, and are scaled.
"""

from __future__ import annotations

import time
from functools import cache
from statistics import median

from benchmarks.contenders.direct import Direct

_REFERENCE_SECONDS = 0.004
_ROUNDS = 50
# A machine that is busy with other things must not hide a defect.
_MAX_SLOWDOWN = 3.0
#: How long 99 of 100 of others' runs may take while code does its worst, on a machine of that pace.
_OTHERS_P99_SECONDS = 0.25


@cache
def slowdown_factor() -> float:
    """Return how many times longer than on that machine the loop takes here, from 1 to 3; it starts a kernel."""
    kernel = Direct()
    try:
        seconds = []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            kernel.run("print(1)")
            seconds.append(time.perf_counter() - began)
    finally:
        kernel.close()
    return min(_MAX_SLOWDOWN, max(1.0, median(seconds) / _REFERENCE_SECONDS))


def other_sessions_p99_seconds() -> float:
    """Return how long 99 of 100 of others' runs may take here while code does its worst."""
    return _OTHERS_P99_SECONDS * slowdown_factor()
