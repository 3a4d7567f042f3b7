"""Record of one run on a server without ``exec/v1``: its states, its numbered events and its execution record."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...models import (
    EndEvent,
    Execution,
    ExecutionState,
    OutputEvent,
    SessionStateLostEvent,
    StateLoss,
    StreamEvent,
    Truncation,
)
from ...protocol.message_translation import RunTranslator
from ...protocol.output_cap import OutputLimiter
from ...protocol.output_joining import OutputFold, finished_record
from ...protocol.records_json import utc_timestamp
from ...protocol.run_states import RunInput, RunStates, Stop
from ..api.steps import Emit, Operation

_RATE_LIMITED = ("IOPub data rate exceeded.", "IOPub message rate exceeded.")
_SKIPPED = "the kernel skipped it because an earlier request of another client failed"


class StandardRun:
    """Record of a run while it lasts.

    Attributes
    ----------
    states : RunStates
    give_up_at : float or None
        When its time is up, on the monotonic clock; known once the kernel has begun.
    cancelled : str or None
        Reason for which a restart or the end of the session has cancelled it.
    incomplete : bool
        Whether output may be missing that was not counted.
    """

    def __init__(
        self,
        kernel_id: str,
        kernel_starts: int,
        code: str,
        language: str | None,
        metadata: Mapping[str, Any],
        timeout_seconds: float | None,
        allow_input: bool,
        max_output_bytes: int,
    ) -> None:
        now = utc_timestamp(time.time())
        self.record = Execution(
            id=f"exe_{uuid.uuid4().hex[:24]}",
            session_id=kernel_id,
            state=ExecutionState.RUNNING,
            code=code,
            created_at=now,
            language=language,
            metadata=metadata,
            timeout_seconds=timeout_seconds,
            allow_input=allow_input,
            started_at=now,
            kernel_starts=kernel_starts,
        )
        self.states = RunStates()
        self.translator = RunTranslator("")
        self._max_output_bytes = max_output_bytes
        self._limiter = OutputLimiter(max_output_bytes)
        self._fold = OutputFold()
        self._seq = 0
        self.incomplete = False
        self.cancelled: str | None = None
        self.give_up_at: float | None = None

    def cancel(self, reason: str) -> None:
        """Cancel the run, unless it has ended or its kernel is being restarted already."""
        if self.states.feed(RunInput.KILL):
            self.cancelled = reason

    def begin(self) -> None:
        """Start the clock, once the kernel has begun: time in which older code keeps it busy does not count."""
        if self.give_up_at is None and self.record.timeout_seconds is not None:
            self.give_up_at = time.monotonic() + self.record.timeout_seconds

    def log(self, event: OutputEvent) -> Operation[None]:
        """Number an event and emit it."""
        self._seq += 1
        event = replace(event, seq=self._seq, at=utc_timestamp(time.time()))
        self._fold.add(event)
        yield Emit(event)

    def take(self, event: OutputEvent) -> Operation[None]:
        """Take in output, within the cap; note where the server says that it dropped some."""
        if isinstance(event, StreamEvent) and event.name == "stderr":
            self.incomplete = self.incomplete or event.text.lstrip().startswith(_RATE_LIMITED)
        for passed in self._limiter.feed(event):
            yield from self.log(passed)

    def note_state_lost(self, lost: StateLoss, kernel_starts: int) -> Operation[None]:
        """Log that the code runs in another kernel than the code before it."""
        self.record = replace(self.record, kernel_starts=kernel_starts, session_state_lost=lost)
        yield from self.log(SessionStateLostEvent(lost.reason, lost.kernel_exit_code, lost.kernel_signal))

    def verdict(self) -> tuple[ExecutionState, bool, str | None]:
        """Return the end of the code by the kernel's messages: state, whether the variables are kept, reason."""
        error = self.translator.error
        if self.states.stop is Stop.INTERRUPTED and error is not None and error.name == "KeyboardInterrupt":
            return ExecutionState.INTERRUPTED, True, "interrupted"
        if self.translator.skipped:
            return self.translator.verdict(), True, _SKIPPED
        return self.translator.verdict(), True, None

    def finish(self, state: ExecutionState, preserved: bool, reason: str | None) -> Operation[Execution]:
        """Emit what is left and the end; return the finished execution."""
        for event in [*self.translator.close(), *self._limiter.close()]:
            yield from self.log(event)
        if self.incomplete:
            before = self._fold.truncated or Truncation(self._max_output_bytes)
            self._fold.truncated = replace(before, upstream=True)
        record = finished_record(
            self.record,
            self._fold,
            state,
            finished_at=utc_timestamp(time.time()),
            execution_count=self.translator.execution_count,
            reason=reason,
            session_state_preserved=preserved,
        )
        yield from self.log(EndEvent(record))
        return record
