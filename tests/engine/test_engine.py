"""The engine on real kernels, where the contract suite cannot see: principals, limits, races, what is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.executions.live_execution import follow
from jupyter_exec_ext.errors import (
    ExecutionNotFound,
    KernelStartFailed,
    KernelStartTimeout,
    QueueFull,
    SessionEnded,
    SessionNotFound,
    ShuttingDown,
    TooManyKernels,
    TooManySessions,
)
from jupyter_exec_ext.models import (
    Execution,
    ExecutionRequest,
    ExecutionState,
    SessionRequest,
    SessionState,
    TokenRequest,
)
from tests.support.full import IS_FULL, only_in_full
from tests.support.kernelspecs import add_kernelspec

ME = owner("me")
Make = Callable[..., ExecEngine]


async def run(engine: ExecEngine, session_id: str, code: str, caller: Caller = ME, **options: Any) -> Execution:
    return await (await engine.execute(caller, session_id, ExecutionRequest(code, **options))).wait()


async def new_session(engine: ExecEngine, caller: Caller = ME, **request: Any) -> str:
    return (await engine.create_session(caller, SessionRequest(**request))).id


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that the host does in its own time and tells nobody."""

    async def look() -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    await asyncio.wait_for(look(), 10)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


# --- whose things are whose ---


async def bearer(engine: ExecEngine) -> Caller:
    """Return somebody who has a token of their own."""
    request = TokenRequest("agent", policy="trusted", scopes=sorted(ALL_SCOPES))
    issued = await engine.tokens.create(owner("Ada", {"username": "ada"}), request)
    return engine.tokens.authenticate(issued.text, "127.0.0.1")


async def test_what_belongs_to_another_principal_does_not_exist(make_engine: Make) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    agent, other = await bearer(engine), await bearer(engine)
    session_id = await new_session(engine, agent)
    execution = await run(engine, session_id, "1", agent)
    for verb in (engine.get_session, engine.delete_session, engine.interrupt_session, engine.restart_session):
        with pytest.raises(SessionNotFound):
            await verb(other, session_id)
    with pytest.raises(SessionNotFound):
        await run(engine, session_id, "1", other)
    with pytest.raises(SessionNotFound):
        await engine.history.list(other, session_id, 10)
    for read in (engine.get_execution, engine.open_log, engine.cancel):
        with pytest.raises(ExecutionNotFound):
            await read(other, execution.id)
    with pytest.raises(ExecutionNotFound):
        await engine.answer_input(other, execution.id, "x")
    assert await engine.list_sessions(other) == []


async def test_the_owner_sees_what_agents_do(make_engine: Make) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    agent = await bearer(engine)
    session_id = await new_session(engine, agent)
    execution = await run(engine, session_id, "1", agent)
    assert [session.id for session in await engine.list_sessions(ME)] == [session_id]
    assert (await engine.get_execution(ME, execution.id)).state is ExecutionState.OK


# --- limits hold under concurrency ---


async def test_no_two_requests_get_the_last_place_for_a_session(make_engine: Make) -> None:
    engine = make_engine(max_sessions=2)
    results = await asyncio.gather(*(new_session(engine) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, str) for result in results) == 2
    assert sum(isinstance(result, TooManySessions) for result in results) == 3
    await engine.delete_session(ME, next(result for result in results if isinstance(result, str)))
    assert await new_session(engine)


async def test_kernels_that_are_still_starting_count(make_engine: Make) -> None:
    engine = make_engine(max_kernels=2)
    results = await asyncio.gather(*(new_session(engine) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, str) for result in results) == 2
    assert sum(isinstance(result, TooManyKernels) for result in results) == 3
    assert len(await engine.list_sessions(ME)) == 2


async def test_a_full_queue_refuses(make_engine: Make) -> None:
    engine = make_engine(max_queued_executions=2)
    session_id = await new_session(engine)
    running = await engine.execute(ME, session_id, ExecutionRequest("import time; time.sleep(0.5)"))
    await until(lambda: running.record.state is ExecutionState.RUNNING)
    requests = [engine.execute(ME, session_id, ExecutionRequest("1")) for _ in range(4)]
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert sum(isinstance(result, QueueFull) for result in results) == 2


async def test_requests_that_are_being_recorded_count_as_queued(
    make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(max_queued_executions=2)
    accept = engine._store.executions.accept

    async def take_time(*args: Any) -> Any:
        await asyncio.sleep(0.05)
        return await accept(*args)

    monkeypatch.setattr(engine._store.executions, "accept", take_time)
    session_id = await new_session(engine)
    running = await engine.execute(ME, session_id, ExecutionRequest("import time; time.sleep(1)"))
    await until(lambda: running.record.state is ExecutionState.RUNNING)
    requests = [engine.execute(ME, session_id, ExecutionRequest("1")) for _ in range(4)]
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert sum(isinstance(result, QueueFull) for result in results) == 2


async def test_a_longer_time_limit_than_allowed_is_lowered(make_engine: Make) -> None:
    engine = make_engine(max_timeout_seconds=2.0)
    session_id = await new_session(engine)
    assert (await run(engine, session_id, "1", timeout_seconds=99.0)).timeout_seconds == 2.0
    assert (await run(engine, session_id, "1")).timeout_seconds == 2.0


# --- kernels that do not start ---

_KERNEL = (sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}")


def install_kernelspec(tmp_path: Path, name: str, *argv: str) -> None:
    directory = tmp_path / "jupyter_data_dir" / "kernels" / name
    directory.mkdir(parents=True)
    quoted = ", ".join(f'"{arg}"' for arg in argv)
    (directory / "kernel.json").write_text(f'{{"argv": [{quoted}], "display_name": "{name}", "language": "python"}}')


async def test_a_kernel_that_loses_its_ports_to_another_process_is_started_again(
    engine: ExecEngine, tmp_path: Path
) -> None:
    """ipykernel exits with code 1 then; only the first start of this one does so."""
    first = f"mkdir {tmp_path / 'started'} 2>/dev/null && exit 1; exec {' '.join(_KERNEL)}"
    install_kernelspec(tmp_path, "unlucky", "sh", "-c", first)
    session = await engine.create_session(ME, SessionRequest(kernel_name="unlucky"))
    assert (await run(engine, session.id, "print('here')")).stdout == "here\n"


async def test_a_kernel_is_not_culled_while_it_starts(
    engine: ExecEngine, manager: AsyncMappingKernelManager, tmp_path: Path
) -> None:
    manager.cull_idle_timeout, manager.cull_busy = 2, True
    install_kernelspec(tmp_path, "slow", "sh", "-c", f"sleep 4; exec {' '.join(_KERNEL)}")
    creating = asyncio.create_task(new_session(engine, kernel_name="slow"))
    while not creating.done():
        for kernel_id in manager.list_kernel_ids():
            await manager.cull_kernel_if_idle(kernel_id)
        await asyncio.wait([creating], timeout=0.2)
    assert (await run(engine, await creating, "print('here')")).stdout == "here\n"


@pytest.mark.parametrize("code", ["raise SystemExit(9)", "import time; time.sleep(1); raise SystemExit(9)"])
async def test_a_kernel_that_exits_before_it_answers_is_reported_with_its_code(
    engine: ExecEngine, tmp_path: Path, code: str
) -> None:
    install_kernelspec(tmp_path, "dies", "python", "-c", code)
    with pytest.raises(KernelStartFailed, match="code 9"):
        await new_session(engine, kernel_name="dies")
    assert await engine.list_sessions(ME) == []
    (ended,) = await engine.list_sessions(ME, ended=True)
    assert ended.state is SessionState.ENDED


async def test_a_kernel_whose_command_is_missing_is_reported(engine: ExecEngine, tmp_path: Path) -> None:
    install_kernelspec(tmp_path, "missing", "/no/such/command")
    with pytest.raises(KernelStartFailed, match="missing"):
        await new_session(engine, kernel_name="missing")


async def test_a_kernel_that_never_answers_is_given_up_and_killed(make_engine: Make, tmp_path: Path) -> None:
    install_kernelspec(tmp_path, "mute", "python", "-c", "import time; time.sleep(60)")
    engine = make_engine(kernel_start_timeout_seconds=1.0)
    before = children()
    with pytest.raises(KernelStartTimeout, match="1 s"):
        await new_session(engine, kernel_name="mute")
    assert children() <= before


async def test_what_was_sent_to_a_session_that_does_not_start_ends_with_it(engine: ExecEngine, tmp_path: Path) -> None:
    flag = tmp_path / "second"
    code = (
        f"import os, runpy, sys, time\nif not os.path.exists({str(flag)!r}):\n"
        f"    open({str(flag)!r}, 'w').close(); time.sleep(1.5); raise SystemExit(9)\n"
        "sys.argv = sys.argv[:1] + sys.argv[1:]; runpy.run_module('ipykernel_launcher', run_name='__main__')"
    )
    (tmp_path / "flaky.py").write_text(code)
    install_kernelspec(tmp_path, "flaky", "python", str(tmp_path / "flaky.py"), "-f", "{connection_file}")
    creating = asyncio.create_task(new_session(engine, kernel_name="flaky"))
    await until(flag.exists)
    (session,) = await engine.list_sessions(ME)
    execution = await engine.execute(ME, session.id, ExecutionRequest("print('ran')"))
    with pytest.raises(KernelStartFailed):
        await creating
    record = await asyncio.wait_for(execution.wait(), 10)
    assert (record.state.finished, record.stdout) == (True, "")
    assert await engine.list_sessions(ME) == []
    with pytest.raises(SessionEnded):
        await engine.delete_session(ME, session.id)
    assert engine._registry.sessions == {}


# --- the host does things of its own ---


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1, 0.4])
async def test_a_session_can_be_deleted_while_the_host_restarts_its_kernel(
    engine: ExecEngine, manager: AsyncMappingKernelManager, delay: float
) -> None:
    session = await engine.create_session(ME, SessionRequest())
    assert session.kernel_id is not None
    restarting = asyncio.ensure_future(manager.restart_kernel(session.kernel_id))
    await asyncio.sleep(delay)  # the moment matters, whatever the restart is doing then
    await asyncio.wait_for(engine.delete_session(ME, session.id), 20)
    await asyncio.wait([restarting], timeout=10)
    assert (await engine.get_session(ME, session.id)).state is SessionState.ENDED
    assert session.kernel_id not in manager


@pytest.mark.parametrize("delay", [2.8, 2.95, 3.0, 3.05] if IS_FULL else [3.0])
async def test_a_restart_by_the_host_at_the_moment_of_the_kill_ends_the_execution(
    engine: ExecEngine, manager: AsyncMappingKernelManager, delay: float
) -> None:
    session = await engine.create_session(ME, SessionRequest())
    assert session.kernel_id is not None
    code = "while True:\n    try:\n        while True: pass\n    except KeyboardInterrupt: pass"
    execution = await engine.execute(ME, session.id, ExecutionRequest(code, timeout_seconds=1.0))
    await until(lambda: execution.record.state is ExecutionState.RUNNING)
    await asyncio.sleep(delay)  # the interrupt comes after 1 s, the kill 2 s later
    restarting = asyncio.ensure_future(manager.restart_kernel(session.kernel_id, now=True))
    record = await asyncio.wait_for(execution.wait(), 20)
    assert record.state in (ExecutionState.TIMEOUT, ExecutionState.KERNEL_DIED)
    await asyncio.wait([restarting], timeout=10)
    assert (await asyncio.wait_for(run(engine, session.id, "print('again')"), 20)).stdout == "again\n"


async def test_a_kernel_shut_down_by_the_host_ends_the_session(
    engine: ExecEngine, manager: AsyncMappingKernelManager
) -> None:
    session_id = await new_session(engine)
    session = await engine.get_session(ME, session_id)
    assert session.kernel_id is not None
    await manager.shutdown_kernel(session.kernel_id)
    await until(lambda: engine._registry.sessions[session_id].record.state is SessionState.ENDED)
    session = await engine.get_session(ME, session_id)
    assert session.ended_reason == "its kernel was shut down outside the session"
    with pytest.raises(SessionEnded, match="outside the session"):
        await run(engine, session_id, "1")


async def test_a_kernel_restarted_by_the_host_goes_on_fresh(
    engine: ExecEngine, manager: AsyncMappingKernelManager
) -> None:
    session_id = await new_session(engine)
    await run(engine, session_id, "old = 1")
    session = await engine.get_session(ME, session_id)
    assert session.kernel_id is not None
    await (await manager.restart_kernel(session.kernel_id))  # it returns a future
    result = await run(engine, session_id, "print('old' in globals())")
    assert (result.stdout, result.kernel_starts) == ("False\n", 2)


async def test_a_dead_kernel_that_the_host_has_culled_is_replaced(
    engine: ExecEngine, manager: AsyncMappingKernelManager
) -> None:
    session_id = await new_session(engine)
    session = await engine.get_session(ME, session_id)
    assert session.kernel_id is not None
    await run(engine, session_id, "import threading, os; threading.Timer(0.1, lambda: os._exit(1)).start()")
    kernel: Any = manager.get_kernel(session.kernel_id)
    await until(lambda: kernel.execution_state == "dead")
    await manager.cull_kernel_if_idle(session.kernel_id)
    assert session.kernel_id not in manager
    assert (await run(engine, session_id, "print('again')")).stdout == "again\n"


async def test_our_kernels_are_not_restarted_behind_our_back(
    engine: ExecEngine, manager: AsyncMappingKernelManager
) -> None:
    session = await engine.create_session(ME, SessionRequest())
    assert session.kernel_id is not None
    assert manager.get_kernel(session.kernel_id).autorestart is False


async def test_a_running_execution_keeps_the_kernel_and_the_server_active(
    engine: ExecEngine, manager: AsyncMappingKernelManager
) -> None:
    session = await engine.create_session(ME, SessionRequest())
    assert session.kernel_id is not None
    execution = await engine.execute(ME, session.id, ExecutionRequest("import time; time.sleep(3.5)"))
    assert engine.activity() == {execution.record.id: session.id}
    kernel: Any = manager.get_kernel(session.kernel_id)
    await execution.wait(0.5)  # the host sees the kernel's own messages about the start
    stamps, by_the_kernel = set(), kernel.last_activity
    while not execution.record.state.finished:
        stamps.add(kernel.last_activity)
        await execution.wait(0.2)
    assert len(stamps - {by_the_kernel}) >= 2
    assert manager.last_kernel_activity == kernel.last_activity
    await until(lambda: not engine.activity())


@only_in_full
@pytest.mark.parametrize("transport", ["tcp", "ipc"] if IS_FULL else ["ipc"])
async def test_a_loop_that_is_busy_for_twelve_seconds_loses_no_output(make_engine: Make, transport: str) -> None:
    """20,000 messages arrive meanwhile; the stock high-water mark would drop four fifths of them."""
    engine = make_engine(kernel_transport=transport)
    session_id = await new_session(engine)
    code = "for i in range(20_000): print(i, flush=True)"
    execution = await engine.execute(ME, session_id, ExecutionRequest(code))
    await until(lambda: execution.record.state is ExecutionState.RUNNING)
    time.sleep(12)  # noqa: ASYNC251  # this is the fault
    record = await execution.wait()
    assert record.ok
    assert record.stdout == "".join(f"{i}\n" for i in range(20_000))


@pytest.mark.parametrize("jump_seconds", [3600.0, -3600.0])
async def test_a_clock_that_jumps_changes_no_time_limit(
    make_engine: Make, monkeypatch: pytest.MonkeyPatch, jump_seconds: float
) -> None:
    """The wall clock of this process jumps by an hour while code runs and while a session rests."""
    engine = make_engine(session_idle_timeout_seconds=30.0)
    session_id = await new_session(engine)
    limited = await engine.execute(ME, session_id, ExecutionRequest("import time; time.sleep(60)", timeout_seconds=3.0))
    await until(lambda: limited.record.state is ExecutionState.RUNNING)
    began, real = time.monotonic(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump_seconds)
    record = await limited.wait()
    assert record.state is ExecutionState.TIMEOUT
    assert 2.0 < time.monotonic() - began < 20.0
    assert (await run(engine, session_id, "print('still there')")).stdout == "still there\n"
    assert (await engine.get_execution(ME, record.id)).id == record.id


# --- shutting down ---


async def test_shutting_down_ends_everything_and_says_so(make_engine: Make) -> None:
    engine = make_engine()
    session_id = await new_session(engine)
    running = await engine.execute(ME, session_id, ExecutionRequest("import time; time.sleep(60)"))
    queued = await engine.execute(ME, session_id, ExecutionRequest("1"))
    log = await engine.open_log(ME, running.record.id)
    reader = asyncio.create_task(_read_all(log))
    await asyncio.sleep(0.1)
    await asyncio.wait_for(engine.shutdown(), 10)
    assert running.record.state is queued.record.state is ExecutionState.SERVER_RESTARTED
    assert (await reader)[-1] == "end"
    with pytest.raises(ShuttingDown):
        await new_session(engine)


async def _read_all(log: Any) -> list[str]:
    return [entry.type async for batch in follow(log) for entry in batch]


async def test_shutting_down_while_a_kernel_starts_leaves_nothing(make_engine: Make, tmp_path: Path) -> None:
    add_kernelspec(tmp_path, "plain", "local-provisioner")  # not forked: its start takes long enough
    engine = make_engine()
    before = children()
    starting = asyncio.create_task(new_session(engine, kernel_name="plain"))
    await until(lambda: children() > before)
    await engine.shutdown()
    with pytest.raises((SessionEnded, ShuttingDown)):
        await starting
    assert children() <= before


def threads() -> int:
    """Return how many there are beside the loop's pool: that one keeps as many as were busy at once."""
    return sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate())


def descriptors() -> Counter[str]:
    """Return what the open ones lead to."""
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that listed them
            found[os.readlink(f"/proc/self/fd/{number}")] += 1
    return found


async def settled() -> tuple[set[int], int, Counter[str]]:
    """Return what there is of processes, threads and descriptors, when that stays: ZeroMQ closes late."""
    counted: list[tuple[set[int], int, Counter[str]]] = []
    for _ in range(100):
        counted.append((children(), threads(), descriptors()))
        if len(counted) >= 10 and all(each == counted[-1] for each in counted[-10:]):
            return counted[-1]
        await asyncio.sleep(0.05)
    raise AssertionError(f"processes, threads and descriptors come and go: {counted[-10:]}")


async def test_nothing_is_left_behind(manager: AsyncMappingKernelManager, make_engine: Make, tmp_path: Path) -> None:
    """No process, thread, socket, file descriptor or connection file."""

    async def use(engine: ExecEngine) -> None:
        sessions = await asyncio.gather(*(new_session(engine) for _ in range(2)))
        await run(engine, sessions[0], "print(1)")
        await run(engine, sessions[0], "import os; os._exit(1)")
        await run(engine, sessions[1], "while True: pass", timeout_seconds=0.2)
        await engine.restart_session(ME, sessions[1])
        await engine.delete_session(ME, sessions[0])
        await engine.shutdown()

    await use(make_engine())  # what is made once and kept, such as the loop's thread pool, is made here
    gc.collect()
    before = await settled()
    await use(make_engine())
    gc.collect()
    after = await settled()
    assert after[0] - before[0] == set()
    assert after[1] <= before[1]
    assert after[2] - before[2] == Counter()  # there may be fewer: an earlier test's may have been closed late
    assert list((tmp_path / "run").glob("kernel-*")) == []
    assert manager.list_kernel_ids() == []
    assert {task.get_coro().__qualname__ for task in asyncio.all_tasks()} <= {  # type: ignore[union-attr]
        "test_nothing_is_left_behind"
    }


async def test_a_repeated_request_that_was_found_unfinished_gets_the_end(
    engine: ExecEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await engine.create_session(ME, SessionRequest())
    go = tmp_path / "go"
    request = ExecutionRequest(f"import os\nwhile not os.path.exists({str(go)!r}): pass\nprint(1)")
    first = await engine.execute(ME, session.id, request, "k")
    accept = engine._store.executions.accept

    async def accept_and_dawdle(*arguments: Any) -> Any:
        found = await accept(*arguments)
        go.touch()
        await first.wait()
        return found

    monkeypatch.setattr(engine._store.executions, "accept", accept_and_dawdle)
    again = await (await engine.execute(ME, session.id, request, "k")).wait()
    assert (again.state, again.stdout) == (ExecutionState.OK, "1\n")


# --- a large answer, made while the disk is at work ---


async def test_a_large_record_is_there_to_be_written_as_json_before_it_may_be_shown(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    execution = await engine.execute(ME, session_id, ExecutionRequest("print('x' * 1_000_000)"))
    shown = asyncio.ensure_future(execution.wait())
    record = await execution.outcome()
    assert record.state is ExecutionState.OK and len(record.stdout) == 1_000_001
    assert not shown.done()
    assert await shown == record


async def test_a_small_record_is_there_when_it_may_be_shown(engine: ExecEngine) -> None:
    session_id = await new_session(engine)
    execution = await engine.execute(ME, session_id, ExecutionRequest("print(1)"))
    assert (await execution.outcome(timeout_seconds=0)).state is not ExecutionState.OK
    record = await execution.outcome()
    assert record == await execution.wait(timeout_seconds=0)
    assert execution.log.closed


async def test_output_of_an_ended_execution_is_freed_without_the_garbage_collector(engine: ExecEngine) -> None:
    session = await engine.create_session(ME, SessionRequest())
    handle = await engine.execute(ME, session.id, ExecutionRequest("print('x' * 1000)"))
    running = weakref.ref(handle)
    gc.collect()
    gc.disable()
    try:
        assert (await handle.wait()).stdout == "x" * 1000 + "\n"
        del handle
        await engine.background.drain()
        for _ in range(100):
            if running() is None:
                break
            await asyncio.to_thread(int)
        assert running() is None
    finally:
        gc.enable()
