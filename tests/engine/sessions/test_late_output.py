"""Sessions between two executions: kernels that end, and output that comes late."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.executions.live_execution import follow
from jupyter_exec_ext.models import Execution, ExecutionRequest, ExecutionState, SessionRequest, StateLoss
from jupyter_exec_ext.protocol import late_output
from jupyter_exec_ext.protocol.output_sizes import cost_of
from jupyter_exec_ext.protocol.strict_json import loads_strict
from tests.support.full import IS_FULL
from tests.support.waiting import until

ME = owner("me")


async def run(engine: ExecEngine, session_id: str, code: str, **options: Any) -> Execution:
    return await (await engine.execute(ME, session_id, ExecutionRequest(code, **options))).wait(30)


async def events_of(engine: ExecEngine, execution: Execution) -> list[dict[str, Any]]:
    log = await engine.open_log(ME, execution.id)
    return [loads_strict(entry.line) async for batch in follow(log, 0) for entry in batch]


class Victim:
    """A session whose kernel is ended in one way or another."""

    def __init__(self, engine: ExecEngine, session_id: str) -> None:
        self.engine = engine
        self.session_id = session_id

    @property
    def pid(self) -> int | None:
        return self.engine._registry.sessions[self.session_id].kernel.pid

    async def run(self, code: str, **options: Any) -> Execution:
        return await run(self.engine, self.session_id, code, **options)

    async def gone_after(self, code: str) -> None:
        """Run code that ends the kernel a moment later, and wait until it is gone."""
        assert (await self.run(f"import os, threading\nmarker = 1\n{code}")).session_state_preserved
        await until(lambda: self.pid is None)


async def new_session(engine: ExecEngine) -> Victim:
    return Victim(engine, (await engine.create_session(ME, SessionRequest())).id)


LATER = "threading.Timer(0.2, {}).start()"


ENDS = [
    (LATER.format("os._exit, [3]"), StateLoss("the kernel exited with code 3", kernel_exit_code=3)),
    (LATER.format("os.kill, [os.getpid(), 9]"), StateLoss("the kernel was ended by SIGKILL", kernel_signal="SIGKILL")),
    (
        f"import ctypes\n{LATER.format('ctypes.string_at, [0]')}",
        StateLoss("the kernel was ended by SIGSEGV", kernel_signal="SIGSEGV"),
    ),
    (LATER.format("os._exit, [0]"), StateLoss("the kernel exited with code 0", kernel_exit_code=0)),
    (LATER.format("os.abort"), StateLoss("the kernel was ended by SIGABRT", kernel_signal="SIGABRT")),
    (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        + LATER.format("os.kill, [os.getpid(), signal.SIGTERM]"),
        StateLoss("the kernel was ended by SIGTERM", kernel_signal="SIGTERM"),
    ),
]
# Each takes a kernel. The rest differ in the number alone.
TRIED = ENDS if IS_FULL else ENDS[:3]


async def test_execution_after_kernel_that_ended_between_runs_says_how(engine: ExecEngine) -> None:
    session = await new_session(engine)
    for starts, (ends, loss) in enumerate(TRIED, 2):
        await session.gone_after(ends)
        after = await session.run("print('marker' in globals())")
        assert (after.state, after.stdout) == (ExecutionState.OK, "False\n")
        assert (after.session_state_lost, after.kernel_starts) == (loss, starts)
        told = [event for event in await events_of(engine, after) if event["type"] == "session_state_lost"]
        assert [(event["reason"], event["kernel_exit_code"], event["kernel_signal"]) for event in told] == [
            (loss.reason, loss.kernel_exit_code, loss.kernel_signal)
        ]
        assert (await session.run("1")).session_state_lost is None


async def test_nothing_is_said_to_be_lost_where_nothing_was_or_it_was_said(engine: ExecEngine) -> None:
    session = await new_session(engine)
    pid = session.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)  # before any code has run
    await until(lambda: session.pid is None)
    assert (await session.run("1")).session_state_lost is None
    died = await session.run("import os; os._exit(4)")  # which says it itself
    assert (died.session_state_preserved, died.session_state_lost) == (False, None)
    assert (await session.run("1")).session_state_lost is None
    await session.gone_after(LATER.format("os._exit, [3]"))
    await engine.restart_session(ME, session.session_id)  # which is asked for
    assert (await session.run("1")).session_state_lost is None


async def test_state_loss_waits_for_the_execution_that_really_runs(engine: ExecEngine) -> None:
    session = await new_session(engine)
    await session.gone_after(LATER.format("os._exit, [3]"))
    first = await engine.execute(ME, session.session_id, ExecutionRequest("1"))
    cancelled = await engine.cancel(ME, first.record.id)
    assert (cancelled.state, cancelled.session_state_lost) == (ExecutionState.CANCELLED, None)
    assert (await session.run("1")).session_state_lost is not None


async def test_restart_by_somebody_else_is_told(engine: ExecEngine, manager: AsyncMappingKernelManager) -> None:
    session = await new_session(engine)
    await session.run("marker = 1")
    kernel_id = engine._registry.sessions[session.session_id].record.kernel_id
    assert kernel_id is not None
    await (await manager.restart_kernel(kernel_id, now=True))
    await until(lambda: session.pid is None)
    lost = (await session.run("1")).session_state_lost
    assert lost is not None
    assert lost.reason == "the kernel was restarted outside the session"


# --- late output ---

# Code of a thread is shown with what runs at the moment, and that of a task with the cell that has begun it.
THREAD = """\
import os, threading, time
go_on = threading.Event()
def write():
    go_on.wait(20)
    {}
thread = threading.Thread(target=write)
thread.start()
"""
TASK = """\
import asyncio, os, sys
go_on = asyncio.Event()
async def write():
    await go_on.wait()
    {}
task = asyncio.create_task(write())
"""
END = "go_on.set(); await task"
PRINT = "print('from the task', flush=True)"
SIZE = len("from the task\n")


async def test_task_output_is_in_the_execution_that_runs_meanwhile(engine: ExecEngine) -> None:
    session = await new_session(engine)
    first = await session.run(TASK.format(PRINT))
    second = await session.run(f"print('own', flush=True); {END}")
    assert [output["text"] for output in second.outputs] == ["own\n", "from the task\n"]
    assert (second.late_from, second.late_bytes) == ((first.id,), 0)
    late_events = [event for event in await events_of(engine, second) if event.get("late")]
    assert [(event["from"], event["text"]) for event in late_events] == [(first.id, "from the task\n")]
    await until_counted(engine, first, SIZE)
    end = (await events_of(engine, first))[-1]  # a finished log never grows
    assert (end["type"], end["execution"]["late_bytes"]) == ("end", 0)
    assert (await session.run("1")).late_from == ()
    for write, kind, shown in WRITES:
        await session.run(TASK.format(write))
        later = await session.run(f"{END}; await asyncio.sleep(0.3)")
        outputs = [output for output in later.outputs if output["output_type"] == kind]
        assert shown in repr(outputs), write
        assert later.error is None


WRITES = [
    ("from IPython.display import display, HTML; display(HTML('<p>late'))", "display_data", "<p>late"),
    ("display({'text/plain': 'late'}, raw=True)", "display_data", "late"),
    ("print('late', file=sys.stderr, flush=True)", "stream", "'name': 'stderr', 'text': 'late\\n'"),
    ("print('no end of a line', end='')", "stream", "no end of a line"),
    # What a descriptor gets belongs to whatever runs then. It must be there, late or not.
    ("os.system('echo late')", "stream", "late\\n"),
    ("import subprocess; subprocess.run(['echo', 'late'])", "stream", "late\\n"),
]


async def until_counted(engine: ExecEngine, execution: Execution, late_bytes: int) -> None:
    """Wait for what is written a moment later; the record and its summary have it."""
    for _ in range(500):
        record = await engine.get_execution(ME, execution.id)
        if record.late_bytes:
            break
        await asyncio.sleep(0.02)
    listed = await engine.history.list(ME, execution.session_id, 10)
    assert [each.late_bytes for each in [record, *listed] if each.id == execution.id] == [late_bytes] * 2


async def test_late_output_without_a_next_execution_is_told_and_counted(engine: ExecEngine) -> None:
    session = await new_session(engine)
    with engine.feed.watch("") as reader:
        first = await session.run(f"{TASK.format(PRINT)}\nasyncio.get_running_loop().call_later(0.3, go_on.set)")
        told: list[Any] = []
        while not told:
            changes = await reader.read(10)
            assert changes, "nothing was told"
            told = [change for change in changes if change.kind == "late_output"]
    change = loads_strict(told[0].data)["late_output"]
    assert (change["execution_id"], change["session_id"]) == (first.id, session.session_id)
    assert change["late_bytes"] == SIZE
    assert [(event["text"], event["from"]) for event in change["events"]] == [("from the task\n", first.id)]
    await engine.delete_session(ME, session.session_id)
    await until_counted(engine, first, SIZE)


async def test_kernel_that_writes_without_end_between_runs_is_bounded_and_counted(
    engine: ExecEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_output, "MAX_WAITING_BYTES", 64 * 1024)
    session = await new_session(engine)
    flood = "while not go_on.is_set(): print('x' * 50_000, flush=True)"
    first = await session.run(THREAD.format(flood).replace("go_on.wait(20)", "pass"))
    buffer = engine._registry.sessions[session.session_id]._late_output._buffer
    await until(lambda: bool(buffer._left_out))
    assert sum(cost_of(event) for event in buffer._waiting) <= 64 * 1024
    second = await session.run("go_on.set(); thread.join(); print('done')")
    assert second.stdout.rstrip().endswith("done")
    assert "bytes of late output left out" in second.stderr
    record = await engine.get_execution(ME, first.id)
    assert (record.state, len(record.stdout)) == (first.state, len(first.stdout))


async def test_late_output_counts_towards_the_cap_of_the_execution_that_has_it(
    make_engine: Callable[..., ExecEngine],
) -> None:
    engine = make_engine(max_output_bytes=20_000)
    session = await new_session(engine)
    await session.run(TASK.format("print('x' * 200_000, flush=True)"))
    second = await session.run(f"{END}; print('own')")
    assert second.truncated is not None
    assert second.truncated.stdout_bytes > 150_000
    assert second.stdout.endswith("own\n")


async def test_forked_child_that_goes_on_does_not_end_the_run_of_its_parent(engine: ExecEngine) -> None:
    session = await new_session(engine)
    code = "import os, time\npid = os.fork()\ntime.sleep(0.4 if pid else 0)\nprint('parent' if pid else 'child')"
    for _ in range(3):
        result = await session.run(code)
        assert result.state is ExecutionState.OK
        assert "parent\n" in result.stdout
        await session.run("os.kill(pid, 9); os.waitpid(pid, 0)")
