"""Kernels that are ready before anybody asks, on real kernels: who gets them, who does not, what is left of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.kernels.session_kernel import SessionKernel
from jupyter_exec_ext.errors import TooManyKernels
from jupyter_exec_ext.models import Execution, ExecutionRequest, Session, SessionRequest, TokenRequest
from jupyter_exec_ext.protocol.kernel_messages import execute_request
from jupyter_exec_ext.system.marked_processes import MARK

ME = owner("me")
ADA = owner("Ada", {"username": "ada"})
Make = Callable[..., ExecEngine]


async def run(engine: ExecEngine, session_id: str, code: str, caller: Caller = ME) -> Execution:
    return await (await engine.execute(caller, session_id, ExecutionRequest(code))).wait()


async def begin(engine: ExecEngine, caller: Caller = ME, **request: Any) -> Session:
    return await engine.create_session(caller, SessionRequest(**request))


async def until(condition: Callable[[], bool]) -> None:
    async def look() -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    await asyncio.wait_for(look(), 30)


async def filled(engine: ExecEngine, number: int = 1) -> None:
    await until(lambda: engine.pool.ready >= number)


async def warmed(engine: ExecEngine, **request: Any) -> None:
    """Let there be a kernel in the pool, as after a first session."""
    await engine.delete_session(ME, (await begin(engine, **request)).id)
    await filled(engine)


def pooled(engine: ExecEngine) -> Any:
    """Return the one kernel in the pool."""
    (found,) = (found for found in engine.pool._kernels if found.ready)
    return found


@pytest.fixture
def events(engine: ExecEngine) -> list[str]:
    """What becomes of the kernels of `engine`'s pool."""
    found: list[str] = []
    engine.pool.on_event = found.append
    return found


# --- who gets one ---


async def test_nothing_is_started_before_the_first_session(
    engine: ExecEngine, manager: AsyncMappingKernelManager
) -> None:
    await engine.fill_pool()
    assert not engine.pool._kernels
    assert engine.pool._timer is None
    assert len(manager) == 0


async def test_a_session_gets_the_kernel_that_is_ready(engine: ExecEngine, events: list[str]) -> None:
    await warmed(engine)
    ready = pooled(engine)
    session = await begin(engine)
    assert (session.id, session.kernel_id) == (ready.session_id, ready.kernel_id)
    assert session.kernel_starts == 1
    execution = await run(engine, session.id, f"import os; print(os.environ[{MARK!r}]); print(os.getcwd())")
    assert execution.stdout.splitlines() == [session.id, str(Path(engine.work_root) / session.id)]
    assert execution.execution_count == 1
    assert events == ["missed", "taken"]


async def test_its_user_sees_nothing_of_what_was_run_in_it(engine: ExecEngine) -> None:
    code = "print(sorted(n for n in globals() if n[0] != '_'), In, Out, repr(_), repr(__), repr(_i), repr(_ii))"
    seen = []
    for _ in range(2):  # without a pool, and with
        session = await begin(engine)
        execution = await run(engine, session.id, code)
        seen.append((execution.stdout, execution.execution_count))
        assert (await run(engine, session.id, "%history")).stdout.rstrip() == f"{code}\n%history"
        await filled(engine)
    assert seen[0] == seen[1]
    assert engine.pool.ready == 1


async def test_it_is_recorded_as_one_that_was_started(engine: ExecEngine) -> None:
    records: list[str] = []
    engine._store.audit.subscribe(lambda record: records.append(f"{record.subject} {record.action}"))  # type: ignore[attr-defined]
    engine.audit.start()
    await warmed(engine)
    session = await begin(engine)
    await until(lambda: any(session.id in record for record in records))
    assert [record for record in records if session.id in record] == [
        f"{session.id} created",
        f"{session.id} kernel_started",
    ]


async def test_another_principal_gets_it_too(make_engine: Make) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    await warmed(engine)
    request = TokenRequest("agent", policy="trusted", scopes=sorted(ALL_SCOPES))
    agent = engine.tokens.authenticate((await engine.tokens.create(ADA, request)).text, "127.0.0.1")
    ready = pooled(engine)
    session = await begin(engine, agent)
    assert session.id == ready.session_id
    assert session.owner == agent.principal


async def test_it_keeps_the_limits_of_the_policy_it_was_started_for(make_engine: Make) -> None:
    policies = {"small": {"max_memory_bytes": 4 * 1024**3, "isolation": "none"}}
    engine = make_engine(allow_unprotected_tokens=True, policies=policies)
    request = TokenRequest("agent", policy="small", scopes=sorted(ALL_SCOPES))
    agent = engine.tokens.authenticate((await engine.tokens.create(ADA, request)).text, "127.0.0.1")
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0])"
    await begin(engine, agent)
    await filled(engine)
    ready = pooled(engine)
    assert (await begin(engine)).id != ready.session_id  # which is another kind
    session = await begin(engine, agent)
    assert session.id == ready.session_id
    assert (await run(engine, session.id, code, agent)).stdout == f"{4 * 1024**3}\n"


async def test_twenty_sessions_at_once_have_twenty_kernels(make_engine: Make) -> None:
    engine = make_engine(pool_size=2, pool_max=2)
    await warmed(engine)
    await filled(engine, 2)
    sessions = await asyncio.gather(*(begin(engine) for _ in range(20)))
    assert len({session.id for session in sessions}) == len({session.kernel_id for session in sessions}) == 20
    codes = [f"import os; assert 'mine' not in globals(); mine = {number}; print(os.getpid())" for number in range(20)]
    executions = await asyncio.gather(
        *(run(engine, session.id, code) for session, code in zip(sessions, codes, strict=True))
    )
    assert len({execution.stdout for execution in executions}) == 20
    again = await asyncio.gather(*(run(engine, session.id, "print(mine)") for session in sessions))
    assert [execution.stdout for execution in again] == [f"{number}\n" for number in range(20)]


@pytest.mark.needs("sandbox")
async def test_sandboxed_kernels_are_kept_with_their_directory(engine: ExecEngine) -> None:
    await warmed(engine, isolation="sandbox")
    ready = pooled(engine)
    assert (await begin(engine)).id != ready.session_id
    session = await begin(engine, isolation="sandbox")
    assert (session.id, session.isolation) == (ready.session_id, "sandbox")
    assert (await run(engine, session.id, "open('it', 'w').write('there')")).files[0].path == "it"
    assert (Path(engine.work_root) / session.id / "it").read_text() == "there"


@pytest.mark.needs("sandbox")
async def test_kernels_can_be_kept_from_the_start(make_engine: Make) -> None:
    engine = make_engine(pool_kernels=["python3", "python3+sandbox", "missing"])
    await engine.fill_pool()
    await filled(engine, 2)
    assert (await begin(engine)).id in {session.id for session in await engine.list_sessions(ME)}
    ready = pooled(engine)
    assert (await begin(engine, isolation="sandbox")).id == ready.session_id


async def test_setup_code_runs_when_a_session_has_it(engine: ExecEngine) -> None:
    await warmed(engine)
    ready = pooled(engine)
    session = await engine.create_session(ME, SessionRequest(), setup_code="import __main__; __main__.set_up = 1")
    assert session.id == ready.session_id
    assert (await run(engine, session.id, "print(set_up)")).stdout == "1\n"
    await engine.restart_session(ME, session.id)
    assert (await run(engine, session.id, "print(set_up)")).stdout == "1\n"


async def test_a_session_restarts_the_kernel_it_got(engine: ExecEngine) -> None:
    await warmed(engine)
    session = await begin(engine)
    await run(engine, session.id, "x = 1")
    assert (await engine.restart_session(ME, session.id)).kernel_starts == 2
    assert "NameError" in (await run(engine, session.id, "x")).stderr + str((await run(engine, session.id, "x")).error)
    died = await run(engine, session.id, "import os; os._exit(3)")
    assert "code 3" in str(died.reason)
    assert (await run(engine, session.id, "print(1)")).stdout == "1\n"


async def test_a_kernel_of_the_pool_that_crashes_in_a_session_tells_where(engine: ExecEngine) -> None:
    await warmed(engine)
    session = await begin(engine)
    died = await run(engine, session.id, "import faulthandler; faulthandler._sigsegv()")
    assert died.error is not None
    assert "Segmentation fault" in "".join(died.error.traceback)


# --- who does not ---


async def test_a_session_with_an_environment_of_its_own_starts_its_kernel(engine: ExecEngine) -> None:
    await warmed(engine)
    ready = pooled(engine)
    session = await begin(engine, env={"MINE": "1"})
    assert session.id != ready.session_id
    assert (await run(engine, session.id, "import os; print(os.environ['MINE'])")).stdout == "1\n"
    assert pooled(engine) is ready
    assert len(engine.pool._demands) == 1


async def test_a_change_of_the_servers_environment_is_not_missed(
    engine: ExecEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warmed(engine)
    ready = pooled(engine)
    monkeypatch.setenv("LC_TEST", "new")
    session = await begin(engine)
    assert session.id != ready.session_id
    assert (await run(engine, session.id, "import os; print(os.environ['LC_TEST'])")).stdout == "new\n"
    await until(lambda: ready not in engine.pool._kernels)


async def test_a_change_of_the_kernelspec_is_not_missed(engine: ExecEngine) -> None:
    directory = Path(os.environ["JUPYTER_DATA_DIR"]) / "kernels" / "mine"
    directory.mkdir(parents=True)
    spec: dict[str, Any] = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "mine",
        "language": "python",
    }
    (directory / "kernel.json").write_text(json.dumps(spec))
    await warmed(engine, kernel_name="mine")
    ready = pooled(engine)
    (directory / "kernel.json").write_text(json.dumps({**spec, "env": {"NEW": "1"}}))
    session = await begin(engine, kernel_name="mine")
    assert session.id != ready.session_id
    assert (await run(engine, session.id, "import os; print(os.environ['NEW'])")).stdout == "1\n"
    await until(lambda: ready not in engine.pool._kernels)


async def test_a_pool_of_nothing_keeps_nothing(make_engine: Make) -> None:
    engine = make_engine(pool_size=0, pool_kernels=["python3"])
    await engine.fill_pool()
    session = await begin(engine)
    await run(engine, session.id, "1")
    assert not engine.pool._kernels
    assert engine.pool._timer is None


async def test_a_kind_that_cannot_be_started_is_not_kept(make_engine: Make) -> None:
    engine = make_engine()
    directory = Path(os.environ["JUPYTER_DATA_DIR"]) / "kernels" / "broken"
    directory.mkdir(parents=True)
    spec = {"argv": [sys.executable, "-c", "raise SystemExit(3)"], "display_name": "broken", "language": "python"}
    (directory / "kernel.json").write_text(json.dumps(spec))
    with pytest.raises(Exception, match="code 3"):
        await begin(engine, kernel_name="broken")
    assert engine.pool._timer is None


# --- what no session may get any more ---


async def test_a_kernel_that_somebody_has_used_is_thrown_away(engine: ExecEngine, events: list[str]) -> None:
    """By whomever: here over its own sockets."""
    await warmed(engine)
    used = pooled(engine)
    used.kernel.connection.send("shell", "execute_request", execute_request("spy = 1", allow_input=False))
    await until(lambda: used not in engine.pool._kernels)
    await filled(engine)
    session = await begin(engine)
    assert session.id != used.session_id
    assert (await run(engine, session.id, "print('spy' in globals())")).stdout == "False\n"
    assert events == ["missed", "discarded", "taken"]


async def test_a_kernel_that_died_is_replaced(engine: ExecEngine) -> None:
    await warmed(engine)
    dead = pooled(engine)
    psutil.Process(dead.kernel.kernel.pid).kill()
    await until(lambda: dead not in engine.pool._kernels)
    await filled(engine)
    session = await begin(engine)
    assert session.id != dead.session_id
    assert (await run(engine, session.id, "print(1)")).stdout == "1\n"
    assert not (Path(engine.work_root) / dead.session_id).exists()


async def test_a_kernel_that_dies_as_it_is_given_away_is_started_anew(
    engine: ExecEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warmed(engine)
    dead, take = pooled(engine), engine.pool.take

    def take_dead(kind: Any) -> Any:
        os.kill(dead.kernel.kernel.pid, 9)
        return take(kind)  # before the loop hears of it

    monkeypatch.setattr(engine.pool, "take", take_dead)
    session = await begin(engine)
    monkeypatch.undo()
    assert session.id == dead.session_id
    executions = [await run(engine, session.id, "print(1)") for _ in range(2)]
    assert executions[-1].stdout == "1\n"


async def test_kinds_that_nobody_asks_for_are_forgotten(make_engine: Make, tmp_path: Path) -> None:
    engine = make_engine()
    await warmed(engine)
    pid = pooled(engine).kernel.kernel.pid
    engine.pool.bounds = replace(engine.pool.bounds, idle_seconds=0.1)  # not before: a start may take longer
    engine.pool.refill_soon()
    await until(lambda: not psutil.pid_exists(pid))
    await until(lambda: not engine.pool._ending)
    assert not engine.pool._demands
    assert list(Path(engine.work_root).iterdir()) == []


async def test_no_more_memory_is_kept_than_is_allowed(make_engine: Make) -> None:
    engine = make_engine(pool_memory_bytes=1024**2)
    session = await begin(engine)
    await until(lambda: engine.pool._timer is not None and engine.pool._worker is None)
    await run(engine, session.id, "1")
    assert not engine.pool._kernels


# --- the host ---


async def test_it_is_no_kernel_of_the_hosts(engine: ExecEngine, manager: AsyncMappingKernelManager) -> None:
    """So a server stops that has nothing else to do, and nobody lists, uses or culls it."""
    await warmed(engine)
    kernel = pooled(engine).kernel.kernel
    before = manager.last_kernel_activity
    kernel.note_activity()
    assert (len(manager), manager.list_kernels()) == (0, [])
    assert kernel.kernel_id not in manager
    assert manager.last_kernel_activity == before
    session = await begin(engine)
    assert [model["id"] for model in manager.list_kernels()] == [session.kernel_id]
    assert manager.last_kernel_activity > before
    await engine.delete_session(ME, session.id)
    assert len(manager) == 0


async def test_refilling_is_no_activity(engine: ExecEngine, manager: AsyncMappingKernelManager) -> None:
    session = await begin(engine)
    await engine.delete_session(ME, session.id)
    before = manager.last_kernel_activity
    await filled(engine)
    assert manager.last_kernel_activity == before


async def test_first_message_of_a_pooled_kernel_is_no_activity(
    engine: ExecEngine, manager: AsyncMappingKernelManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_kernel = manager.start_kernel

    async def start_and_wait_for_message(**options: Any) -> str:
        before = manager.last_kernel_activity
        kernel_id = await start_kernel(**options)
        await until(lambda: manager.last_kernel_activity != before)
        return kernel_id

    session = await begin(engine)
    await engine.delete_session(ME, session.id)
    await filled(engine)
    monkeypatch.setattr(manager, "start_kernel", start_and_wait_for_message)
    before = manager.last_kernel_activity
    os.kill(pooled(engine).kernel.kernel.pid, signal.SIGKILL)
    await until(lambda: engine.pool.ready == 0)
    await filled(engine)
    assert manager.last_kernel_activity == before


async def test_a_full_host_has_room_for_a_session(make_engine: Make, manager: AsyncMappingKernelManager) -> None:
    engine = make_engine(max_kernels=2)
    await begin(engine)
    await filled(engine)
    ready = pooled(engine)
    session = await begin(engine, env={"A": "1"})  # for which the pool has nothing
    assert not psutil.pid_exists(ready.kernel.kernel.pid or 0)
    assert len(manager) == 2
    with pytest.raises(TooManyKernels):
        await begin(engine)
    await engine.delete_session(ME, session.id)
    await filled(engine)
    await begin(engine)
    with pytest.raises(TooManyKernels):
        await begin(engine)
    assert len(manager) == 2


async def test_a_kernel_that_is_just_starting_for_the_pool_is_in_nobodys_way(make_engine: Make) -> None:
    engine = make_engine(max_kernels=2)
    await begin(engine)
    await until(lambda: bool(engine.pool._kernels))
    await begin(engine, env={"A": "1"})
    await until(lambda: engine.pool._worker is None and not engine.pool._ending)
    assert not engine.pool._kernels


# --- the end ---


@pytest.fixture
def unanswering(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Kernels for the pool do not come to the end of their set-up; set when there is one."""
    warm_up, stopped = SessionKernel.warm_up, asyncio.Event()

    def stop_and_warm_up(kernel: SessionKernel) -> None:
        assert kernel.kernel is not None and kernel.kernel.pid is not None
        os.kill(kernel.kernel.pid, signal.SIGSTOP)
        warm_up(kernel)
        stopped.set()

    monkeypatch.setattr(SessionKernel, "warm_up", stop_and_warm_up)
    return stopped


async def test_a_shutdown_does_not_wait_for_a_set_up(engine: ExecEngine, unanswering: asyncio.Event) -> None:
    await begin(engine)
    await asyncio.wait_for(unanswering.wait(), 30)
    await asyncio.wait_for(engine.shutdown(), 10)


async def test_a_kernel_that_ends_during_its_set_up_keeps_no_other_waiting(
    engine: ExecEngine, unanswering: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(engine)
    await asyncio.wait_for(unanswering.wait(), 30)
    monkeypatch.undo()
    starting: Any = engine.pool._kernels[0]
    psutil.Process(starting.kernel.kernel.pid).kill()
    await asyncio.wait_for(filled(engine), 15)


async def test_nothing_is_left_after_a_shutdown(
    make_engine: Make, manager: AsyncMappingKernelManager, tmp_path: Path
) -> None:
    others = set(psutil.Process().children())  # servers of other tests, if any
    engine = make_engine()
    await warmed(engine)
    await begin(engine)
    await until(lambda: bool(engine.pool._kernels))  # one that is being started
    await engine.shutdown()
    assert set(psutil.Process().children()) <= others
    assert len(manager) == 0
    assert list(Path(manager.connection_dir).iterdir()) == []
    assert list(Path(engine.work_root).iterdir()) == []
    assert list((tmp_path / "jupyter_data_dir" / "jupyter_exec_ext" / "servers").iterdir()) == []


async def test_kernel_that_is_being_ended_stays_in_the_list_for_the_next_server(
    engine: ExecEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed() -> set[str]:
        servers = tmp_path / "jupyter_data_dir" / "jupyter_exec_ext" / "servers"
        return {line.split()[0] for path in servers.glob("*.prepared") for line in path.read_text().splitlines()}

    shutdown, may_end = SessionKernel.shutdown, asyncio.Event()

    async def shut_down_late(kernel: SessionKernel, **options: Any) -> None:
        await may_end.wait()
        await shutdown(kernel, **options)

    await warmed(engine)
    ending = pooled(engine)
    monkeypatch.setattr(SessionKernel, "shutdown", shut_down_late)
    ending.discard("a test")
    await filled(engine)  # with another one, which was added to the list
    assert listed() == {ending.session_id, pooled(engine).session_id}
    may_end.set()
    await until(lambda: listed() == {pooled(engine).session_id})
