"""What was asked of an engine and when, in whose name, and what became of it; times are the simulated loop's."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_exec_ext.auth.caller import Caller
from jupyter_exec_ext.engine.executions.live_execution import ExecutionHandle
from jupyter_exec_ext.models import ApprovalAnswer, Execution, ExecutionRequest, ExecutionState

LIMIT_SECONDS = 1.0
NEVER = float("inf")


@dataclass
class Bearer:
    """In whose name something is asked: the owner, or a token until it ends, between the first moment and the last."""

    caller: Caller
    expires_at: float = NEVER
    revoking_at: float = NEVER
    revoked_at: float = NEVER
    queue_seconds: float = NEVER

    @property
    def may_end_at(self) -> float:
        return min(self.expires_at, self.revoking_at)

    @property
    def ended_at(self) -> float:
        return min(self.expires_at, self.revoked_at)


@dataclass
class Asked:
    """One request, from when it was made to when it was answered."""

    kind: str
    session: str
    at: float
    target: Submission | None = None
    answer: ApprovalAnswer | None = None
    bearer: Bearer | None = None
    answered_at: float = NEVER
    refused: bool = False

    def __str__(self) -> str:
        what = f" {self.target.code!r}" if self.target else ""
        what += f", {self.answer}" if self.answer else ""
        what += ", refused" if self.refused else ""
        return f"{self.at:.6f}-{self.answered_at:.6f} {self.session[-4:]} {self.kind}{what}"

    def overlaps(self, start: float, end: float) -> bool:
        return self.at <= end and start <= self.answered_at


@dataclass
class Submission(Asked):
    """A request to run code, and what became of it."""

    code: str = ""
    asks: bool = False
    handle: ExecutionHandle | None = None
    finished_at: float = NEVER
    seen: ExecutionState = ExecutionState.AWAITING_APPROVAL

    def __str__(self) -> str:
        end = f"{self.record.state.value} at {self.finished_at:.6f}, {self.record.approval}" if self.handle else ""
        return f"{super().__str__()} {self.code!r}: {end or 'refused'}"

    @property
    def record(self) -> Execution:
        assert self.handle is not None
        return self.handle.record

    @property
    def word(self) -> str:
        """What the code does that is to run."""
        return self.record.code.partition(" ")[0]

    @property
    def lasts_until(self) -> float:
        return self.finished_at if self.handle else self.answered_at

    @property
    def limit_seconds(self) -> float:
        # Code that waits for approval may be replaced by any.
        return LIMIT_SECONDS if self.asks or self.code.startswith(("wait", "stubborn")) else 60.0

    @property
    def request(self) -> ExecutionRequest:
        return ExecutionRequest(self.code, timeout_seconds=self.limit_seconds)
