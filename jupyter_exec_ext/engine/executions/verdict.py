"""Verdict on an execution, and the cause for which one is stopped."""

from __future__ import annotations

from dataclasses import dataclass

from ...models import ExecutionState
from ..ports import KernelExit


@dataclass(frozen=True, slots=True)
class StopCause:
    """Cause for which an execution is stopped, with the state in which it ends.

    Parameters
    ----------
    at_once : bool
        Kill without asking the code to stop.
    """

    state: ExecutionState
    reason: str
    at_once: bool = False


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
