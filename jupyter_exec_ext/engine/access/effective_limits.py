"""What a caller gets, of what the server allows and all of the caller's policies do."""

from __future__ import annotations

from collections.abc import Iterable

from ...auth.caller import Caller
from ...auth.policy import allowed_seconds, least
from ..kernels.process_limits import ProcessLimits
from ..sessions.live_session import SessionSettings
from ..settings import EngineSettings


def run_seconds(settings: EngineSettings, caller: Caller, asked: float | None) -> float:
    """Return the run time of an execution; raises `PolicyDenied` if that is not what was asked for.

    The server's own limit lowers what was asked for.
    """
    seconds = _seconds(caller, "max_execution_seconds", asked, settings.default_timeout_seconds)
    return min(seconds, settings.max_timeout_seconds)


def idle_seconds(settings: EngineSettings, caller: Caller, asked: float | None) -> float:
    """Return how long a session may be idle, 0 for ever; raises `PolicyDenied` if that is not what was asked for."""
    return _seconds(caller, "max_idle_seconds", asked, settings.session_idle_timeout_seconds)


def output_bytes(settings: EngineSettings, caller: Caller) -> int:
    """Return how much of an execution's output is kept."""
    return least([settings.max_output_bytes, *(policy.max_output_bytes for policy in caller.policies)]) or 0


def stored_shares(caller: Caller) -> dict[str, int | None]:
    """Return how many bytes the caller's tokens may have in the store, by principal; None for the store's default.

    A policy without a limit is one with the default, so a token's own limits can only lower it.
    """
    shares: dict[str, int | None] = {}
    for bound in caller.bounds:
        mine = bound.policy.max_stored_bytes
        shares[bound.principal] = least((shares.get(bound.principal), mine))
    return shares


def queue_seconds(caller: Caller) -> float | None:
    """Return how long an execution may wait for its turn; None for as long as it takes."""
    return _shortest(policy.max_queue_seconds for policy in caller.policies)


def session_settings(settings: EngineSettings, caller: Caller) -> SessionSettings:
    """Return what holds for a session that the caller creates."""
    return SessionSettings(
        settings.interrupt_grace_seconds,
        settings.settle_seconds,
        settings.kernel_start_timeout_seconds,
        settings.max_queued_executions,
        _shortest(policy.max_session_seconds for policy in caller.policies),
        ProcessLimits(
            least(policy.max_cpu_seconds for policy in caller.policies),
            least(policy.max_memory_bytes for policy in caller.policies),
        ),
    )


def _seconds(caller: Caller, limit: str, asked: float | None, default: float) -> float:
    for policy in caller.policies:
        default = allowed_seconds(policy, limit, asked, default)
    return default if asked is None else asked


def _shortest(seconds: Iterable[float | None]) -> float | None:
    return min((value for value in seconds if value is not None), default=None)
