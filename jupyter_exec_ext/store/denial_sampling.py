"""Which refusals are recorded one by one: a flood of them is counted, so that it cannot fill the disk."""

from __future__ import annotations

from collections import Counter

from ..auth.rate_limiter import Budget
from ..errors import ExecError

_BURST = 50
_PER_MINUTE = 20.0
_MAX_PRINCIPALS = 1000
_OTHER = "other"


class DenialFilter:
    """Lets through as many as each principal, and all strangers together, have in their budget."""

    def __init__(self) -> None:
        self._budget = Budget(_BURST, _PER_MINUTE, _MAX_PRINCIPALS)
        self._suppressed: Counter[str] = Counter()

    def lets_through(self, principal: str, code: object, now: float) -> bool:
        """Decide about a refusal with the error `code`; one that is not let through is counted."""
        if self._budget.spend(principal, now) == 0.0:
            return True
        self._suppressed[code if isinstance(code, str) and code in ExecError.codes() else _OTHER] += 1
        return False

    def take_suppressed(self) -> dict[str, int]:
        """Return how many were counted, by code, and begin anew."""
        taken = dict(self._suppressed)
        self._suppressed.clear()
        return taken
