"""Rate limiter: a token bucket for each key, in bounded memory, with the caller's clock."""

from __future__ import annotations

from collections import OrderedDict


class RateLimiter:
    """Rate limiter of actions by key: `burst` at once, and `per_minute` in the long run.

    A new key has its full burst. At most `max_keys` keys are kept, and the least recently used one, which has refilled
    most, is dropped first. A caller with more keys than that (such as addresses) evades a limit for each key: add a
    limit with one key for all.

    Parameters
    ----------
    burst : int
        At least 1.
    per_minute : float
        Actions refilled in a minute; above 0.
    max_keys : int
        At least 1.
    """

    def __init__(self, burst: int, per_minute: float, max_keys: int) -> None:
        if burst < 1 or per_minute <= 0 or max_keys < 1:
            raise ValueError("a rate limiter needs a burst and keys of at least 1, and a rate above 0")
        self._burst = float(burst)
        self._per_second = per_minute / 60.0
        self._max_keys = max_keys
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()  # remaining actions, and the time

    def count_remaining(self, key: str, now: float) -> float:
        """Return the remaining actions of `key` at the time `now`, in seconds of any clock."""
        remaining, at = self._kept.get(key, (self._burst, now))
        return min(self._burst, remaining + max(0.0, now - at) * self._per_second)

    def spend_action(self, key: str, now: float) -> float:
        """Spend one action and return 0.0; if none is left, return the wait in seconds until one is."""
        remaining = self.count_remaining(key, now)
        is_allowed = remaining >= 1.0
        at = max(now, self._kept.get(key, (0.0, now))[1])  # a clock that was set back must not refill twice
        self._kept[key] = (remaining - 1.0 if is_allowed else remaining, at)
        # Also after a refusal: a key that is dropped would come back with a full burst.
        self._kept.move_to_end(key)
        if len(self._kept) > self._max_keys:
            self._kept.popitem(last=False)
        return 0.0 if is_allowed else (1.0 - remaining) / self._per_second + (at - now)  # `at` can be later than `now`
