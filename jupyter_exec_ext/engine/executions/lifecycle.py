"""Lifecycle of an execution: its states and their transitions as a table, causes to stop it, and its verdict.

An execution is accepted into ``awaiting_approval`` or ``queued`` and ends in exactly one terminal state. Every
change of state goes through `advance`; nothing else assigns one. `protocol.run_states` has the states of a run.

    awaiting_approval ──> queued ──> running ──> ok | error | interrupted | timeout | kernel_died | oom_killed
            │                │          │
            └────────────────┴──────────┴──> cancelled | rejected | server_restarted | token_revoked

An execution that waits can also end as ``timeout``: it was not approved, or its turn did not come, in time. A queued
one can end as ``kernel_died``, too: the kernel it waited for could not be started again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...models import ExecutionState
from ...models import ExecutionState as S
from ..ports import KernelExit

_ANY_TIME = frozenset({S.CANCELLED, S.REJECTED, S.SERVER_RESTARTED, S.TOKEN_REVOKED})

TRANSITIONS: dict[S, frozenset[S]] = {
    S.AWAITING_APPROVAL: _ANY_TIME | {S.QUEUED, S.TIMEOUT},
    S.QUEUED: _ANY_TIME | {S.RUNNING, S.TIMEOUT, S.KERNEL_DIED},
    S.RUNNING: _ANY_TIME | {S.OK, S.ERROR, S.INTERRUPTED, S.TIMEOUT, S.KERNEL_DIED, S.OOM_KILLED},
}


def advance(current: S, new: S) -> S:
    """Return `new` if an execution may go there from `current`.

    Raises
    ------
    ValueError
        If the table has no such transition. It is a defect of the caller: a terminal state is never left.
    """
    if new not in TRANSITIONS.get(current, frozenset()):
        raise ValueError(f"an execution cannot go from {current.value} to {new.value}")
    return new


@dataclass(frozen=True, slots=True)
class StopCause:
    """Cause for which an execution is stopped, with the state in which it ends.

    Parameters
    ----------
    at_once : bool
        Kill without asking the code to stop.
    grace_seconds : float or None
        Longest time for interrupted code to end on a kernel that is not killed; None for the session's own.
    """

    state: ExecutionState
    reason: str
    at_once: bool = False
    grace_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """End of an execution.

    Parameters
    ----------
    preserved : bool
        The session's state is as the code left it; False if the kernel process is gone.
    """

    state: ExecutionState
    preserved: bool
    reason: str | None = None
    exit: KernelExit | None = None
    execution_count: int | None = None
    user_expressions: Mapping[str, Any] = field(default_factory=dict)
