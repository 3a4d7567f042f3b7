"""Run on a server without ``exec/v1``: its record, and the loop that takes in its messages."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...errors import ConnectionFailed, ConnectionLost, SessionEnded
from ...models import (
    EndEvent,
    Execution,
    ExecutionState,
    InputRequestEvent,
    OutputEvent,
    SessionStateLostEvent,
    StateLoss,
    StreamEvent,
    Truncation,
)
from ...protocol.kernel_messages import KernelMessage
from ...protocol.message_translation import RunTranslator
from ...protocol.output_cap import OutputLimiter
from ...protocol.output_joining import OutputFold, finished_record
from ...protocol.records_json import utc_timestamp
from ...protocol.run_states import Code, Process, RunInput, RunStates, Stop
from ..api.steps import AskInput, Emit, Failure, Operation
from .kernel_websocket import StandardConnection, tells_death

# Jupyter Server drops output above its rate limits. It reports that only as text on stderr, which begins so.
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
        # Code may catch the interrupt, and end as it would have; then its own end counts.
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


# Reply and idle status come on two channels. After one of them, a silence this long ends the wait for the other.
_SETTLE_SECONDS = 5.0
# After a silence this long the server is asked about the kernel. It may keep the socket of one that it has removed.
_LOOK_SECONDS = 10.0
# All that was sent while the user was asked is there already, and is read within this time.
_CATCH_UP_SECONDS = 1.0
# For the event loop to take in the next piece of it.
_CATCH_UP_SILENCE_SECONDS = 0.01


class Follower:
    """Message loop of one run, over as many connections as it takes.

    Parameters
    ----------
    note_loss : callable
        Its operation is carried out once the code is known to run in another kernel than the code before it.
    """

    def __init__(
        self, connection: StandardConnection, run: StandardRun, note_loss: Callable[[], Operation[None]]
    ) -> None:
        self._connection = connection
        self._run = run
        self._states = run.states
        self._note_loss = note_loss
        self._probes: set[str] = set()
        self._quiet_since = 0.0
        self._saw_begin = False
        # The answer to `input()`, until a message shows that the connection on which it was sent leads to the server.
        self._unconfirmed_answer: str | None = None

    def follow(self) -> Operation[None]:
        """Take in messages until the run has ended, was cancelled, or its time (`give_up_at`) is up."""
        run, states = self._run, self._states
        self._quiet_since = time.monotonic()
        while states.end is None and run.cancelled is None:
            now = time.monotonic()
            seconds = _SETTLE_SECONDS if states.is_half_complete else _LOOK_SECONDS
            if states.is_half_complete and now - self._quiet_since > _SETTLE_SECONDS:
                states.feed(RunInput.SILENCE)
                # After a restart, the server may not have had all output of the new kernel.
                if states.code is Code.NO_IDLE:
                    run.incomplete = True
                return
            # After the reply no code is left to stop; only its output may still be on its way.
            if run.give_up_at is not None and states.code is not Code.REPLIED:
                if now >= run.give_up_at:
                    states.feed(RunInput.TIME_UP)
                    return
                seconds = min(seconds, run.give_up_at - now)
            message = yield from self._connection.receive(seconds)
            # Another thread or task may have cancelled the run, and closed the socket, while this one was receiving.
            if run.cancelled is None:
                try:
                    yield from self._take_in(message)
                except SessionEnded:
                    states.feed(RunInput.REMOVE)
        # A server that has just replaced the kernel may begin to read the new one's output in the middle of a run.
        if states.code is Code.COMPLETE and not self._saw_begin and not run.translator.skipped:
            run.incomplete = True

    def _take_in(self, message: KernelMessage | Failure | None) -> Operation[None]:
        if isinstance(message, KernelMessage):
            self._unconfirmed_answer = None
        if isinstance(message, Failure):
            yield from self._unless_unreachable(self._reopen())
        elif message is None:
            yield from self._unless_unreachable(self._look())
        elif tells_death(message):
            is_dead = message.content.get("execution_state") == "dead"
            # If the kernel has said that it runs the code, the code died with it. Otherwise the new process may run it.
            if is_dead or self._states.code is not Code.SENT:
                self._states.feed(RunInput.EXIT)
            else:
                yield from self._ask_restarted()
        elif message.parent_id in self._probes:
            if message.channel == "shell":
                # The kernel answers in turn: its reply to our request was missed, or died with the process before.
                self._states.feed(RunInput.LATER_ANSWER)
        elif message.parent_id == self._run.translator.msg_id:
            self._quiet_since = time.monotonic()
            yield from self._take(message)
        else:
            late = self._connection.late_output.event_of(message)
            if late is not None:
                yield from self._run.take(late)

    def _unless_unreachable(self, operation: Operation[None]) -> Operation[None]:
        """Perform an operation; the run ends as lost if the server cannot be reached for longer than an outage."""
        try:
            yield from operation
        except (ConnectionFailed, ConnectionLost):
            self._states.feed(RunInput.DISCONNECT)

    def _look(self) -> Operation[None]:
        """Ask the server about the kernel where no message comes."""
        if time.monotonic() - self._quiet_since < _LOOK_SECONDS:
            return
        state = yield from self._connection.look()
        # The first question was sent while the new process was starting, and may have been lost.
        if self._states.process is Process.RESTARTED:
            yield from self._ask()
        elif state == "idle" and not self._states.is_half_complete and not self._probes:
            yield from self._reopen()  # the kernel has nothing to do, so the end of the run was missed

    def _reopen(self) -> Operation[None]:
        """Connect again and ask something: the answer comes after all that is still to come."""
        self._run.incomplete = True  # messages under way on the old connection are not replayed
        yield from self._connection.disconnect()
        yield from self._connection.open()
        yield from self._send_answer()
        yield from self._ask()

    def _ask(self) -> Operation[None]:
        sent = yield from self._connection.probe()
        if not isinstance(sent, Failure):  # else the next look at the connection shows it
            self._probes.add(sent)

    def _ask_restarted(self) -> Operation[None]:
        """Find out which process runs the code, of which nothing came before the server reported a restart.

        If the old process had ended before the request was sent, the new one runs it. If the request was sent to the
        old process, the new one does not know it. The new one answers in turn, so its answer to a question decides.
        """
        self._states.feed(RunInput.RESTART)
        self._connection.note_restart()
        yield from self._ask()

    def _take(self, message: KernelMessage) -> Operation[None]:
        self._run.begin()
        self._saw_begin = self._saw_begin or message.msg_type == "execute_input"
        event = self._run.translator.feed(message)
        if message.channel == "shell":
            self._connection.note_sender(message)
        if self._connection.lost is not None:
            yield from self._note_loss()
        if event is None:
            return
        yield from self._run.take(event)
        if isinstance(event, InputRequestEvent):
            yield from self._answer(event)

    def _answer(self, event: InputRequestEvent) -> Operation[None]:
        """Ask the user for the answer to `input()` and send it, again after a cut."""
        value: str = yield AskInput(event)
        # The translator drops input requests while one waits, so without the reset a second `input()` would hang.
        self._run.translator.waiting_for_input = False
        # While the user was asked, no ping of the server was answered. So it may have closed the connection. That shows
        # only after all that it sent before, and the answer would be lost without an error.
        yield from self._catch_up()
        self._unconfirmed_answer = value
        yield from self._send_answer()

    def _catch_up(self) -> Operation[None]:
        """Take in what has come already."""
        give_up_at = time.monotonic() + _CATCH_UP_SECONDS  # a thread of the code may print all the time
        while self._states.end is None and self._run.cancelled is None and time.monotonic() < give_up_at:
            message = yield from self._connection.receive(_CATCH_UP_SILENCE_SECONDS)
            if message is None:
                return
            yield from self._take_in(message)

    def _send_answer(self) -> Operation[None]:
        if self._unconfirmed_answer is not None:  # if this fails, the next message shows it, and it is sent again
            yield from self._connection.send("stdin", "input_reply", {"value": self._unconfirmed_answer})
