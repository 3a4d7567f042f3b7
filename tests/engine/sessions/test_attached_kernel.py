"""Sessions on kernels that somebody else uses: whose kernel it stays, whose code is stopped, what each side sees."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import psutil
import pytest
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_core.utils import ensure_async
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.executions.live_execution import ExecutionHandle
from jupyter_exec_ext.errors import (
    Conflict,
    FilesNotAvailable,
    IsolationRequired,
    KernelNotFound,
    MissingScope,
    PolicyDenied,
    SessionEnded,
)
from jupyter_exec_ext.models import (
    Execution,
    ExecutionRequest,
    ExecutionState,
    Session,
    SessionRequest,
    SessionState,
    TokenRequest,
)
from tests.support.full import only_in_full

ME = owner("me")
FOR_EVER = "import time\nwhile True:\n    time.sleep(0.05)"
# Catches every interrupt, so that only its own variable ends it.
STUBBORN = """\
import time
go_on = True
while go_on:
    try:
        while go_on:
            time.sleep(0.05)
            go_on = not os.path.exists(flag)
    except KeyboardInterrupt:
        pass
"""


class Person:
    """Somebody with a notebook: a kernel of the host's manager, and a client of it."""

    def __init__(self, manager: AsyncMappingKernelManager, kernel_id: str) -> None:
        self.manager = manager
        self.kernel_id = kernel_id
        self.client: AsyncKernelClient = manager.get_kernel(kernel_id).client()  # type: ignore[assignment]
        self.client.start_channels()

    @property
    def pid(self) -> int:
        provisioner: Any = self.manager.get_kernel(self.kernel_id).provisioner
        return int(provisioner.process.pid)

    @property
    def listed(self) -> bool:
        return self.kernel_id in self.manager.list_kernel_ids()

    async def begin(self, code: str) -> str:
        """Run code and return the request's id once the kernel runs it."""
        request = self.client.execute(code)
        while True:
            message = await self.client.get_iopub_msg(timeout=20)
            if message["parent_header"].get("msg_id") == request and message["msg_type"] == "execute_input":
                return str(request)

    async def reply(self, request: str) -> dict[str, Any]:
        while True:
            message = await self.client.get_shell_msg(timeout=20)
            if message["parent_header"].get("msg_id") == request:
                content: dict[str, Any] = message["content"]
                return content

    async def run(self, code: str) -> dict[str, Any]:
        return await self.reply(self.client.execute(code))

    async def value(self, expression: str) -> str:
        """Return the representation of a value in the kernel."""
        request = self.client.execute("", silent=True, user_expressions={"value": expression})
        value: Any = (await self.reply(request))["user_expressions"]["value"]
        return str(value["data"]["text/plain"] if value["status"] == "ok" else value["ename"])

    async def interrupt(self) -> None:
        await ensure_async(self.manager.interrupt_kernel(self.kernel_id))  # type: ignore[func-returns-value]

    async def restart(self, *, now: bool = False) -> None:
        await (await self.manager.restart_kernel(self.kernel_id, now=now))
        await self.client.wait_for_ready(timeout=20)


@pytest.fixture
async def person(manager: AsyncMappingKernelManager) -> AsyncIterator[Person]:
    person = Person(manager, await manager.start_kernel(kernel_name="python3"))
    await person.client.wait_for_ready(timeout=20)
    yield person
    person.client.stop_channels()
    if person.listed:
        await manager.shutdown_kernel(person.kernel_id, now=True)


async def attach(engine: ExecEngine, person: Person, caller: Caller = ME, **request: Any) -> Session:
    return await engine.create_session(caller, SessionRequest(kernel_id=person.kernel_id, **request))


async def begin(engine: ExecEngine, session: Session, code: str, **options: Any) -> ExecutionHandle:
    return await engine.execute(ME, session.id, ExecutionRequest(code, **options))


async def run(engine: ExecEngine, session: Session, code: str, **options: Any) -> Execution:
    execution = await (await begin(engine, session, code, **options)).wait(20)
    assert execution.state.finished, execution
    return execution


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that the host does in its own time and tells nobody."""

    async def look() -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    await asyncio.wait_for(look(), 20)


async def running(execution: ExecutionHandle) -> None:
    """Wait until the kernel runs the code, which prints something first."""
    await until(lambda: execution.log.last_seq >= 3)


# --- shared state ---


async def test_agent_and_person_share_variables(engine: ExecEngine, person: Person) -> None:
    await person.run("x = 20")
    session = await attach(engine, person)
    assert (session.attached, session.kernel_id, session.kernel_name) == (True, person.kernel_id, "python3")
    assert (await run(engine, session, "y = x + 1\ny * 2")).outputs[0]["data"]["text/plain"] == "42"
    assert await person.value("y") == "21"


async def test_what_the_person_prints_is_not_the_agents(engine: ExecEngine, person: Person) -> None:
    await person.run("import threading, time")
    session = await attach(engine, person)
    await person.begin("for i in range(30): print('theirs', flush=True); time.sleep(0.01)")
    assert (await run(engine, session, "print('ours')")).stdout == "ours\n"


async def test_a_kernel_that_is_attached_is_left_as_it_is(engine: ExecEngine, person: Person) -> None:
    km: Any = person.manager.get_kernel(person.kernel_id)
    settings = "(type(__import__('sys').stdout).__name__, get_ipython().history_manager.db_cache_size)"
    before = await person.value(settings)
    session = await attach(engine, person)
    await run(engine, session, "1")
    assert await person.value("__import__('faulthandler').is_enabled()") == "False"
    assert await person.value(settings) == before
    assert await person.value("'JUPYTER_EXEC_SESSION' in __import__('os').environ") == "False"
    assert km.autorestart
    assert km._restarter._pcallback.is_running()
    assert not km._activity_stream.closed()


# --- whose code is stopped ---


async def test_a_time_out_ends_our_code_and_nothing_else(engine: ExecEngine, person: Person) -> None:
    await person.run("x = 1")
    session = await attach(engine, person)
    execution = await run(engine, session, f"y = 2\n{FOR_EVER}", timeout_seconds=1)
    assert (execution.state, execution.session_state_preserved) == (ExecutionState.TIMEOUT, True)
    assert await person.value("(x, y)") == "(1, 2)"
    assert (await run(engine, session, "x + y")).kernel_starts == 1


async def test_while_the_person_runs_something_ours_is_queued_and_its_time_does_not_count(
    engine: ExecEngine, person: Person
) -> None:
    session = await attach(engine, person)
    theirs = await person.begin("import time; time.sleep(3.5); done = True")
    execution = await run(engine, session, "done", timeout_seconds=3)
    assert (execution.state, execution.outputs[0]["data"]["text/plain"]) == (ExecutionState.OK, "True")
    assert (await person.reply(theirs))["status"] == "ok"


async def test_attaching_to_a_busy_kernel_works(engine: ExecEngine, person: Person) -> None:
    theirs = await person.begin(FOR_EVER)
    session = await asyncio.wait_for(attach(engine, person), 5)
    execution = await begin(engine, session, "1")
    await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(execution.wait(0.3))), 5)
    assert execution.record.state is ExecutionState.QUEUED
    await person.interrupt()
    assert (await person.reply(theirs))["ename"] == "KeyboardInterrupt"
    assert (await execution.wait(20)).state is ExecutionState.OK


async def test_a_kernel_that_cannot_answer_is_refused_soon(
    engine: ExecEngine, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_exec_ext.engine.kernels.kernel_start._ATTACH_SECONDS", 1.0)
    os.kill(person.pid, signal.SIGSTOP)
    try:
        with pytest.raises(Conflict, match="does not answer"):
            await asyncio.wait_for(attach(engine, person), 5)
    finally:
        os.kill(person.pid, signal.SIGCONT)
    assert await engine.list_sessions(ME) == []
    assert await person.value("6 * 7") == "42"


async def test_cancelling_what_waits_leaves_the_persons_code_alone(engine: ExecEngine, person: Person) -> None:
    session = await attach(engine, person)
    theirs = await person.begin("import time; time.sleep(1); done = True")
    waiting = await begin(engine, session, "ours = True")
    await until(lambda: engine._registry.sessions[session.id].current is waiting)
    cancelled = await engine.cancel(ME, waiting.record.id)
    assert (cancelled.state, cancelled.started_at) == (ExecutionState.CANCELLED, None)
    await engine.interrupt_session(ME, session.id)
    assert (await person.reply(theirs))["status"] == "ok"
    assert (await run(engine, session, "done, 'ours' in globals()")).outputs[0]["data"]["text/plain"] == "(True, False)"


async def test_the_sessions_interrupt_ends_our_code(engine: ExecEngine, person: Person) -> None:
    session = await attach(engine, person)
    execution = await begin(engine, session, f"print(1, flush=True)\n{FOR_EVER}")
    await running(execution)
    await engine.interrupt_session(ME, session.id)
    assert (await execution.wait(20)).state is ExecutionState.INTERRUPTED


async def test_the_persons_interrupt_ends_our_code_too(engine: ExecEngine, person: Person) -> None:
    session = await attach(engine, person)
    execution = await begin(engine, session, f"print(1, flush=True)\n{FOR_EVER}")
    await running(execution)
    await person.interrupt()
    ended = await execution.wait(20)
    assert (ended.state, ended.reason) == (ExecutionState.INTERRUPTED, "interrupted")
    assert (await run(engine, session, "1")).state is ExecutionState.OK


async def test_code_that_does_not_stop_is_left_behind(make_engine: Any, person: Person, tmp_path: Any) -> None:
    engine = make_engine(interrupt_grace_seconds=0.5)
    flag = tmp_path / "flag"
    await person.run(f"import os; flag = {str(flag)!r}; x = 1")
    session = await attach(engine, person)
    execution = await run(engine, session, STUBBORN, timeout_seconds=0.3)
    assert (execution.state, execution.session_state_preserved) == (ExecutionState.TIMEOUT, True)
    assert "not killed, so it may still run" in str(execution.reason)
    after = await begin(engine, session, "x")
    assert (await after.wait(0.3)).state is ExecutionState.QUEUED
    flag.touch()
    assert (await after.wait(20)).state is ExecutionState.OK
    assert await person.value("x") == "1"


def overtake(engine: ExecEngine, session: Session, person: Person, code: str) -> asyncio.Future[str]:
    """Let the person's code get to the kernel between the answer that it is our turn and our request."""
    theirs: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    connection = engine._registry.sessions[session.id].kernel.connection
    assert connection is not None
    has_turn = connection.has_turn

    async def has_turn_and_loses_it() -> bool:
        await has_turn()
        if not theirs.done():
            theirs.set_result(await person.begin(code))
        return True

    connection.has_turn = has_turn_and_loses_it  # type: ignore[method-assign]
    return theirs


async def test_what_the_kernel_skips_is_sent_again(engine: ExecEngine, person: Person) -> None:
    """A notebook's request that fails makes IPython skip what waits behind it, whoever sent that."""
    session = await attach(engine, person)
    theirs = overtake(engine, session, person, "import time; time.sleep(0.3); 1/0")
    execution = await run(engine, session, "6 * 7", timeout_seconds=5)
    assert (execution.state, execution.outputs[0]["data"]["text/plain"]) == (ExecutionState.OK, "42")
    assert (await person.reply(await theirs))["ename"] == "ZeroDivisionError"


async def test_code_that_was_overtaken_does_not_make_the_persons_stop(make_engine: Any, person: Person) -> None:
    engine = make_engine(interrupt_grace_seconds=0.3)
    session = await attach(engine, person)
    theirs = overtake(engine, session, person, "import time; time.sleep(2); done = True")
    execution = await begin(engine, session, "1", timeout_seconds=0.2)
    request = await theirs
    await until(lambda: execution.record.state is ExecutionState.RUNNING)
    await engine.interrupt_session(ME, session.id)
    assert execution.record.state is ExecutionState.RUNNING
    cancelled = await engine.cancel(ME, execution.record.id)
    assert cancelled.state is ExecutionState.CANCELLED
    assert "may still run the code" in str(cancelled.reason)
    assert (await person.reply(request))["status"] == "ok"
    after = await run(engine, session, "done")
    # The kernel ran the code after all, and what that gave comes late.
    assert [output["data"]["text/plain"] for output in after.outputs] == ["1", "True"]
    assert after.late_from == (cancelled.id,)


@pytest.mark.parametrize("code", ["import asyncio; await asyncio.sleep(1); done = True", "done = input() == ''"])
async def test_it_is_not_our_turn_while_the_persons_code_waits(engine: ExecEngine, person: Person, code: str) -> None:
    session = await attach(engine, person)
    theirs = await person.begin(code)
    execution = await begin(engine, session, "done")
    assert (await execution.wait(0.5)).state is ExecutionState.QUEUED
    if "input" in code:
        await person.client.get_stdin_msg(timeout=20)
        person.client.input("")
    assert (await person.reply(theirs))["status"] == "ok"
    assert (await execution.wait(20)).outputs[0]["data"]["text/plain"] == "True"


# --- the kernel's life ---


@pytest.mark.parametrize("how", ["delete", "idle", "engine"])
async def test_the_kernel_outlives_the_session(make_engine: Any, person: Person, how: str) -> None:
    engine = make_engine()
    await person.run("x = 1")
    session = await attach(engine, person, idle_timeout_seconds=0.2 if how == "idle" else 0)
    if how == "delete":
        await run(engine, session, "y = 2")
        await engine.delete_session(ME, session.id)
    elif how == "engine":
        await engine.shutdown()
        assert engine._registry.sessions[session.id].record.state is SessionState.ENDED
    else:
        await until(lambda: engine._registry.sessions[session.id].record.state is SessionState.ENDED)
    pid = person.pid
    assert person.listed
    assert psutil.pid_exists(pid)
    assert await person.value("x") == "1"


async def test_deleting_the_session_stops_what_it_runs(engine: ExecEngine, person: Person) -> None:
    session = await attach(engine, person)
    execution = await begin(engine, session, f"print(1, flush=True)\n{FOR_EVER}")
    waiting = await begin(engine, session, "never = True")
    await running(execution)
    await engine.delete_session(ME, session.id)
    assert execution.record.state is waiting.record.state is ExecutionState.CANCELLED
    assert await person.value("'never' in globals()") == "False"


@only_in_full
async def test_deleting_the_session_while_the_person_computes_does_not_wait(engine: ExecEngine, person: Person) -> None:
    session, second = await attach(engine, person), await attach(engine, person)
    theirs = await person.begin("import time; time.sleep(1.5)")
    executions = [await begin(engine, session, "1"), await begin(engine, second, "2")]
    await until(lambda: all(engine._registry.sessions[s.id].current is not None for s in (session, second)))
    for one in (second, session):
        await asyncio.wait_for(engine.delete_session(ME, one.id), 1)
    assert {execution.record.state for execution in executions} == {ExecutionState.CANCELLED}
    assert (await person.reply(theirs))["status"] == "ok"


async def test_the_session_goes_on_after_the_person_restarts(engine: ExecEngine, person: Person) -> None:
    session = await attach(engine, person)
    execution = await begin(engine, session, f"x = 1\nprint(x, flush=True)\n{FOR_EVER}")
    await running(execution)
    await person.restart()
    ended = await execution.wait(20)
    assert (ended.state, ended.session_state_preserved) == (ExecutionState.KERNEL_DIED, False)
    after = await run(engine, session, "'x' in globals()")
    assert (after.state, after.kernel_starts) == (ExecutionState.OK, 2)
    assert after.outputs[0]["data"]["text/plain"] == "False"


@only_in_full
async def test_the_hosts_restarter_brings_a_killed_kernel_back(engine: ExecEngine, person: Person) -> None:
    session = await attach(engine, person)
    execution = await begin(engine, session, f"print(1, flush=True)\n{FOR_EVER}")
    await running(execution)
    os.kill(person.pid, signal.SIGKILL)
    ended = await execution.wait(20)
    assert (ended.state, ended.kernel_signal) == (ExecutionState.KERNEL_DIED, "SIGKILL")
    after = await run(engine, session, "6 * 7")
    assert (after.state, after.kernel_starts) == (ExecutionState.OK, 2)
    await person.client.wait_for_ready(timeout=20)
    assert await person.value("1") == "1"


@pytest.mark.parametrize("how", ["killed", "restarted"])
async def test_what_waits_for_its_turn_runs_in_the_fresh_kernel(engine: ExecEngine, person: Person, how: str) -> None:
    session = await attach(engine, person)
    await person.begin(FOR_EVER)
    waiting = await begin(engine, session, "6 * 7")
    await until(lambda: engine._registry.sessions[session.id].current is waiting)
    if how == "killed":
        os.kill(person.pid, signal.SIGKILL)
    else:
        await person.restart(now=True)  # a polite one interrupts first, and the old kernel may still run what waits
    ended = await waiting.wait(20)
    assert (ended.state, ended.kernel_starts) == (ExecutionState.OK, 2)


async def test_what_waits_ends_with_the_kernel(engine: ExecEngine, person: Person) -> None:
    session = await attach(engine, person)
    await person.begin(FOR_EVER)
    waiting = [await begin(engine, session, "1") for _ in range(3)]
    await person.manager.shutdown_kernel(person.kernel_id, now=True)
    for execution in waiting:
        assert (await execution.wait(20)).state in (ExecutionState.CANCELLED, ExecutionState.KERNEL_DIED)
    await until(lambda: engine._registry.sessions[session.id].record.state is SessionState.ENDED)


async def test_a_death_while_the_session_rests_is_noticed(engine: ExecEngine, person: Person) -> None:
    session = await attach(engine, person)
    os.kill(person.pid, signal.SIGKILL)
    await until(lambda: engine._registry.sessions[session.id].kernel.connection is None)
    assert (await run(engine, session, "1")).kernel_starts == 2


@pytest.mark.parametrize("busy", [True, False])
async def test_the_session_ends_when_the_person_shuts_the_kernel_down(
    engine: ExecEngine, person: Person, busy: bool
) -> None:
    session = await attach(engine, person)
    execution = await begin(engine, session, f"print(1, flush=True)\n{FOR_EVER if busy else ''}")
    await (running(execution) if busy else execution.wait(20))
    await person.manager.shutdown_kernel(person.kernel_id, now=True)
    await until(lambda: engine._registry.sessions[session.id].record.state is SessionState.ENDED)
    assert execution.record.state is (ExecutionState.KERNEL_DIED if busy else ExecutionState.OK)
    with pytest.raises(SessionEnded, match="shut down outside"):
        await run(engine, session, "1")


async def test_a_kernel_that_nobody_restarts_is_said_to_be_dead(
    engine: ExecEngine, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await attach(engine, person)
    person.manager.get_kernel(person.kernel_id).stop_restarter()
    os.kill(person.pid, signal.SIGKILL)
    await until(lambda: engine._registry.sessions[session.id].kernel.connection is None)
    with monkeypatch.context() as patch:
        patch.setattr("jupyter_exec_ext.engine.kernels.hosted_kernel._SETTLE_LIMIT_SECONDS", 0.5)
        execution = await run(engine, session, "1")
    assert execution.state is ExecutionState.KERNEL_DIED
    assert "restart it in the notebook" in str(execution.reason)
    # At once: otherwise jupyter_client asks the dead kernel to end, and the new one sometimes gets that message.
    await person.restart(now=True)
    assert (await run(engine, session, "1")).state is ExecutionState.OK


async def test_restarting_is_the_persons(engine: ExecEngine, person: Person) -> None:
    session = await attach(engine, person)
    with pytest.raises(Conflict, match="in the notebook"):
        await engine.restart_session(ME, session.id)
    assert (await run(engine, session, "1")).kernel_starts == 1


# --- who may, and what ---


async def bearer(engine: ExecEngine, scopes: Iterable[str] = ALL_SCOPES, **limits: Any) -> Caller:
    """Return the bearer of a new token, without other limits than those named."""
    request = TokenRequest("t", "trusted", tuple(scopes), limits=limits)
    issued = await engine.tokens.create(owner("me", {"username": "me"}), request)
    return engine.tokens.authenticate(issued.text, "127.0.0.1")


async def test_a_sessions_own_kernel_cannot_be_attached(make_engine: Any) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    agent, other = await bearer(engine), await bearer(engine)
    own = await engine.create_session(agent, SessionRequest())
    for caller in (agent, ME):
        with pytest.raises(Conflict, match=own.id):
            await engine.create_session(caller, SessionRequest(kernel_id=own.kernel_id))
    with pytest.raises(KernelNotFound):
        await engine.create_session(other, SessionRequest(kernel_id=own.kernel_id))
    assert len(await engine.list_sessions(ME)) == 1


async def test_nor_while_it_starts(engine: ExecEngine, manager: AsyncMappingKernelManager) -> None:
    starting = asyncio.ensure_future(engine.create_session(ME, SessionRequest()))
    await until(lambda: bool(manager.list_kernel_ids()))
    while not starting.done():
        for kernel_id in manager.list_kernel_ids():
            with pytest.raises((KernelNotFound, Conflict)):
                await engine.create_session(ME, SessionRequest(kernel_id=kernel_id))
        await asyncio.sleep(0.01)
    await starting


@pytest.mark.parametrize("kernel_id", ["", "nope", "../x"])
async def test_an_unknown_kernel_is_not_found(engine: ExecEngine, kernel_id: str) -> None:
    with pytest.raises(KernelNotFound):
        await engine.create_session(ME, SessionRequest(kernel_id=kernel_id))


async def test_each_way_of_making_a_session_needs_its_scope(make_engine: Any, person: Person) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    attaching, creating = await bearer(engine, ["kernels:attach"]), await bearer(engine, ["sessions:create"])
    with pytest.raises(MissingScope, match="sessions:create"):
        await engine.create_session(attaching, SessionRequest())
    with pytest.raises(MissingScope, match="kernels:attach"):
        await attach(engine, person, creating)
    assert (await attach(engine, person, attaching)).owner == attaching.principal


async def test_a_policy_has_to_let_kernels_be_attached(make_engine: Any, person: Person) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    with pytest.raises(PolicyDenied, match="does not let kernels be attached"):
        await attach(engine, person, await bearer(engine, attach=False))
    with pytest.raises(PolicyDenied, match="kernelspecs"):
        await attach(engine, person, await bearer(engine, kernelspecs=["other"]))
    agent = await bearer(engine)
    assert (await attach(engine, person, agent)).owner == agent.principal
    closed = make_engine()
    with pytest.raises(IsolationRequired):
        await attach(closed, person, await bearer(closed))


async def test_a_policys_limits_are_not_set_on_the_persons_kernel(make_engine: Any, person: Person) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    before = psutil.Process(person.pid).rlimit(psutil.RLIMIT_AS)
    with pytest.raises(IsolationRequired, match="max_memory_bytes"):
        await attach(engine, person, await bearer(engine, max_memory_bytes=4 * 1024**3))
    assert psutil.Process(person.pid).rlimit(psutil.RLIMIT_AS) == before
    assert await person.value("1") == "1"


async def test_waiting_for_the_person_counts_as_waiting(make_engine: Any, person: Person) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    caller = await bearer(engine, max_queue_seconds=0.3)
    session = await attach(engine, person, caller)
    theirs = await person.begin("import time; time.sleep(1.5)")
    execution = await engine.execute(caller, session.id, ExecutionRequest("never = True"))
    ended = await execution.wait(20)
    assert (ended.state, ended.started_at) == (ExecutionState.TIMEOUT, None)
    assert (await person.reply(theirs))["status"] == "ok"
    assert await person.value("'never' in globals()") == "False"


async def test_two_sessions_on_one_kernel_keep_apart(engine: ExecEngine, person: Person) -> None:
    sessions = [await attach(engine, person) for _ in range(2)]
    handles = [
        (number, await begin(engine, sessions[number % 2], f"print({number})\n{number}")) for number in range(20)
    ]
    for number, handle in handles:
        execution = await handle.wait(20)
        assert (execution.state, execution.stdout) == (ExecutionState.OK, f"{number}\n")
        assert execution.outputs[-1]["data"]["text/plain"] == str(number)


async def test_what_waits_for_another_session_is_queued(engine: ExecEngine, person: Person) -> None:
    first, second = await attach(engine, person), await attach(engine, person)
    busy = await begin(engine, first, f"print(1, flush=True)\n{FOR_EVER}")
    await running(busy)
    waiting = await begin(engine, second, "never = True")
    assert (await waiting.wait(0.3)).state is ExecutionState.QUEUED
    assert (await engine.cancel(ME, waiting.record.id)).started_at is None
    assert busy.record.state is ExecutionState.RUNNING
    await engine.cancel(ME, busy.record.id)
    assert await person.value("'never' in globals()") == "False"


async def test_of_two_that_wait_for_the_person_one_is_sent(engine: ExecEngine, person: Person) -> None:
    first, second = await attach(engine, person), await attach(engine, person)
    await person.begin("import time; time.sleep(0.5)")
    executions = [await begin(engine, session, f"print(1, flush=True)\n{FOR_EVER}") for session in (first, second)]
    for execution, other in (executions, executions[::-1]):
        await running(execution)
        await other.wait(0.2)
        assert other.record.state is (ExecutionState.QUEUED if execution is executions[0] else ExecutionState.CANCELLED)
        await engine.cancel(ME, execution.record.id)


async def test_there_are_no_files_of_such_a_session(engine: ExecEngine, person: Person) -> None:
    session = await attach(engine, person)
    for verb in (engine.files.open, engine.files.delete, engine.files.digest):
        with pytest.raises(FilesNotAvailable):
            await verb(ME, session.id, "x")
    with pytest.raises(FilesNotAvailable):
        await engine.files.create(ME, session.id, "x", 1)
    with pytest.raises(FilesNotAvailable):
        await engine.files.list(ME, session.id, is_wanted=lambda: True)


async def test_nothing_is_left_when_the_session_ends(engine: ExecEngine, person: Person) -> None:
    async def once() -> None:
        session = await attach(engine, person)
        await run(engine, session, "1")
        await engine.delete_session(ME, session.id)

    await once()  # the engine's own
    tasks, descriptors = len(asyncio.all_tasks()), count_descriptors()
    for _ in range(5):
        await once()
    await until(lambda: len(asyncio.all_tasks()) <= tasks + 1)  # the one that looks
    await until(lambda: count_descriptors() <= descriptors)


def count_descriptors() -> int:
    """Return how many files and sockets are open, but for the store's, which opens its index of texts when it likes."""
    process = psutil.Process()
    return process.num_fds() - sum("jupyter_exec_ext" in file.path for file in process.open_files())
