"""The last bound on runs, sessions and the engine's end, where something waits for ever."""

from __future__ import annotations

import asyncio
import logging

import pytest

from jupyter_exec_ext.engine.concurrency import WatchdogExpired, ends_within
from jupyter_exec_ext.engine.executions.lifecycle import StopCause
from jupyter_exec_ext.engine.kernels.shared_resources import RepeatedWarnings
from jupyter_exec_ext.models import ExecutionState
from jupyter_exec_ext.protocol.kernel_messages import KernelMessage
from tests.support.waiting import until

from .test_runner import InterruptedKernel, QuietConnection, new_run


async def test_work_that_ends_in_time_is_returned() -> None:
    assert await ends_within(10, asyncio.sleep(0, "done")) == "done"


async def test_work_that_fails_in_time_fails() -> None:
    async def fail() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError):
        await ends_within(10, fail())


async def test_work_that_refuses_to_be_cancelled_is_left_behind() -> None:
    go_on = asyncio.Event()

    async def refuse() -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    with pytest.raises(WatchdogExpired):
        await ends_within(0.01, refuse())
    go_on.set()


async def test_caller_that_is_cancelled_takes_its_work_along() -> None:
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    caller = asyncio.create_task(ends_within(10, work()))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait_for(cancelled.wait(), 10)


class AlwaysReading(QuietConnection):
    """A connection to a kernel that sends so much that some of it is always still to be read."""

    reading = True


async def test_a_kernel_that_always_sends_something_does_not_put_off_the_end_of_a_run() -> None:
    """Its reply came, its end of output never does, and reading never catches up."""
    run, _, _ = new_run([], settle_seconds=0.05, connection=AlwaysReading())
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=0.1))
    await asyncio.sleep(0)
    run.on_message(KernelMessage("shell", "execute_reply", "msg-1", {"status": "ok", "execution_count": 1}))
    verdict = await asyncio.wait_for(running, 10)
    assert verdict.reason == "the kernel did not report idle"


class DeafKernel(InterruptedKernel):
    """A kernel whose interrupt never comes to an end."""

    asked = False

    async def interrupt(self) -> None:
        self.asked = True
        await asyncio.Event().wait()


async def test_an_interrupt_that_does_not_return_does_not_keep_a_run() -> None:
    kernel = DeafKernel()
    run, _, _ = new_run([], kernel=kernel)
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await asyncio.sleep(0)
    run.on_message(KernelMessage("iopub", "execute_input", "msg-1", {"execution_count": 1}))
    run.stop(StopCause(ExecutionState.CANCELLED, "cancelled"))
    await until(lambda: kernel.asked)
    run.on_message(KernelMessage("shell", "execute_reply", "msg-1", {"status": "ok", "execution_count": 1}))
    run.on_message(KernelMessage("iopub", "status", "msg-1", {"execution_state": "idle"}))
    assert (await asyncio.wait_for(running, 20)).state is ExecutionState.CANCELLED


async def test_warnings_of_a_kind_are_counted_and_reported_after_the_interval(caplog: pytest.LogCaptureFixture) -> None:
    warnings = RepeatedWarnings(logging.getLogger("kernels"), interval_seconds=0.02)
    for number in range(1000):
        warnings.warn("odd messages", "odd message %d", number)
    for number in range(200):  # more kinds than are kept apart
        warnings.warn(f"kind {number}", "one of many")
    await until(lambda: any("999 more" in record.getMessage() for record in caplog.records))
    warnings.close()
    texts = [record.getMessage() for record in caplog.records]
    assert texts[0] == "odd message 0"
    assert len(texts) < 70
