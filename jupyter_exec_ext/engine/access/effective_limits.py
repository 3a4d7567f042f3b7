"""Effective limits of a caller: the strictest of the server's settings and the caller's policies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...auth.caller import Caller
from ...auth.policy import allowed_seconds, least
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
            default = allowed_seconds(policy, limit, requested, default)
        return default if requested is None else requested

    @property
    def output_bytes(self) -> int:
        """Byte cap on an execution's output."""
        policies = (policy.max_output_bytes for policy in self.caller.policies)
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
