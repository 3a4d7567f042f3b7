"""Runs of code: messages, exits and stops in orders that no real kernel can be asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, cast

import pytest

from jupyter_exec_ext.engine.executions.lifecycle import StopCause
from jupyter_exec_ext.engine.executions.runner import KernelRun
from jupyter_exec_ext.engine.executions.shared_run import SharedKernelRun
from jupyter_exec_ext.engine.ports import Kernel, KernelExit, KernelTraits
from jupyter_exec_ext.models import ErrorEvent, ExecutionState, OutputEvent, StreamEvent
from jupyter_exec_ext.protocol.kernel_messages import KernelMessage


class QuietConnection:
    """A connection to a kernel that is told things and says nothing."""

    reading = False

    def __init__(self) -> None:
        self.sent = asyncio.Event()

    def send(self, channel: str, msg_type: str, content: Mapping[str, Any]) -> str:
        self.sent.set()
        return "msg-1"


class Sink:
    """Keeps the events of a run in a list."""

    def __init__(self, events: list[OutputEvent]) -> None:
        self.emit = events.append
        self.counts: list[int | None] = []

    def note_begin(self, execution_count: int | None) -> None:
        self.counts.append(execution_count)


def new_run(
    events: list[OutputEvent],
    settle_seconds: float = 1.0,
    kernel: InterruptedKernel | None = None,
    kind: type[KernelRun] = KernelRun,
    connection: Any = None,
) -> tuple[KernelRun, QuietConnection, InterruptedKernel]:
    connection = connection or QuietConnection()
    kernel = kernel or InterruptedKernel()
    run = kind(
        cast(Kernel, kernel),
        connection,
        Sink(events),
        interrupt_grace_seconds=1,
        settle_seconds=settle_seconds,
        log=logging.getLogger(__name__),
    )
    return run, connection, kernel


def status(state: str) -> KernelMessage:
    return KernelMessage("iopub", "status", "msg-1", {"execution_state": state})


class InterruptedKernel:
    """A kernel that counts interrupts."""

    kernel_id = "k"
    traits = KernelTraits()
    interrupts = 0

    async def interrupt(self) -> None:
        self.interrupts += 1


class SharedKernel(InterruptedKernel):
    """A kernel that its user is just restarting."""

    being_shut_down = True


async def test_time_limit_ends_run_with_endless_output_after_reply() -> None:
    events: list[OutputEvent] = []
    run, connection, _ = new_run(events, settle_seconds=0.1)
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=0.2))
    await connection.sent.wait()
    run.on_message(KernelMessage("shell", "execute_reply", "msg-1", {"status": "ok", "execution_count": 1}))
    loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    while not running.done():
        run.on_message(KernelMessage("iopub", "stream", "msg-1", {"name": "stdout", "text": "on and on"}))
        await asyncio.wait([running], timeout=0.02)
        assert loop.time() - began < 20
    verdict = await running
    assert (verdict.state, verdict.preserved) == (ExecutionState.OK, True)
    assert verdict.reason == "the kernel did not report idle"


async def test_run_without_reply_ends_as_error() -> None:
    events: list[OutputEvent] = []
    run, connection, _ = new_run(events, settle_seconds=0.05)
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await connection.sent.wait()
    run.on_message(KernelMessage("iopub", "execute_input", "msg-1", {"execution_count": 1}))
    run.on_message(status("idle"))
    verdict = await running
    assert (verdict.state, verdict.preserved) == (ExecutionState.ERROR, True)
    assert verdict.reason == "the kernel did not report the result"
    assert events == [ErrorEvent("ResultUnknown", "the kernel did not report the result")]


OUTPUTS: list[tuple[str, dict[str, Any]]] = [
    ("stream", {"name": "stdout", "text": "hidden?"}),
    ("stream", {"name": "stderr", "text": "hidden?"}),
    ("display_data", {"data": {"text/plain": "hidden?"}, "metadata": {}}),
    ("update_display_data", {"data": {"text/plain": "hidden?"}, "transient": {"display_id": "d"}}),
    ("execute_result", {"data": {"text/plain": "hidden?"}, "execution_count": 1}),
    ("clear_output", {"wait": False}),
]


@pytest.mark.parametrize(("kind", "content"), OUTPUTS, ids=[f"{n}-{kind}" for n, (kind, _) in enumerate(OUTPUTS)])
async def test_output_after_forged_idle_is_shown_and_reported(kind: str, content: dict[str, Any]) -> None:
    events: list[OutputEvent] = []
    run, connection, _ = new_run(events)
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await connection.sent.wait()
    run.on_message(KernelMessage("iopub", "execute_input", "msg-1", {"execution_count": 1}))
    run.on_message(status("idle"))
    run.on_message(KernelMessage("iopub", kind, "msg-1", content))
    run.on_message(KernelMessage("shell", "execute_reply", "msg-1", {"status": "ok", "execution_count": 1}))
    verdict = await running
    assert verdict.state is ExecutionState.OK
    assert len(events) == 1
    assert verdict.reason is not None and "output came after the kernel had reported idle" in verdict.reason


async def test_output_before_idle_leaves_reason_empty() -> None:
    events: list[OutputEvent] = []
    run, connection, _ = new_run(events)
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await connection.sent.wait()
    run.on_message(KernelMessage("iopub", "stream", "msg-1", {"name": "stdout", "text": "x"}))
    run.on_message(KernelMessage("shell", "execute_reply", "msg-1", {"status": "ok", "execution_count": 1}))
    run.on_message(KernelMessage("iopub", "stream", "msg-1", {"name": "stdout", "text": "y"}))
    run.on_message(status("idle"))
    verdict = await running
    assert (verdict.state, verdict.reason, len(events)) == (ExecutionState.OK, None, 2)


async def test_interrupt_that_waits_past_the_end_is_not_sent() -> None:
    run, connection, kernel = new_run([])
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await connection.sent.wait()
    interrupting = asyncio.create_task(run.interrupt())
    await asyncio.wait([interrupting], timeout=0.01)
    for message in (
        KernelMessage("iopub", "execute_input", "msg-1", {"execution_count": 1}),
        KernelMessage("shell", "execute_reply", "msg-1", {"status": "ok", "execution_count": 1}),
        status("idle"),
    ):
        run.on_message(message)
    await interrupting
    await running
    assert kernel.interrupts == 0


@pytest.mark.parametrize("state", [ExecutionState.CANCELLED, ExecutionState.INTERRUPTED])
async def test_interrupt_lost_at_the_start_is_sent_again(state: ExecutionState) -> None:
    run, connection, kernel = new_run([])
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await connection.sent.wait()
    run.on_message(KernelMessage("iopub", "execute_input", "msg-1", {"execution_count": 1}))
    if state is ExecutionState.CANCELLED:
        run.stop(StopCause(state, "cancelled"))
    else:
        await run.interrupt()
    while kernel.interrupts < 2:
        await asyncio.wait([running], timeout=0.01)
    # The second one came while the first was being reported: the error is in the reply alone.
    reply = {"status": "error", "execution_count": 1, "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
    run.on_message(KernelMessage("shell", "execute_reply", "msg-1", reply))
    run.on_message(status("idle"))
    verdict = await running
    assert (verdict.state, verdict.preserved) == (state, True)


async def test_exit_between_reply_and_idle_loses_session_state() -> None:
    run, connection, _ = new_run([])
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await connection.sent.wait()
    run.on_message(KernelMessage("iopub", "execute_input", "msg-1", {"execution_count": 1}))
    run.on_message(KernelMessage("shell", "execute_reply", "msg-1", {"status": "ok", "execution_count": 1}))
    run.on_exit(KernelExit(signal="SIGKILL"))
    run.on_message(status("idle"))
    verdict = await running
    assert (verdict.state, verdict.preserved) == (ExecutionState.OK, False)


async def test_stop_while_reply_is_awaited_ends_as_cancelled() -> None:
    run, connection, _ = new_run([])
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await connection.sent.wait()
    run.on_message(KernelMessage("iopub", "execute_input", "msg-1", {"execution_count": 1}))
    await run.interrupt()
    run.on_message(status("idle"))
    run.stop(StopCause(ExecutionState.CANCELLED, "cancelled"))
    verdict = await running
    assert (verdict.state, verdict.reason) == (ExecutionState.CANCELLED, "cancelled")


async def test_skipped_request_sent_again_has_its_full_settle_time() -> None:
    run, connection, _ = new_run([], settle_seconds=0.3, kernel=SharedKernel(), kind=SharedKernelRun)
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await connection.sent.wait()
    connection.sent.clear()
    run.on_message(KernelMessage("shell", "execute_reply", "msg-1", {"status": "aborted"}))
    run.on_message(status("idle"))
    await asyncio.wait_for(connection.sent.wait(), 30)
    run.on_message(KernelMessage("iopub", "execute_input", "msg-1", {"execution_count": 1}))
    assert not (await asyncio.wait([running], timeout=0.5))[0]
    run.on_message(KernelMessage("shell", "execute_reply", "msg-1", {"status": "ok", "execution_count": 1}))
    run.on_message(status("idle"))
    assert (await asyncio.wait_for(running, 30)).state is ExecutionState.OK


async def test_interrupt_during_shutdown_of_shared_kernel_ends_as_kernel_died() -> None:
    run, connection, _ = new_run([], kernel=SharedKernel(), kind=SharedKernelRun)
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await connection.sent.wait()
    run.on_message(KernelMessage("iopub", "execute_input", "msg-1", {"execution_count": 1}))
    run.on_message(KernelMessage("iopub", "error", "msg-1", {"ename": "KeyboardInterrupt"}))
    run.on_message(KernelMessage("shell", "execute_reply", "msg-1", {"status": "error", "execution_count": 1}))
    run.on_message(status("idle"))
    asyncio.get_running_loop().call_later(0.05, run.on_exit, KernelExit(exit_code=0))
    verdict = await asyncio.wait_for(running, 30)
    assert (verdict.state, verdict.preserved) == (ExecutionState.KERNEL_DIED, False)


async def test_output_published_before_death_comes_before_the_error() -> None:
    events: list[OutputEvent] = []
    run, connection, _ = new_run(events)
    running = asyncio.create_task(run.run("code", allow_input=False, timeout_seconds=None))
    await connection.sent.wait()
    run.on_exit(KernelExit(signal="SIGKILL"))
    last_words = KernelMessage("iopub", "stream", "msg-1", {"name": "stdout", "text": "last words"})
    asyncio.get_running_loop().call_later(0.01, run.on_message, last_words)
    verdict = await running
    assert (verdict.state, verdict.preserved) == (ExecutionState.KERNEL_DIED, False)
    assert events == [StreamEvent("stdout", "last words"), ErrorEvent("KernelDied", "the kernel was ended by SIGKILL")]
