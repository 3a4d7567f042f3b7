"""Sessions' kernels in Jupyter's own API, on real kernels: they count as used, have names, and are culled when idle."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.multikernelmanager import AsyncMultiKernelManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from jupyter_server.services.sessions.sessionmanager import ModelName, SessionManager

from jupyter_exec_ext.assembly import build_engine, build_host
from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.kernels.kernel_host import ManagerKernelHost
from jupyter_exec_ext.errors import KernelStartFailed, SessionEnded
from jupyter_exec_ext.models import ExecutionRequest, Session, SessionRequest, SessionState, TokenRequest

ME = owner("me", {"username": "me"})
SHUT_DOWN = "its kernel was shut down outside the session"


@pytest.fixture
def server_sessions(manager: AsyncMappingKernelManager) -> Iterator[SessionManager]:
    """The session manager that Jupyter Server uses."""
    sessions = SessionManager(kernel_manager=manager)
    yield sessions
    sessions.close()  # its cursor must not be closed by another thread, when the garbage is collected


@pytest.fixture
async def engine(manager: AsyncMappingKernelManager, server_sessions: SessionManager) -> AsyncIterator[ExecEngine]:
    specs: Any = manager.kernel_spec_manager
    engine = build_engine(build_host(manager, specs, server_sessions=server_sessions), allow_unprotected_tokens=True)
    yield engine
    await engine.shutdown()


@pytest.fixture
async def notebook(manager: AsyncMappingKernelManager) -> AsyncIterator[str]:
    """The id of a kernel that a notebook has."""
    kernel_id = await manager.start_kernel(kernel_name="python3")
    client: Any = manager.get_kernel(kernel_id).client()
    client.start_channels()
    await client.wait_for_ready(timeout=30)
    client.stop_channels()
    yield kernel_id
    if kernel_id in manager:
        await manager.shutdown_kernel(kernel_id, now=True)


async def begin(engine: ExecEngine, **request: Any) -> tuple[Session, str]:
    """Return a new session and the id of its kernel."""
    session = await engine.create_session(ME, SessionRequest(**request))
    assert session.kernel_id is not None
    return session, session.kernel_id


async def run(engine: ExecEngine, session: Session, code: str) -> str:
    return (await (await engine.execute(ME, session.id, ExecutionRequest(code))).wait(30)).stdout


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async def look() -> None:
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    await asyncio.wait_for(look(), 30)


async def ended(engine: ExecEngine, session: Session) -> str | None:
    """Wait for the end of a session; return its reason."""

    async def has_ended() -> bool:
        return (await engine.get_session(ME, session.id)).state is SessionState.ENDED

    await until(has_ended)
    return (await engine.get_session(ME, session.id)).ended_reason


def connections(manager: AsyncMappingKernelManager, kernel_id: str) -> int:
    return int(manager.kernel_model(kernel_id)["connections"])


def uses(engine: ExecEngine) -> dict[str, Any]:
    host = engine.host
    assert isinstance(host, ManagerKernelHost)
    return host._uses._uses


def names(listed: list[dict[str, Any]]) -> list[str]:
    return [each["name"] for each in listed]


async def test_session_is_connection_and_server_session_until_it_ends(
    engine: ExecEngine, manager: AsyncMappingKernelManager, server_sessions: SessionManager
) -> None:
    session, kernel_id = await begin(engine, name="analysis")
    assert connections(manager, kernel_id) == 1
    assert [model["connections"] for model in manager.list_kernels()] == [1]
    (listed,) = await server_sessions.list_sessions()
    assert (listed["name"], listed["type"], listed["path"]) == ("analysis", "exec", f"exec:{session.id}")
    assert listed["kernel"] == manager.kernel_model(kernel_id)
    await run(engine, session, "print(1)")
    await engine.restart_session(ME, session.id)
    assert connections(manager, kernel_id) == 1
    assert names(await server_sessions.list_sessions()) == ["analysis"]
    await engine.delete_session(ME, session.id)
    assert (uses(engine), await server_sessions.list_sessions()) == ({}, [])


async def test_kernel_of_pool_is_listed_once_a_session_has_it(
    engine: ExecEngine, manager: AsyncMappingKernelManager, server_sessions: SessionManager
) -> None:
    async def filled() -> bool:
        return engine.pool.ready == 1

    await engine.delete_session(ME, (await begin(engine))[0].id)
    await until(filled)
    assert (uses(engine), await server_sessions.list_sessions()) == ({}, [])
    session, kernel_id = await begin(engine, name="pooled")
    assert session.state is SessionState.IDLE
    assert connections(manager, kernel_id) == 1
    assert names(await server_sessions.list_sessions()) == ["pooled"]


async def test_kernel_counts_as_used_while_it_starts(
    engine: ExecEngine, manager: AsyncMappingKernelManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    start_kernel = manager.start_kernel

    async def start_and_look(**options: Any) -> str:
        kernel_id = await start_kernel(**options)
        seen.append(connections(manager, kernel_id))
        return kernel_id

    monkeypatch.setattr(manager, "start_kernel", start_and_look)
    await begin(engine)
    assert seen == [1]


async def test_attached_sessions_are_connections_until_they_end(
    engine: ExecEngine, manager: AsyncMappingKernelManager, server_sessions: SessionManager, notebook: str
) -> None:
    await server_sessions.create_session(path="a.ipynb", name=ModelName("a.ipynb"), type="notebook", kernel_id=notebook)
    first, _ = await begin(engine, kernel_id=notebook, name="first")
    second, _ = await begin(engine, kernel_id=notebook, name="second")
    assert connections(manager, notebook) == 2
    assert names(await server_sessions.list_sessions()) == ["a.ipynb", "first", "second"]
    await engine.delete_session(ME, first.id)
    assert connections(manager, notebook) == 1
    await engine.delete_session(ME, second.id)
    assert connections(manager, notebook) == 0
    assert names(await server_sessions.list_sessions()) == ["a.ipynb"]


async def test_attached_session_leaves_the_hosts_own_count_alone(
    engine: ExecEngine, manager: AsyncMappingKernelManager, notebook: str
) -> None:
    """With 0 connections of its own, Jupyter Server keeps the output for a notebook that was cut off."""
    await begin(engine, kernel_id=notebook)
    assert manager._kernel_connections[notebook] == 0


async def test_attaching_that_fails_gives_the_connection_back(
    engine: ExecEngine, manager: AsyncMappingKernelManager, notebook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise KernelStartFailed("refused")

    monkeypatch.setattr("jupyter_exec_ext.engine.kernels.kernel_start.KernelStarter.open", refuse)
    with pytest.raises(KernelStartFailed):
        await begin(engine, kernel_id=notebook)
    assert (uses(engine), connections(manager, notebook)) == ({}, 0)


async def test_start_that_fails_leaves_no_use(
    engine: ExecEngine, manager: AsyncMappingKernelManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(**options: Any) -> str:
        raise RuntimeError("no kernel today")

    monkeypatch.setattr(manager, "start_kernel", fail)
    with pytest.raises(KernelStartFailed, match="no kernel today"):
        await begin(engine)
    assert uses(engine) == {}


async def test_shutdown_that_fails_leaves_the_kernel_unused(
    engine: ExecEngine, manager: AsyncMappingKernelManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(kernel_id: str, **options: Any) -> None:
        raise RuntimeError("it stays")

    session, kernel_id = await begin(engine)
    with monkeypatch.context() as patch:
        patch.setattr(manager, "shutdown_kernel", fail)
        await engine.delete_session(ME, session.id)
    assert connections(manager, kernel_id) == 0
    await manager.shutdown_kernel(kernel_id, now=True)


async def test_kernel_in_place_of_one_that_died_has_the_name(
    engine: ExecEngine, manager: AsyncMappingKernelManager, server_sessions: SessionManager
) -> None:
    session, kernel_id = await begin(engine, name="goes on")
    await run(engine, session, "import threading, os; threading.Timer(0.1, lambda: os._exit(1)).start()")
    kernel: Any = manager.get_kernel(kernel_id)

    async def dead() -> bool:
        return bool(kernel.execution_state == "dead")

    await until(dead)
    await manager.cull_kernel_if_idle(kernel_id)
    assert await run(engine, session, "print('again')") == "again\n"
    (listed,) = await server_sessions.list_sessions()
    assert listed["name"] == "goes on"
    assert list(uses(engine)) == [listed["kernel"]["id"]] != [kernel_id]


async def test_server_session_that_a_client_deletes_ends_the_session(
    engine: ExecEngine, server_sessions: SessionManager
) -> None:
    session, _ = await begin(engine)
    (listed,) = await server_sessions.list_sessions()
    await server_sessions.delete_session(listed["id"])
    assert await ended(engine, session) == SHUT_DOWN
    assert (uses(engine), await server_sessions.list_sessions()) == ({}, [])
    with pytest.raises(SessionEnded, match="outside the session"):
        await run(engine, session, "1")


async def test_server_session_that_was_given_another_kernel_stays(
    engine: ExecEngine, server_sessions: SessionManager, notebook: str
) -> None:
    session, _ = await begin(engine)
    (listed,) = await server_sessions.list_sessions()
    await server_sessions.update_session(listed["id"], kernel_id=notebook)
    await engine.delete_session(ME, session.id)
    assert [each["kernel"]["id"] for each in await server_sessions.list_sessions()] == [notebook]


async def test_name_has_the_tokens_name_and_hides_nothing(engine: ExecEngine, server_sessions: SessionManager) -> None:
    issued = await engine.tokens.create(ME, TokenRequest(scopes=tuple(ALL_SCOPES), name="ci\u202eagent"))
    agent = engine.tokens.authenticate(issued.text, "")
    await engine.create_session(agent, SessionRequest(name="a\nb"))
    session = await engine.create_session(agent, SessionRequest())
    found = names(await server_sessions.list_sessions())
    assert found == ["a\ufffdb (ci\ufffdagent)", f"{session.id} (ci\ufffdagent)"]


async def test_session_works_without_its_server_session(
    engine: ExecEngine, server_sessions: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: Any, **columns: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(server_sessions, "save_session", fail)
    session, _ = await begin(engine)
    assert await run(engine, session, "print(1)") == "1\n"
    await engine.delete_session(ME, session.id)


# --- the host's culler ---


def pass_time(manager: AsyncMappingKernelManager, kernel_id: str, seconds: float) -> None:
    kernel: Any = manager.get_kernel(kernel_id)
    kernel.last_activity -= timedelta(seconds=seconds)


async def test_culled_session_says_so(engine: ExecEngine, manager: AsyncMappingKernelManager) -> None:
    manager.cull_idle_timeout = 60
    session, kernel_id = await begin(engine)
    await run(engine, session, "1")  # and what was sent before it, which is activity, too
    pass_time(manager, kernel_id, 59)
    await manager.cull_kernel_if_idle(kernel_id)
    assert kernel_id in manager
    pass_time(manager, kernel_id, 3)
    await manager.cull_kernel_if_idle(kernel_id)
    reason = await ended(engine, session)
    assert re.fullmatch(r"its kernel was shut down, idle for \d+ s \(cull_idle_timeout is 60 s\)", reason or "")


async def test_kernel_with_a_notebook_is_not_culled(engine: ExecEngine, manager: AsyncMappingKernelManager) -> None:
    manager.cull_idle_timeout = 60
    session, kernel_id = await begin(engine)
    await run(engine, session, "1")
    manager.notify_connect(kernel_id)  # somebody has opened a notebook on it
    pass_time(manager, kernel_id, 100)
    await manager.cull_kernel_if_idle(kernel_id)
    assert kernel_id in manager
    assert connections(manager, kernel_id) == 2


async def test_host_without_records_for_the_api_is_left_alone() -> None:
    manager: Any = AsyncMultiKernelManager()
    ManagerKernelHost(manager, KernelSpecManager())
    assert not hasattr(manager, "kernel_model")


async def test_kernels_can_be_listed_while_one_starts(engine: ExecEngine, manager: AsyncMappingKernelManager) -> None:
    starting = asyncio.create_task(manager.start_kernel(kernel_name="python3"))
    left_out = 0
    while not starting.done():
        left_out += len(manager.list_kernel_ids()) - len(manager.list_kernels())
        await asyncio.sleep(0)
    assert left_out, "the kernel was never in the state that the stock list fails for"
    kernel_id = await starting
    assert [model["id"] for model in manager.list_kernels()] == [kernel_id]
    await manager.shutdown_kernel(kernel_id, now=True)
