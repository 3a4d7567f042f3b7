"""Run of one execution on a kernel that its user goes on using, such as a notebook's.

It differs from `KernelRun` in three ways:

- The kernel may run its user's code first. The time limit counts from the start of this code, and a request that the
  kernel skips, because the code before it failed, is sent again.
- An interrupt is sent only while the kernel runs this code.
- The kernel is never killed. Code that does not stop is left behind, and the verdict reports it.
"""

from __future__ import annotations

from dataclasses import replace

from ...models import ExecutionState
from ...protocol.message_translation import RunTranslator
from ...protocol.run_states import End, RunInput
from .lifecycle import StopCause, Verdict
from .runner import KernelRun

# IPython skips all that is queued when a cell fails. A request sent at once could be skipped as well.
_SEND_AGAIN_SECONDS = 0.2
_END_SECONDS = 10.0  # jupyter_client kills a kernel after 5 s by default (`shutdown_wait_time`)


class SharedKernelRun(KernelRun):
    """Run of one piece of code on a shared kernel; see `KernelRun`."""

    def stop(self, cause: StopCause) -> None:
        """Stop the execution; the kernel is asked to, whatever the cause."""
        if cause.grace_seconds is not None:
            self._grace = min(self._grace, cause.grace_seconds)
        # With `at_once` the code would get no grace period, and no kill follows here.
        super().stop(replace(cause, at_once=False))

    async def interrupt(self) -> None:
        """Ask the code to stop, if the kernel runs it by now."""
        await self._until_started()
        if self._started_at is not None:
            await super().interrupt()

    async def _follow(self, timeout_seconds: float | None) -> Verdict:
        await self._until_it_runs()
        verdict = await super()._follow(timeout_seconds)
        # The kernel's user may have interrupted our code: that is no error of the code.
        error = self._translator.error
        is_interrupt = error is not None and error.name == "KeyboardInterrupt"
        if is_interrupt and verdict.state in (ExecutionState.ERROR, ExecutionState.INTERRUPTED):
            is_ending = await self._is_ending()
            return await self._died() if is_ending else self._ended(ExecutionState.INTERRUPTED, "interrupted")
        return verdict

    async def _until_it_runs(self) -> None:
        """Wait while the kernel runs other code, until the start of this code, the run's end or its stop."""
        while True:
            await self._until(lambda: self._started_at is not None or self.states.is_decided)
            if self.states.end is not End.COMPLETE or not self._translator.skipped or self._started_at is not None:
                return
            self._take_back()
            if not await self._until(lambda: self.states.is_decided, _SEND_AGAIN_SECONDS):
                self._note_sent(self._connection.send("shell", "execute_request", self._request))

    def _take_back(self) -> None:
        """Forget a request that the kernel skipped."""
        # Messages of the skipped request may still come, and are not part of this run.
        self._translator = RunTranslator("")
        self._feed(RunInput.TAKE_BACK)
        # A bound that began with the skipped request would cut the next one short.
        if self._silence_timer is not None:
            self._silence_timer.cancel()
            self._silence_timer = None

    async def _is_ending(self) -> bool:
        """Return whether the kernel is being ended on purpose: its host interrupts it first, and then ends it."""
        if self._kernel.being_shut_down:
            await self._until(lambda: self._exit is not None, _END_SECONDS)
        return self._exit is not None

    async def _stopped(self, cause: StopCause) -> Verdict:
        """Interrupt the code while it runs, wait, and leave it behind if it goes on."""
        if not self._translator.msg_id:
            # Stopped before it was sent again: the kernel has no request of ours.
            return self._ended(cause.state, cause.reason)
        if self._started_at is None:
            # The kernel still runs its user's code, which an interrupt would stop.
            await self._until(lambda: self._started_at is not None or self.states.end is not None, self._grace)
        if self._started_at is not None:
            await self._interrupt_and_wait()
        if self.states.end is End.COMPLETE:
            return self._ended(cause.state, cause.reason)
        if self.states.end is End.DIED:
            await self._read_last_words()
            return self._ended(cause.state, f"{cause.reason}; the kernel {self._exit}")
        return self._ended(
            cause.state, f"{cause.reason}; the kernel is its user's and not killed, so it may still run the code"
        )
