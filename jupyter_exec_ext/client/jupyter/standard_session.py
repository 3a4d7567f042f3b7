"""Session on a server without ``exec/v1``, by the standard kernels API and its WebSocket.

A plain Jupyter Server, Kernel Gateway or Enterprise Gateway gives the same results: the same translator reads the
messages and the same fold makes the outputs. The client does three things that the server does elsewhere. It applies
the deadline: interrupt, wait, restart. It reconnects with the same session id, for which Jupyter replays the missed
messages. It marks output as incomplete if the server's rate limit dropped some or a cut connection lost some.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...errors import ConnectionFailed, ConnectionLost, ExecError, SessionEnded
from ...models import ErrorEvent, Execution, ExecutionState, KernelSpecInfo, StateEvent
from ...protocol.kernel_messages import execute_request
from ...protocol.languages import source_for_kernel
from ...protocol.message_translation import RunTranslator
from ...protocol.run_states import End, RunInput, Stop
from ..api.retries import RetryPolicy
from ..api.steps import Failure, Operation, undo_on_error
from .kernel_websocket import StandardConnection
from .kernels_api import KernelsApi
from .standard_run import Follower, StandardRun

_Verdict = tuple[ExecutionState, bool, str | None]


class StandardSession:
    """A kernel of a server without ``exec/v1``, used as a session. One run at a time.

    Interrupting, restarting and closing do not wait for the run: they work on the server at once, and end it.

    Parameters
    ----------
    max_output_bytes : int
        The output of an execution that is kept; see `protocol.output_cap`.
    interrupt_grace_seconds : float
        How long interrupted code may take to end before its kernel is restarted.
    trusted_seconds : float, optional
        How long the connection may be unused before it is checked anew; without it, as long as a server's may be.
    """

    def __init__(
        self,
        api: KernelsApi,
        kernel_id: str,
        spec: KernelSpecInfo,
        *,
        max_output_bytes: int,
        interrupt_grace_seconds: float = 2.0,
        trusted_seconds: float | None = None,
    ) -> None:
        self.api = api
        self.kernel_id = kernel_id
        self.spec = spec
        self.kernel_starts = 1
        self._max_output_bytes = max_output_bytes
        self._grace = interrupt_grace_seconds
        self._connection = StandardConnection(api, kernel_id, trusted_seconds)
        self._run: StandardRun | None = None
        self._has_state = False

    def connect(self) -> Operation[None]:
        """Connect to the kernel and wait until it answers; it says its language where its kernelspec does not."""
        yield from self._connection.connect()
        if not self.spec.language:
            self.spec = replace(self.spec, language=self._connection.language)

    # --- running code ---

    def run(
        self,
        code: str,
        *,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        allow_input: bool = False,
    ) -> Operation[Execution]:
        """Run code, emitting its events, and return the finished execution."""
        source = source_for_kernel(code, language, self.spec.language)
        yield from self._connection.connect()
        run = StandardRun(
            self.kernel_id,
            self.kernel_starts,
            code,
            language,
            metadata or {},
            timeout_seconds,
            allow_input,
            self._max_output_bytes,
        )
        self._run = run
        try:
            return (yield from undo_on_error(self._carry_out(run, source), self._abandon, spared=(ExecError,)))
        finally:
            if self._run is run:  # a stream that was left may be closed later than the next run begins
                self._run = None

    def _abandon(self) -> Operation[None]:
        yield self.api.interrupt_once(self.kernel_id)  # its result is not awaited any more
        # A signal's exception (Ctrl-C) may have come in the middle of a message: what follows would be misread.
        yield from self._connection.disconnect()

    def _carry_out(self, run: StandardRun, source: str) -> Operation[Execution]:
        yield from run.log(StateEvent(ExecutionState.RUNNING))
        yield from self._note_loss(run)
        for late in self._connection.late_output.take():
            yield from run.take(late)
        request = execute_request(source, allow_input=run.record.allow_input)
        sent = yield from self._connection.send("shell", "execute_request", request)
        if not isinstance(sent, Failure):
            # The translator needs the id of the request. No message is read before this, so none is missed.
            run.translator = RunTranslator(sent, allow_input=run.record.allow_input, states=run.states)
            verdict = yield from self._to_the_end(run)
        # A restart or the end of the session closed the socket after `connect`.
        elif run.cancelled is not None:
            verdict = yield from self._verdict(run)
        else:
            raise ConnectionLost(f"the code may or may not have been sent: {sent.message}")
        self._has_state = verdict[1]
        if run.cancelled is None:  # else its kernel is gone, and what is left of it is of no interest
            self._connection.late_output.remember(run.translator.msg_id, run.record.id)
        return (yield from run.finish(*verdict))

    def _note_loss(self, run: StandardRun) -> Operation[None]:
        """Log that the kernel ended while nothing ran, if it did and had anything to lose."""
        lost, self._connection.lost = self._connection.lost, None
        if lost is not None:
            self.kernel_starts += 1
            # A kernel in which nothing has run had no variables to lose.
            if self._has_state:
                yield from run.note_state_lost(lost, self.kernel_starts)

    def _to_the_end(self, run: StandardRun) -> Operation[_Verdict]:
        follower = Follower(self._connection, run, partial(self._note_loss, run))
        yield from follower.follow()
        if run.states.stop is not Stop.STOPPING:
            return (yield from self._verdict(run))
        reason = f"its time limit of {run.record.timeout_seconds:g} s was reached"
        try:
            yield from self._connection.control(self.api.interrupt(self.kernel_id))
            # The second deadline: interrupted code may catch KeyboardInterrupt and go on.
            run.give_up_at = time.monotonic() + self._grace
            yield from follower.follow()
            if run.cancelled is not None:
                return (yield from self._verdict(run))
            if run.states.end is End.COMPLETE:
                return ExecutionState.TIMEOUT, True, reason
            if run.states.end is End.LOST:
                return (yield from self._verdict(run))
            # A kernel that died in the grace period is restarted by the server itself.
            if run.states.end is None:
                yield from self._connection.control(self.api.restart(self.kernel_id))
        except SessionEnded:
            run.states.feed(RunInput.REMOVE)
        except (ConnectionFailed, ConnectionLost):
            run.states.feed(RunInput.DISCONNECT)
            return (yield from self._verdict(run))
        self._other_kernel()
        return ExecutionState.TIMEOUT, False, f"{reason}; the kernel had to be restarted"

    def _verdict(self, run: StandardRun) -> Operation[_Verdict]:
        """Return the state in which a run ends, whether the variables are kept, and the reason."""
        if run.cancelled is not None:
            return ExecutionState.CANCELLED, False, run.cancelled
        if run.states.end is End.COMPLETE:
            return run.verdict()
        if run.states.end is End.LOST:
            reason = "the connection was lost while the code ran; how it ended, or whether it still runs, is not known"
            yield from run.log(ErrorEvent("ConnectionLost", reason))
            return ExecutionState.ERROR, True, reason
        reason = "the kernel died" if run.states.end is End.DIED else "the server has removed the kernel"
        yield from run.log(ErrorEvent("KernelDied", reason))
        self._other_kernel()
        return ExecutionState.KERNEL_DIED, False, reason

    def _other_kernel(self) -> None:
        self.kernel_starts += 1
        self._connection.distrust()

    # --- control ---

    def interrupt(self) -> Operation[None]:
        """Interrupt the running code."""
        if self._run is not None:
            self._run.states.feed(RunInput.INTERRUPT)
        yield from self._connection.control(self.api.interrupt(self.kernel_id))

    def restart(self) -> Operation[None]:
        """Give the session a fresh kernel; running code ends as cancelled."""
        self._connection.check_alive()
        # Before the disconnect, which wakes the run: one that is not cancelled would connect again.
        self._cancel_run("the session was restarted")
        # New runs wait meanwhile, since the kernel that answers may still be the old one.
        self._connection.restarts_under_way += 1
        try:
            yield from self._connection.disconnect()
            yield from self._connection.control(self.api.restart(self.kernel_id))
            self.kernel_starts += 1
            self._has_state = False
            self._connection.distrust()
            # Output that the old kernel sent late does not belong to the first run of the new one.
            self._connection.late_output.clear()
        finally:
            self._connection.restarts_under_way -= 1

    def close(self, *, hurried: bool = False) -> Operation[None]:
        """Close the WebSocket and shut the kernel down; running code ends as cancelled."""
        # The first reason stays: the server may have removed the kernel before.
        self._connection.ended = self._connection.ended or "the session was closed"
        self._cancel_run("the session was closed")
        yield from self._connection.disconnect()
        yield from (self.api.hurried if hurried else self.api).delete(self.kernel_id)

    def _cancel_run(self, reason: str) -> None:
        if self._run is not None:
            self._run.cancel(reason)


def open_standard_session(
    kernel_name: str | None,
    env: Mapping[str, str] | None,
    retry: RetryPolicy,
    max_output_bytes: int,
    trusted_seconds: float | None = None,
) -> Operation[StandardSession]:
    """Start a kernel through the standard API and connect to it."""
    api = KernelsApi(retry)
    spec = yield from api.find(kernel_name)
    kernel_id = yield from api.start(spec.name, env)
    session = StandardSession(api, kernel_id, spec, max_output_bytes=max_output_bytes, trusted_seconds=trusted_seconds)
    yield from undo_on_error(session.connect(), partial(session.close, hurried=True))  # or the kernel would stay
    return session
