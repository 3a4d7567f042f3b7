"""Limits of a caller: the strictest of the server's settings and its policies, and admission control.

`Admission` counts sessions, executions and streams against the policies. Nothing is awaited between a check and its
count, so concurrent requests cannot exceed a limit.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...auth.caller import Bound, Caller
from ...auth.policy import (
    allowed_seconds,
    check_checkpoint_count,
    check_checkpoint_memory,
    check_open_executions,
    check_rate,
    check_session_count,
    check_streams,
    least,
)
from ..kernels.process_limits import NO_PROCESS_LIMITS, ProcessLimits
from ..settings import EngineSettings


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Times and limits of one session; see the traits and policy fields of the same names.

    Parameters
    ----------
    max_session_seconds : float or None
        Longest life of the session; None for no limit.
    process_limits : ProcessLimits
        Limits on the processes of its kernel.
    """

    interrupt_grace_seconds: float
    settle_seconds: float
    kernel_start_timeout_seconds: float
    max_queued_executions: int
    max_session_seconds: float | None = None
    process_limits: ProcessLimits = NO_PROCESS_LIMITS


@dataclass(frozen=True, slots=True)
class EffectiveLimits:
    """Limits on what one caller requests."""

    settings: EngineSettings
    caller: Caller

    def run_seconds(self, requested: float | None) -> float:
        """Return the run time of an execution; a policy refuses a longer one, the server's own limit lowers it.

        Raises
        ------
        PolicyDenied
            If a policy allows less than was requested.
        """
        seconds = self._seconds("max_execution_seconds", requested, self.settings.default_timeout_seconds)
        return min(seconds, self.settings.max_timeout_seconds)

    def idle_seconds(self, requested: float | None) -> float:
        """Return the idle timeout of a session, 0 for none.

        Raises
        ------
        PolicyDenied
            If a policy allows less than was requested.
        """
        return self._seconds("max_idle_seconds", requested, self.settings.session_idle_timeout_seconds)

    def _seconds(self, limit: str, requested: float | None, default: float) -> float:
        for policy in self.caller.policies:
            # Each policy may refuse a requested time; without a request, each lowers the default.
            default = allowed_seconds(policy, limit, requested, default)
        return default if requested is None else requested

    @property
    def output_bytes(self) -> int:
        """Byte cap on an execution's output."""
        policies = (policy.max_output_bytes for policy in self.caller.policies)
        # Never None, since the server's own cap is in the list; `or 0` is for the type checker.
        return least([self.settings.max_output_bytes, *policies]) or 0

    @property
    def queue_seconds(self) -> float | None:
        """Longest wait of an execution in its queue; None for no limit."""
        return _shortest(policy.max_queue_seconds for policy in self.caller.policies)

    @property
    def stored_shares(self) -> dict[str, int | None]:
        """Bytes that the caller's tokens may have in the store, by principal; None for the store's default.

        A policy without a limit has the default, so a token's own limits can only lower it.
        """
        shares: dict[str, int | None] = {}
        for bound in self.caller.bounds:
            # A token with limits of its own has two bounds under one principal.
            shares[bound.principal] = least((shares.get(bound.principal), bound.policy.max_stored_bytes))
        return shares

    def session_limits(self) -> SessionLimits:
        """Return the limits of a session that the caller creates."""
        policies = list(self.caller.policies)
        return SessionLimits(
            self.settings.interrupt_grace_seconds,
            self.settings.settle_seconds,
            self.settings.kernel_start_timeout_seconds,
            self.settings.max_queued_executions,
            _shortest(policy.max_session_seconds for policy in policies),
            ProcessLimits(
                least(policy.max_cpu_seconds for policy in policies),
                least(policy.max_memory_bytes for policy in policies),
            ),
        )


def _shortest(seconds: Iterable[float | None]) -> float | None:
    return min((value for value in seconds if value is not None), default=None)


_MINUTE_SECONDS = 60.0
# Above this many principals, those without an execution in the last minute are dropped.
_MAX_REMEMBERED = 1000


class Ticket:
    """Admission of one execution."""

    def __init__(self, admission: Admission, caller: Caller, admitted_at: float) -> None:
        self._admission = admission
        self._caller = caller
        self._admitted_at = admitted_at

    def leave(self) -> None:
        """Free the execution's place, since it has ended."""
        self._admission.decrement(self._caller)

    def withdraw(self) -> None:
        """Count the execution neither now nor within its minute, since there was none after all."""
        self._admission.decrement(self._caller)
        self._admission.remove_start(self._caller, self._admitted_at)


class Admission:
    """Open executions and streams, and the executions of the last minute, by principal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._accepted_at: dict[str, deque[float]] = {}

    def check_session(self, caller: Caller, principals: Iterable[str]) -> None:
        """Check the number of sessions, of which there are those of `principals` already.

        Raises
        ------
        PolicyLimitReached
            If a policy allows no more.
        """
        # A list, since each bound counts them anew. The owner has no bounds, so nothing is collected.
        principals = list(principals) if caller.bounds else []
        for bound in caller.bounds:
            check_session_count(bound.policy, sum(map(bound.covers, principals)))

    def check_checkpoint(self, caller: Caller, principals: Sequence[str]) -> None:
        """Check the number of checkpoints, of which there are some of sessions of `principals` already.

        Raises
        ------
        PolicyDenied, PolicyLimitReached
            If a policy allows none, or no more.
        """
        for bound in caller.bounds:
            check_checkpoint_count(bound.policy, sum(map(bound.covers, principals)))

    def check_checkpoint_memory(self, caller: Caller, used: Sequence[tuple[str, int]]) -> None:
        """Check the memory of sessions with their checkpoints, before there is one more.

        Parameters
        ----------
        used : sequence of (str, int)
            Owners of sessions, and the bytes that each takes.

        Raises
        ------
        PolicyLimitReached
            If a policy allows no more.
        """
        for bound in caller.bounds:
            check_checkpoint_memory(bound.policy, sum(size for owner, size in used if bound.covers(owner)))

    def enter(self, caller: Caller) -> Ticket:
        """Count one more execution.

        Raises
        ------
        PolicyLimitReached
            If a policy allows no more now, or no more within this minute.
        """
        now = self._clock()
        # All bounds are checked before anything is counted: a refused execution counts for no principal.
        for bound in caller.bounds:
            check_open_executions(bound.policy, _count_within(bound, self._open))
            check_rate(bound.policy, self._wait_for(bound, now))
        if len(self._accepted_at) > _MAX_REMEMBERED:
            self._forget_before(now - _MINUTE_SECONDS)
        for principal in {bound.principal for bound in caller.bounds}:
            # Also for each parent token: `_wait_for` reads one list. Open executions are summed over children instead.
            self._accepted_at.setdefault(principal, deque()).append(now)
        if caller.bounds:
            self._open[caller.principal] += 1
        return Ticket(self, caller, now)

    def enter_stream(self, caller: Caller) -> Callable[[], None]:
        """Count one more streamed answer; return a function that uncounts it, once however often it is called.

        Raises
        ------
        PolicyLimitReached
            If a policy allows no more.
        """
        for bound in caller.bounds:
            check_streams(bound.policy, _count_within(bound, self._streams))
        if not caller.bounds:
            return _nothing
        self._streams[caller.principal] += 1
        # A handler may call `leave` twice: when its connection closes, and when it finishes.
        held = [caller.principal]

        def leave() -> None:
            while held:
                _decrement(self._streams, held.pop())

        return leave

    def _wait_for(self, bound: Bound, now: float) -> float:
        """Return the seconds until the policy allows another execution within a minute."""
        most = bound.policy.max_executions_per_minute
        times = self._accepted_at.get(bound.principal, deque())
        while times and times[0] <= now - _MINUTE_SECONDS:
            times.popleft()
        if most is None or len(times) < most:
            return 0.0
        return times[len(times) - most] + _MINUTE_SECONDS - now

    def decrement(self, caller: Caller) -> None:
        """Uncount an open execution."""
        if caller.bounds:
            _decrement(self._open, caller.principal)

    def remove_start(self, caller: Caller, admitted_at: float) -> None:
        """Uncount an execution within its minute."""
        for principal in {bound.principal for bound in caller.bounds}:
            times = self._accepted_at.get(principal, ())
            if admitted_at in times:  # not if its minute is over, or its token has ended
                self._accepted_at[principal].remove(admitted_at)

    def _forget_before(self, moment: float) -> None:
        """Forget principals without an execution since then: most are tokens that have ended."""
        self._accepted_at = {
            principal: times for principal, times in self._accepted_at.items() if times and times[-1] > moment
        }

    def forget(self, principal: str) -> None:
        """Forget the last minute of a token that has ended."""
        self._accepted_at.pop(principal, None)


def _decrement(counts: Counter[str], principal: str) -> None:
    counts[principal] -= 1
    if not counts[principal]:
        # Tokens come and go for as long as the server runs, so a zero is not kept.
        del counts[principal]


def _count_within(bound: Bound, counts: Counter[str]) -> int:
    return sum(count for principal, count in counts.items() if bound.covers(principal))


def _nothing() -> None:
    pass
