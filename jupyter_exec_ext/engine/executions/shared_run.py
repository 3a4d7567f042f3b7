"""One execution on a kernel that its user goes on using.

It differs from a run on a kernel of the session's own in three ways:

- the kernel may be at its user's code first, so the deadline counts from when the kernel says that it runs this code,
  and what the kernel skips because the code before it failed is sent again;
- an interrupt is sent while the kernel runs this code and at no other time;
- the kernel is never killed. Code that does not stop is left behind, and the verdict says so.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...models import ExecutionState
from ...protocol.message_translation import RunTranslator
from ..ports import KernelExit
from .runner import KernelRun, Signal, StopCause, Verdict

_SEND_AGAIN_SECONDS = 0.2
_END_SECONDS = 10.0


class SharedKernelRun(KernelRun):
    """Run one piece of code on a shared kernel; see `KernelRun`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._exited = asyncio.Event()

    def on_exit(self, exit_: KernelExit) -> None:
        """Take in that the kernel process has ended."""
        super().on_exit(exit_)
        self._exited.set()

    def stop(self, cause: StopCause) -> None:
        """Stop the execution; whatever the cause, it is asked to."""
        super().stop(replace(cause, at_once=False))

    async def interrupt(self) -> None:
        """Ask the code to stop, if the kernel runs it by now."""
        await self._until_started()
        if self._started.is_set():
            await super().interrupt()

    async def _to_the_end(self, timeout_seconds: float | None) -> Verdict:
        await self._until_it_runs()
        verdict = await super()._to_the_end(timeout_seconds)
        if verdict.state in (ExecutionState.ERROR, ExecutionState.INTERRUPTED) and self._was_interrupted():
            return await self._died() if await self._ends() else self._ended(ExecutionState.INTERRUPTED, "interrupted")
        return verdict

    async def _until_it_runs(self) -> None:
        """Wait while the kernel is at something else, as long as it takes, and until the run's end or stop at most."""
        while True:
            signal = await self._until(None, stoppable=True, start_counts=True)
            if signal is not Signal.COMPLETE or not self._translator.skipped:
                return
            self._take_back()
            await asyncio.sleep(_SEND_AGAIN_SECONDS)
            if self._stop is None and self._exit is None:
                self._send()

    def _take_back(self) -> None:
        """Forget a request that the kernel skipped."""
        self._translator = RunTranslator("")
        self._settled = False
        if self._settle_timer is not None:
            self._settle_timer.cancel()
            self._settle_timer = None

    def _was_interrupted(self) -> bool:
        error = self._translator.error
        return error is not None and error.name == "KeyboardInterrupt"

    async def _ends(self) -> bool:
        """Return whether the kernel is being ended on purpose: its host interrupts it first, and then ends it."""
        if self._kernel.being_shut_down:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._exited.wait(), _END_SECONDS)
        return self._exit is not None

    async def _stopped(self) -> Verdict:
        """Interrupt the code while it runs, wait, and leave it at that."""
        stop = self._stop
        assert stop is not None
        if not self._translator.msg_id:
            return self._ended(stop.state, stop.reason)
        signal = await self._until(self._grace, start_counts=True)
        if signal is Signal.STARTED:
            signal = await self._interrupt_and_wait()
        if signal is Signal.COMPLETE:
            return self._ended(stop.state, stop.reason)
        if signal is Signal.EXITED:
            await self._last_words()
            return self._ended(stop.state, f"{stop.reason}; the kernel {self._exit}")
        return self._ended(
            stop.state, f"{stop.reason}; the kernel is its user's and not killed, so it may still run the code"
        )
