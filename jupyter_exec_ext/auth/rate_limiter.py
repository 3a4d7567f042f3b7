"""How often somebody may do something: a token bucket for each key, in bounded memory. The clock is the caller's."""

from __future__ import annotations

from collections import OrderedDict


class Budget:
    """What each key may spend: `burst` at once, and `per_minute` more in the long run.

    A key that was never seen has all of its burst. Only `max_keys` keys are kept; the one unused for longest, which
    has refilled most, is forgotten first. Whoever can use more keys than that (addresses, say) is not held back by a
    budget for each of them: add one whose key is the same for all.

    Parameters
    ----------
    burst : int
        At least 1.
    per_minute : float
        What comes back in a minute; above 0.
    max_keys : int
        At least 1.
    """

    def __init__(self, burst: int, per_minute: float, max_keys: int) -> None:
        if burst < 1 or per_minute <= 0 or max_keys < 1:
            raise ValueError("a budget needs a burst and keys of at least 1, and a rate above 0")
        self._burst = float(burst)
        self._per_second = per_minute / 60.0
        self._max_keys = max_keys
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what was left, and when

    def left(self, key: str, now: float) -> float:
        """Return how much `key` may spend at the time `now`, in seconds of any clock; spends nothing."""
        left, at = self._kept.get(key, (self._burst, now))
        return min(self._burst, left + max(0.0, now - at) * self._per_second)

    def spend(self, key: str, now: float) -> float:
        """Take one; return 0.0, or with nothing taken the seconds until there is one."""
        left = self.left(key, now)
        allowed = left >= 1.0
        at = max(now, self._kept.get(key, (0.0, now))[1])  # a clock that was set back gives nothing twice
        self._kept[key] = (left - 1.0 if allowed else left, at)
        self._kept.move_to_end(key)
        if len(self._kept) > self._max_keys:
            self._kept.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._per_second + (at - now)
