"""One execution on one kernel, from the request to the verdict.

The reasoning, in order of what can happen:

- the code ends: reply and idle both come. Where only one comes, the wait for the other is bounded by a silence;
- the kernel process dies: the supervisor says so; what it had published by then is still read;
- the deadline passes, or somebody stops the execution: interrupt, a grace period, then kill. The verdict says
  truthfully whether the session's state survived.

The deadline is total. It counts only while the code runs: once the reply has come, nothing is left to stop. Every wait
has a bound that nothing the kernel sends can move; what is still to be read when it is reached is left out.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...errors import NoInputRequested
from ...models import ErrorEvent, ExecutionState, OutputEvent
from ...protocol.kernel_messages import KernelMessage, execute_request
from ...protocol.message_translation import RunTranslator
from ..kernels.death_report import Death, plain_death
from ..kernels.kernel_connection import KernelConnection
from ..ports import Kernel, KernelExit
from .watchdog import ends_within

_QUIET_AFTER_DEATH_SECONDS = 0.03
_LAST_WORDS_SECONDS, _MOST_LAST_WORDS_SECONDS = 0.5, 3.0
_MOST_SETTLE_SECONDS = 60.0
_INTERRUPT_SECONDS = 2.0
_START_WAIT_SECONDS = 0.5
_EARLY_SECONDS = 0.1
_AGAIN_SECONDS = 0.2
_AFTER_IDLE = "output came after the kernel had reported idle; later output is shown with the next execution"


@dataclass(frozen=True, slots=True)
class StopCause:
    """Why an execution is being stopped, and so the state it ends in.

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
    """How an execution ended.

    Parameters
    ----------
    preserved : bool
        The session's state is what the code left behind; False if the kernel process is gone.
    """

    state: ExecutionState
    preserved: bool
    reason: str | None = None
    exit: KernelExit | None = None
    execution_count: int | None = None


class Signal(Enum):
    """What a run may wait for."""

    COMPLETE = 1
    EXITED = 2
    STOP = 3
    TIME_IS_UP = 4
    STARTED = 5


class KernelRun:
    """Run one piece of code; messages, process exit and stop requests are fed in from outside.

    Parameters
    ----------
    emit : callable
        Gets the output events as they come.
    interrupt_grace_seconds : float
        How long interrupted code may take to end before it is killed.
    settle_seconds : float
        How long the kernel may stay silent between reply and idle.
    explain : coroutine function, optional
        Finds out why the kernel died; without it, the exit has to speak for itself.
    """

    def __init__(
        self,
        kernel: Kernel,
        connection: KernelConnection,
        emit: Callable[[OutputEvent], None],
        *,
        interrupt_grace_seconds: float,
        settle_seconds: float,
        explain: Callable[[KernelExit], Awaitable[Death]] | None = None,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._kernel = kernel
        self._connection = connection
        self._emit = emit
        self._grace = interrupt_grace_seconds
        self._settle = settle_seconds
        self._explain = explain
        self._log = log
        self._translator = RunTranslator("")
        self._request: Mapping[str, Any] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._settle_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._ends_by = math.inf
        self._settle_by = math.inf
        self._started = asyncio.Event()
        self._started_at = 0.0
        self._settled = False
        self._over = False
        self._time_is_up = False
        self._interrupted = False
        self._stop: StopCause | None = None
        self._exit: KernelExit | None = None
        self._last_message_at = 0.0

    # --- fed from outside ---

    @property
    def request_id(self) -> str:
        """The id of the request that was sent."""
        return self._translator.msg_id

    def on_message(self, message: KernelMessage) -> bool:
        """Take in a message from the kernel; return False for one that belongs to another request."""
        if message.parent_id != self._translator.msg_id:
            return False
        event = self._translator.feed(message)
        if event is not None:
            self._emit(event)
        self._last_message_at = self._loop.time()
        self._watch_silence()
        if self._translator.started and not self._started.is_set():
            self._started_at = self._loop.time()
            self._started.set()
            self._wake()
        elif self._translator.complete or self._translator.idle:
            self._wake()
        return True

    def on_exit(self, exit_: KernelExit) -> None:
        """Take in that the kernel process has ended."""
        self._exit = exit_
        self._wake()

    def stop(self, cause: StopCause) -> None:
        """Stop the execution; the first cause counts, but a later one may insist on doing it at once."""
        if self._stop is None:
            self._stop = cause
        elif cause.at_once:
            self._stop = StopCause(self._stop.state, self._stop.reason, at_once=True)
        self._wake()

    async def interrupt(self) -> None:
        """Ask the code to stop, once, with no more consequences than that."""
        await self._until_started()
        if not (self._over or self._translator.replied or self._translator.idle):  # or it hits the code that runs next
            self._interrupted = True
            await self._interrupt_kernel()

    async def _interrupt_kernel(self) -> None:
        if self._kernel.interrupts_by_message:
            self._connection.send("control", "interrupt_request", {})
        else:
            await self._kernel.interrupt()

    async def _until_started(self) -> None:
        """Wait, for a bounded time, until an interrupt reaches the code; before that it would be lost."""
        try:
            await asyncio.wait_for(self._started.wait(), _START_WAIT_SECONDS)
        except asyncio.TimeoutError:
            self._log.debug("kernel %s has not said that it runs the code", self._kernel.kernel_id)

    def answer_input(self, value: str) -> None:
        """Answer a pending ``input()``.

        Raises
        ------
        NoInputRequested
        """
        if not self._translator.waiting_for_input:
            raise NoInputRequested("the execution is not waiting for input")
        self._translator.waiting_for_input = False
        self._connection.send("stdin", "input_reply", {"value": value})

    # --- the run ---

    async def run(self, code: str, *, allow_input: bool, timeout_seconds: float | None) -> Verdict:
        """Send the code and see it to its end."""
        self._request = execute_request(code, allow_input=allow_input)
        if timeout_seconds is not None:
            self._ends_by = self._loop.time() + timeout_seconds + self._grace + self._settle
        self._send()
        try:
            verdict = await self._to_the_end(timeout_seconds)
        finally:
            self._over = True
            self._started.set()  # who waits for that need not wait any longer
            for pending in (self._settle_timer, self._end_timer):
                if pending is not None:
                    pending.cancel()
        for event in self._translator.close():
            self._emit(event)
        return verdict

    def _send(self) -> None:
        sent = self._connection.send("shell", "execute_request", self._request)
        self._translator = RunTranslator(sent, allow_input=bool(self._request["allow_stdin"]))

    async def _to_the_end(self, timeout_seconds: float | None) -> Verdict:
        signal = await self._until(timeout_seconds, stoppable=True)
        if signal is Signal.COMPLETE:
            return self._completed()
        if signal is Signal.EXITED:
            return await self._died()
        if self._stop is None:
            self._stop = StopCause(ExecutionState.TIMEOUT, f"its time limit of {timeout_seconds:g} s was reached")
        return await self._stopped()

    async def _until(
        self, timeout_seconds: float | None, *, stoppable: bool = False, start_counts: bool = False
    ) -> Signal:
        """Wait for the end of the run, for the time to be up or, if they count, for a stop or the code's start."""
        self._time_is_up = False
        timer = None if timeout_seconds is None else self._loop.call_later(timeout_seconds, self._on_timer)
        try:
            while True:
                signal = self._pending(stoppable)
                if signal is not None:
                    return signal
                if start_counts and self._started.is_set():
                    return Signal.STARTED
                self._waiter = self._loop.create_future()
                await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _pending(self, stoppable: bool) -> Signal | None:
        # Once it is being stopped, an idle kernel is enough: interrupted too early, it sends no reply.
        if self._translator.complete or self._settled or (self._stop is not None and self._translator.idle):
            return Signal.COMPLETE
        if self._exit is not None:
            return Signal.EXITED
        if self._stop is not None and (stoppable or self._stop.at_once):
            return Signal.STOP
        if self._time_is_up and not self._translator.replied:
            return Signal.TIME_IS_UP
        return None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _on_timer(self) -> None:
        self._time_is_up = True
        if self._translator.replied:  # nothing to stop; output that goes on and on does not make it a run
            self._end_timer = self._loop.call_later(self._settle, self._on_silence)
        self._wake()

    def _watch_silence(self) -> None:
        """Bound the wait for the second half of completion; any message of ours starts the bound anew."""
        if self._translator.replied is self._translator.idle:
            return
        now = self._loop.time()
        if self._settle_timer is not None:
            self._settle_timer.cancel()
        else:
            self._settle_by = min(now + _MOST_SETTLE_SECONDS, max(self._ends_by, now + self._settle))
        bound = min(self._settle, _START_WAIT_SECONDS) if self._interrupted else self._settle
        self._settle_timer = self._loop.call_at(min(now + bound, self._settle_by), self._on_silence)

    def _on_silence(self) -> None:
        if self._connection.reading and self._loop.time() < self._settle_by:  # so much has come that it takes time
            self._watch_silence()
            return
        self._settled = True
        self._wake()

    # --- verdicts ---

    def _completed(self) -> Verdict:
        if self._stop is not None and not (self._translator.complete or self._settled):
            return self._ended(self._stop.state, self._stop.reason)
        state = self._translator.verdict()
        error, reason = self._translator.error, None
        if self._interrupted and (error is None or error.name == "KeyboardInterrupt"):
            # With the interrupt between request and code, IPython ends the run without a reply.
            if error is not None or not self._translator.replied:
                state, reason = ExecutionState.INTERRUPTED, "interrupted"
        elif state is ExecutionState.CANCELLED:
            reason = "the kernel skipped it because an earlier request of another client failed"
        elif not self._translator.replied:
            reason = "the kernel did not report the result"
            if state is ExecutionState.OK:  # nobody can know
                state = ExecutionState.ERROR
                self._emit(ErrorEvent("ResultUnknown", reason))
        elif not self._translator.idle:
            reason = "the kernel did not report idle"
        elif self._translator.has_output_after_idle:
            reason = _AFTER_IDLE
        return self._ended(state, reason)

    def _ended(self, state: ExecutionState, reason: str | None) -> Verdict:
        """Return the verdict on code that has ended; its kernel may have ended right after it."""
        count = self._translator.execution_count
        return Verdict(state, self._exit is None, reason, self._exit, execution_count=count)

    async def _died(self) -> Verdict:
        await self._last_words()
        assert self._exit is not None
        death = plain_death(self._exit) if self._explain is None else await self._explain(self._exit)
        self._emit(ErrorEvent("KernelDied", death.reason, death.traceback))
        return Verdict(death.state, False, death.reason, self._exit, execution_count=self._translator.execution_count)

    async def _stopped(self) -> Verdict:
        """Interrupt, wait, kill."""
        assert self._stop is not None
        if not self._stop.at_once:
            signal = await self._interrupt_and_wait()
            if signal is Signal.COMPLETE:
                return self._ended(self._stop.state, self._stop.reason)
        reason = f"{self._stop.reason}; the kernel had to be killed"
        if self._exit is None:
            await self._kernel.kill()
        else:
            reason = f"{self._stop.reason}; the kernel {self._exit}"
        await self._last_words()
        return Verdict(self._stop.state, False, reason, self._exit, execution_count=self._translator.execution_count)

    async def _interrupt_and_wait(self) -> Signal:
        await self._until_started()
        early = self._loop.time() - self._started_at < _EARLY_SECONDS
        await self._send_interrupt()
        if not early:
            return await self._until(self._grace)
        # Between saying that it runs the code and running it, a kernel loses an interrupt.
        signal = await self._until(_AGAIN_SECONDS)
        if signal is not Signal.TIME_IS_UP:
            return signal
        await self._send_interrupt()
        return await self._until(self._grace)

    async def _send_interrupt(self) -> None:
        try:
            await ends_within(_INTERRUPT_SECONDS, self._interrupt_kernel())
        except Exception:
            self._log.warning("could not interrupt kernel %s", self._kernel.kernel_id, exc_info=True)

    async def _last_words(self) -> None:
        """Let what a dead kernel had already published be read."""
        quiet_since = self._loop.time()
        give_up_at, read_until = quiet_since + _LAST_WORDS_SECONDS, quiet_since + _MOST_LAST_WORDS_SECONDS
        while self._loop.time() < (read_until if self._connection.reading else give_up_at):
            await asyncio.sleep(_QUIET_AFTER_DEATH_SECONDS)
            quiet = self._loop.time() - max(self._last_message_at, quiet_since) >= _QUIET_AFTER_DEATH_SECONDS
            if quiet and not self._connection.reading:
                return
