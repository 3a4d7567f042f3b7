"""Counts what callers have under way, so that no policy's number is passed, however many requests come at once.

Everything here happens between two awaits: whoever is let in is counted before anybody else is asked about.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable

from ...auth.caller import Bound, Caller
from ...auth.policy import check_open_executions, check_rate, check_session_count, check_streams

_MINUTE_SECONDS = 60.0
_MAX_REMEMBERED = 1000


class Ticket:
    """One execution that was let in.

    Parameters
    ----------
    withdraw : callable
        See the method.
    leave : callable
        See the method.
    """

    def __init__(self, leave: Callable[[], None], withdraw: Callable[[], None]) -> None:
        self._leave = leave
        self._withdraw = withdraw

    def leave(self) -> None:
        """The execution has ended: its place is free."""
        self._leave()

    def withdraw(self) -> None:
        """There was no execution after all: it counts neither now nor within its minute."""
        self._withdraw()


class Admission:
    """The executions and streams under way, and the executions of the last minute, by principal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._accepted_at: dict[str, deque[float]] = {}

    def check_session(self, caller: Caller, principals: Iterable[str]) -> None:
        """Decide about one more session, beside those that belong to `principals`; raises `PolicyLimitReached`."""
        principals = list(principals) if caller.bounds else []
        for bound in caller.bounds:
            check_session_count(bound.policy, sum(map(bound.covers, principals)))

    def enter(self, caller: Caller) -> Ticket:
        """Let one more execution in; raises `PolicyLimitReached`."""
        now = self._clock()
        for bound in caller.bounds:
            check_open_executions(bound.policy, self._open_within(bound))
            check_rate(bound.policy, self._wait_for(bound, now))
        if len(self._accepted_at) > _MAX_REMEMBERED:
            self._forget_before(now - _MINUTE_SECONDS)
        principals = {bound.principal for bound in caller.bounds}
        for principal in principals:
            self._accepted_at.setdefault(principal, deque()).append(now)
        if caller.bounds:
            self._open[caller.principal] += 1
        return Ticket(lambda: self._leave(caller), lambda: self._withdraw(caller, principals, now))

    def enter_stream(self, caller: Caller) -> Callable[[], None]:
        """Let one more request in that is answered over time, and return what ends it; raises `PolicyLimitReached`.

        To end it twice does no harm.
        """
        for bound in caller.bounds:
            check_streams(bound.policy, _sum_within(bound, self._streams))
        if not caller.bounds:
            return _nothing
        self._streams[caller.principal] += 1
        held = [caller.principal]

        def leave() -> None:
            while held:
                principal = held.pop()
                self._streams[principal] -= 1
                if not self._streams[principal]:
                    del self._streams[principal]

        return leave

    def _open_within(self, bound: Bound) -> int:
        return _sum_within(bound, self._open)

    def _wait_for(self, bound: Bound, now: float) -> float:
        """Return how long it is until the policy's number of executions in a minute is not reached."""
        most = bound.policy.max_executions_per_minute
        times = self._accepted_at.get(bound.principal, deque())
        while times and times[0] <= now - _MINUTE_SECONDS:
            times.popleft()
        if most is None or len(times) < most:
            return 0.0
        return times[len(times) - most] + _MINUTE_SECONDS - now

    def _leave(self, caller: Caller) -> None:
        if caller.bounds:
            self._open[caller.principal] -= 1
            if not self._open[caller.principal]:
                del self._open[caller.principal]

    def _withdraw(self, caller: Caller, principals: Iterable[str], at: float) -> None:
        self._leave(caller)
        for principal in principals:
            times = self._accepted_at.get(principal, ())
            if at in times:  # not if its minute is over, or its token has ended
                self._accepted_at[principal].remove(at)

    def _forget_before(self, moment: float) -> None:
        """Forget who has had no execution since then: most are tokens that have ended."""
        self._accepted_at = {who: times for who, times in self._accepted_at.items() if times and times[-1] > moment}

    def forget(self, principal: str) -> None:
        """Forget the last minute of a token that has ended."""
        self._accepted_at.pop(principal, None)


def _sum_within(bound: Bound, counts: Counter[str]) -> int:
    return sum(count for principal, count in counts.items() if bound.covers(principal))


def _nothing() -> None:
    pass
