"""Run of one execution on a kernel of the session's own: from the request to the verdict.

`protocol.run_states` decides what follows from what; this module feeds it and acts. `shared_run` does the same on a
kernel that its user goes on using.

The time limit counts only while the code runs: once the reply has come, nothing is left to stop. Every wait has a
bound that nothing the kernel sends can move. Messages that are still unread at that bound are left out.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import NoInputRequested
from ...models import ErrorEvent, ExecutionState
from ...protocol.kernel_messages import KernelMessage, execute_request
from ...protocol.message_translation import RunTranslator
from ...protocol.run_states import Code, End, RunInput, RunStates, Stop
from ..concurrency import ends_within
from ..kernels.death_report import plain_death
from ..kernels.kernel_connection import KernelConnection
from ..ports import Kernel, KernelExit
from .lifecycle import StopCause, Verdict
from .run_interfaces import DeathExplainer, OutputSink

_QUIET_AFTER_DEATH_SECONDS = 0.03
_LAST_WORDS_SECONDS, _MOST_LAST_WORDS_SECONDS = 0.5, 3.0  # the second while messages are still being read
_MOST_SETTLE_SECONDS = 60.0  # from the first half of completion on, however much output still comes
_INTERRUPT_SECONDS = 2.0  # a provisioner's interrupt may never return
_START_WAIT_SECONDS = 0.5  # then an interrupt is sent, although the kernel has not reported that it runs the code
_EARLY_SECONDS = 0.1  # so soon after the start of the code, an interrupt may have been lost
_AGAIN_SECONDS = 0.2
# Longer, since nothing follows if the code goes on: a second interrupt must not come while the first one is reported.
_AGAIN_PLAIN_SECONDS = 1.0
_AFTER_IDLE = "output came after the kernel had reported idle; later output is shown with the next execution"


class KernelRun:
    """Run of one piece of code; messages, process exit and stop requests are fed in from outside.

    Parameters
    ----------
    output : OutputSink
        Gets the output events as they come.
    interrupt_grace_seconds : float
        Time for interrupted code to end, before its kernel is killed.
    settle_seconds : float
        Longest silence of the kernel between reply and idle.
    deaths : DeathExplainer, optional
        Finds out why the kernel died; without it, only the exit is reported.
    """

    def __init__(
        self,
        kernel: Kernel,
        connection: KernelConnection,
        output: OutputSink,
        *,
        interrupt_grace_seconds: float,
        settle_seconds: float,
        deaths: DeathExplainer | None = None,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self.states = RunStates()
        self._loop = asyncio.get_running_loop()
        self._kernel = kernel
        self._connection = connection
        self._output = output
        self._grace = interrupt_grace_seconds
        self._settle = settle_seconds
        self._deaths = deaths
        self._log = log
        self._translator = RunTranslator("")  # its request has no id before it is sent
        self._request: Mapping[str, Any] = {}
        self._cause: StopCause | None = None
        self._exit: KernelExit | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._silence_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._ends_by = self._settle_by = math.inf
        self._started_at: float | None = None
        self._last_message_at = 0.0

    # --- fed from outside ---

    @property
    def request_id(self) -> str:
        """The id of the request that was sent."""
        return self._translator.msg_id

    def on_message(self, message: KernelMessage) -> bool:
        """Handle a message from the kernel; return False for one that belongs to another request."""
        if message.parent_id != self._translator.msg_id:
            return False
        before = self.states.code
        event = self._translator.feed(message)
        if event is not None:
            self._output.emit(event)
        self._last_message_at = self._loop.time()
        if self._started_at is None and self.states.code is Code.RUNNING:
            self._started_at = self._last_message_at
            self._output.note_begin(self._translator.execution_count)
        if self.states.is_half_complete:
            self._watch_silence()
        if self.states.code is not before:  # not at each message: a flood would wake the run each time
            self._wake()
        return True

    def on_exit(self, exit_: KernelExit) -> None:
        """Note that the kernel process has ended."""
        self._exit = exit_
        self._feed(RunInput.EXIT)

    def stop(self, cause: StopCause) -> None:
        """Stop the execution; the first cause counts, but a later one may insist on doing it at once."""
        if self._cause is None:
            self._cause = cause
        self._feed(RunInput.KILL if cause.at_once else RunInput.STOP)

    async def interrupt(self) -> None:
        """Ask the code to stop, with no more consequences than that."""
        await self._until_started()
        if self.states.can_be_interrupted:
            is_early = self._is_early()
            self._feed(RunInput.INTERRUPT)
            await self._interrupt_kernel()
            await self._repeat_interrupt(is_early, _AGAIN_PLAIN_SECONDS)

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

    async def run(self, code: str, *, allow_input: bool, timeout_seconds: float | None, **asked: Any) -> Verdict:
        """Send the code, with what else is `asked` of `execute_request`, and follow it to its end."""
        if timeout_seconds is not None:
            self._ends_by = self._loop.time() + timeout_seconds + self._grace + self._settle
        self._request = execute_request(code, allow_input=allow_input, **asked)
        self._note_sent(self._connection.send("shell", "execute_request", self._request))
        try:
            verdict = await self._follow(timeout_seconds)
        finally:
            self._feed(RunInput.CLOSE)  # an interrupt that waits for the start waits no longer
            for timer in (self._silence_timer, self._end_timer):
                if timer is not None:
                    timer.cancel()
        for event in self._translator.close():
            self._output.emit(event)
        return verdict

    def _note_sent(self, msg_id: str) -> None:
        self._translator = RunTranslator(msg_id, allow_input=bool(self._request["allow_stdin"]), states=self.states)

    async def _follow(self, timeout_seconds: float | None) -> Verdict:
        """Wait for the end of the code, and stop it when its time is up."""
        if not await self._until(lambda: self.states.is_decided, timeout_seconds):
            self._note_time_up()
            if self._cause is None and self.states.is_stopping:  # not if it had replied: no code is left to stop
                reason = f"its time limit of {timeout_seconds:g} s was reached"
                self._cause = StopCause(ExecutionState.TIMEOUT, reason)
            if self.states.code is Code.STOPPED:  # code can forge the idle status, and go on
                await self._try_interrupt()
            await self._until(lambda: self.states.is_decided)
        if self.states.end is End.COMPLETE:
            return self._completed()
        if self.states.end is End.DIED:
            return await self._died()
        assert self._cause is not None
        return await self._stopped(self._cause)

    async def _until(self, is_reached: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until a state is reached; return False if the time is up first."""
        is_late = False

        def expire() -> None:
            nonlocal is_late
            is_late = True
            self._wake()

        timer = None if seconds is None else self._loop.call_later(seconds, expire)
        try:
            while not is_reached():
                if is_late:
                    return False
                waiter: asyncio.Future[None] = self._loop.create_future()
                self._waiters.add(waiter)
                try:
                    await waiter
                finally:
                    self._waiters.discard(waiter)
            return True
        finally:
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _feed(self, input_: RunInput) -> None:
        if self.states.feed(input_):
            self._wake()

    def _note_time_up(self) -> None:
        if self.states.code is Code.REPLIED:  # nothing to stop; output that goes on and on does not make it a run
            self._end_timer = self._loop.call_later(self._settle, self._on_silence)
        self._feed(RunInput.TIME_UP)

    def _watch_silence(self) -> None:
        """Bound the wait for the second half of completion; any message of this run starts the bound anew."""
        now = self._loop.time()
        if self._silence_timer is not None:
            self._silence_timer.cancel()
        else:
            # Fixed once, since each message moves the silence: endless output would keep the run going.
            self._settle_by = min(now + _MOST_SETTLE_SECONDS, max(self._ends_by, now + self._settle))
        is_interrupted = self.states.stop is Stop.INTERRUPTED  # its reply may never come: see `_completed`
        bound = min(self._settle, _START_WAIT_SECONDS) if is_interrupted else self._settle
        self._silence_timer = self._loop.call_at(min(now + bound, self._settle_by), self._on_silence)

    def _on_silence(self) -> None:
        if self._connection.reading and self._loop.time() < self._settle_by:  # so much has come that it takes time
            self._watch_silence()
        else:
            self._feed(RunInput.SILENCE)

    # --- stopping ---

    async def _until_started(self) -> None:
        """Wait, for a bounded time, until an interrupt reaches the code; before that it would be lost."""
        has_started = await self._until(
            lambda: self._started_at is not None or self.states.end is not None, _START_WAIT_SECONDS
        )
        if not has_started:
            self._log.debug("kernel %s has not reported that it runs the code", self._kernel.kernel_id)

    async def _interrupt_kernel(self) -> None:
        if self._kernel.traits.interrupts_by_message:
            self._connection.send("control", "interrupt_request", {})
        else:
            await self._kernel.interrupt()

    async def _try_interrupt(self) -> None:
        if self.states.has_reply:  # it would reach the code that runs next
            return
        try:
            await ends_within(_INTERRUPT_SECONDS, self._interrupt_kernel())
        except Exception:  # of any provisioner; the kernel is killed when the grace period is over
            self._log.warning("could not interrupt kernel %s", self._kernel.kernel_id, exc_info=True)

    async def _interrupt_and_wait(self) -> None:
        """Interrupt the code and wait for its end, or until its grace period is over."""
        await self._until_started()
        is_early = self._is_early()
        await self._try_interrupt()
        await self._repeat_interrupt(is_early, _AGAIN_SECONDS)
        if not await self._until(self._is_over_or_killed, self._grace):
            self._note_time_up()
            await self._until(self._is_over_or_killed)

    def _is_early(self) -> bool:
        return self._started_at is not None and self._loop.time() - self._started_at < _EARLY_SECONDS

    async def _repeat_interrupt(self, is_early: bool, seconds: float) -> None:
        """Repeat an early interrupt that has had no effect: a kernel loses one that comes just before the code.

        Python itself notices one that comes just before a call that waits, such as `time.sleep`, only after that call.
        """
        if is_early and not await self._until(self._is_over_or_killed, seconds):
            await self._try_interrupt()

    def _is_over_or_killed(self) -> bool:
        return self.states.end is not None or self.states.stop is Stop.KILLING

    async def _stopped(self, cause: StopCause) -> Verdict:
        """Interrupt, wait, kill."""
        if self.states.stop is Stop.STOPPING:
            await self._interrupt_and_wait()
            if self.states.end is End.COMPLETE:
                return self._ended(cause.state, cause.reason)
        reason = f"{cause.reason}; the kernel had to be killed"
        if self._exit is None:
            await self._kernel.kill()
        else:
            reason = f"{cause.reason}; the kernel {self._exit}"
        await self._read_last_words()
        return Verdict(cause.state, False, reason, self._exit, self._translator.execution_count)

    # --- verdicts ---

    def _completed(self) -> Verdict:
        if self._cause is not None and self.states.is_stopping:
            return self._ended(self._cause.state, self._cause.reason)
        state = self._translator.verdict()
        error, reason = self._translator.error, None
        has_reply = self.states.has_reply
        is_asked = self.states.stop is Stop.INTERRUPTED
        # With the interrupt between request and code, IPython ends the run without a reply.
        if is_asked and (self._translator.was_interrupted or (error is None and not has_reply)):
            state, reason = ExecutionState.INTERRUPTED, "interrupted"
        elif is_asked and error is None:
            pass  # the code caught the interrupt, or had ended before it: its own state counts
        elif state is ExecutionState.CANCELLED:
            reason = "the kernel skipped it because an earlier request of another client failed"
        elif not has_reply:
            reason = "the kernel did not report the result"
            if state is ExecutionState.OK:  # how the code ended is unknown
                state = ExecutionState.ERROR
                self._output.emit(ErrorEvent("ResultUnknown", reason))
        elif self.states.code is Code.NO_IDLE:
            reason = "the kernel did not report idle"
        elif self._translator.has_output_after_idle:
            reason = _AFTER_IDLE
        return self._ended(state, reason)

    def _ended(self, state: ExecutionState, reason: str | None) -> Verdict:
        """Return the verdict on code that has ended; its kernel may have ended right after it."""
        count, values = self._translator.execution_count, self._translator.user_expressions
        return Verdict(state, self._exit is None, reason, self._exit, count, values)

    async def _died(self) -> Verdict:
        await self._read_last_words()
        assert self._exit is not None
        death = plain_death(self._exit) if self._deaths is None else await self._deaths.explain(self._exit)
        self._output.emit(ErrorEvent("KernelDied", death.reason, death.traceback))
        return Verdict(death.state, False, death.reason, self._exit, execution_count=self._translator.execution_count)

    async def _read_last_words(self) -> None:
        """Let the messages be read that a dead kernel had already published."""
        quiet_since = self._loop.time()
        give_up_at, read_until = quiet_since + _LAST_WORDS_SECONDS, quiet_since + _MOST_LAST_WORDS_SECONDS
        while self._loop.time() < (read_until if self._connection.reading else give_up_at):
            await asyncio.sleep(_QUIET_AFTER_DEATH_SECONDS)
            quiet = self._loop.time() - max(self._last_message_at, quiet_since) >= _QUIET_AFTER_DEATH_SECONDS
            if quiet and not self._connection.reading:
                return
