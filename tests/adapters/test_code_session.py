"""What the asynchronous adapters stand on, without any framework."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import AsyncExecClient, ExecClient, LocalJupyterServer
from jupyter_exec_ext.adapters._autogen_resources import SessionWithFunctions, run_own_server
from jupyter_exec_ext.adapters._code_session import CodeSession
from jupyter_exec_ext.adapters._conversations import Conversations
from jupyter_exec_ext.adapters._tool_text import NotRun
from jupyter_exec_ext.errors import ConnectionFailed, KernelSpecNotFound, SessionEnded
from jupyter_exec_ext.executors.function_loading import FunctionsModule
from jupyter_exec_ext.models import Execution
from tests.adapters.beacon import beacon
from tests.support.full import only_in_full
from tests.support.hosts import Host, free_port, running_host


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Jupyter Server without our API."""
    with running_host("server", tmp_path_factory.mktemp("plain"), "--ExecExtensionApp.enabled=False") as host:
        yield host


@pytest.fixture
async def session(local_server: LocalJupyterServer) -> AsyncIterator[CodeSession]:
    async with CodeSession(local_server, timeout_seconds=20) as session:
        yield session


async def test_session_opens_once_on_first_run(session: CodeSession, client: ExecClient) -> None:
    assert client.list_sessions() == []
    outcomes = await asyncio.gather(*(session.run(f"n = {'n + 1' if i else 0}; n") for i in range(5)))
    assert [outcome.to_text() for outcome in outcomes] == ["0", "1", "2", "3", "4"]
    assert len(client.list_sessions()) == 1


async def test_open_and_run_do_not_block_the_event_loop(session: CodeSession) -> None:
    longest = 0.0
    running = asyncio.create_task(session.run("import time; time.sleep(1)"))
    while not running.done():
        began = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - began)
    assert (await running).ok
    assert longest < 0.5  # starting a kernel takes as long, and the code takes twice as long


async def test_a_server_without_our_api(plain_server: Host) -> None:
    async with CodeSession(plain_server.info) as session:
        assert (await session.run("6 * 7")).to_text() == "42"


async def test_refused_code_is_an_answer_for_the_model(session: CodeSession) -> None:
    outcome = await session.run("fn main() {}", "rust")
    assert isinstance(outcome, NotRun)
    assert not outcome.ok
    assert outcome.to_text().startswith("Not run: ")
    assert [part.text for part in outcome.to_content()] == [outcome.to_text()]  # type: ignore[union-attr]
    assert (await session.run("1")).ok


async def test_close_ends_running_and_waiting_code_and_reopens_on_use(session: CodeSession, client: ExecClient) -> None:
    async with beacon() as light:
        runs = asyncio.create_task(session.run(light.code))
        await light.lit()
        waits = asyncio.create_task(session.run("1"))
        await asyncio.sleep(0)  # it waits for its turn now
        await session.close()
        await light.out()
        outcome = await runs
        assert not outcome.ok
        with pytest.raises(SessionEnded, match="closed"):
            await waits
    assert client.list_sessions() == []
    await session.close()
    assert (await session.run("'beacon' in globals()")).to_text() == "False"


async def test_close_while_opening_leaves_no_session(
    session: CodeSession, client: ExecClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, may_go_on = asyncio.Event(), asyncio.Event()
    new = AsyncExecClient.session

    async def slow(self: AsyncExecClient, *args: Any, **options: Any) -> Any:
        opened = await new(self, *args, **options)
        opening.set()
        await may_go_on.wait()
        return opened

    monkeypatch.setattr(AsyncExecClient, "session", slow)
    run = asyncio.create_task(session.run("1"))
    await opening.wait()
    await session.close()
    may_go_on.set()
    with pytest.raises(SessionEnded):
        await run
    assert client.list_sessions() == []


async def test_restart_gives_a_fresh_kernel_even_after_the_session_ended(
    session: CodeSession, client: ExecClient
) -> None:
    await session.restart()  # before there is one
    await session.run("x = 1")
    await session.restart()
    assert (await session.run("'x' in globals()")).to_text() == "False"
    client.get_session(client.list_sessions()[0].id).close()
    await session.restart()
    assert (await session.run("'x' in globals()")).to_text() == "False"


async def test_given_session_is_neither_replaced_nor_closed(local_server: LocalJupyterServer) -> None:
    async with AsyncExecClient(local_server) as client, await client.session() as given:
        async with CodeSession(session=given) as session:
            assert isinstance(await session.run("x = 1"), Execution)
            await session.restart()
        assert (await given.run("'x' in globals()")).ok
        await given.close()
        async with session:
            with pytest.raises(SessionEnded):
                await session.run("1")
            with pytest.raises(SessionEnded):
                await session.restart()
        with pytest.raises(ValueError, match="has its token"):
            CodeSession(token="x", session=given)
        with pytest.raises(ValueError, match="give a server"):
            CodeSession(local_server, session=given)


def double(number: int) -> int:
    return 2 * number


async def test_functions_are_in_the_fresh_kernel_of_a_given_session_that_was_first_restarted(
    local_server: LocalJupyterServer,
) -> None:
    async with (
        AsyncExecClient(local_server) as client,
        await client.session() as given,
        SessionWithFunctions(FunctionsModule([double], "functions"), session=given) as session,
    ):
        await session.restart()
        assert (await session.run("double(21)")).to_text() == "42"


@only_in_full
async def test_a_server_that_is_not_there_or_goes_away(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailed):
        await CodeSession(f"http://127.0.0.1:{free_port()}/").run("1")
    server = await asyncio.to_thread(LocalJupyterServer, log_file=str(tmp_path / "log"))
    async with CodeSession(server) as session:
        await session.run("1")
        await asyncio.to_thread(server.stop)


async def test_unknown_kernel_raises_kernel_spec_not_found(local_server: LocalJupyterServer) -> None:
    async with CodeSession(local_server, kernel_name="nothing") as session:
        with pytest.raises(KernelSpecNotFound):
            await session.run("1")


def test_session_works_on_consecutive_event_loops(local_server: LocalJupyterServer) -> None:
    session = CodeSession(local_server)

    async def use() -> list[str]:
        async with session:
            outcomes = await asyncio.gather(session.run("1"), session.run("2"), session.run("3"))
            return [outcome.to_text() for outcome in outcomes]

    for _ in range(2):
        assert asyncio.run(use()) == ["1", "2", "3"]


async def test_conversations_are_isolated_and_end_when_released(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    conversations = Conversations(lambda: CodeSession(local_server))
    for name in "abc":
        conversations.retain(name)
        await conversations.run(name, f"x = {name!r}")
    conversations.retain("b")
    assert (await conversations.run("a", "x")).to_text() == "'a'"
    for name in "abc":
        await conversations.release(name)
    assert len(client.list_sessions()) == 1
    conversations.retain_all()
    await conversations.release("b")
    assert (await conversations.run("b", "x")).to_text() == "'b'"
    await conversations.release_all()
    assert client.list_sessions() == []


async def test_least_recently_used_conversation_makes_room(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    conversations = Conversations(lambda: CodeSession(local_server), max_conversations=2)
    async with beacon() as light:
        running = asyncio.create_task(conversations.run("runs", light.code))
        await light.lit()
        for name in "ab":
            await conversations.run(name, f"x = {name!r}")  # the first that is idle makes room, not what runs
            assert len(client.list_sessions()) == 2
        told = await conversations.run("a", "x")
        assert isinstance(told, NotRun) and told.session_lost
        assert "to make room for other conversations" in told.to_text()
        assert (await conversations.run("a", "'x' in globals()")).to_text() == "False"
        conversations.retain("a")
        assert (await conversations.run("c", "1")).to_text() == "1"  # nothing can make room
        assert len(client.list_sessions()) == 3
        await conversations.close_all()
        await running
    assert client.list_sessions() == []
    assert (await conversations.run("b", "1")).to_text() == "1"  # it was not its session alone that was closed
    await conversations.close_all()
    with pytest.raises(ValueError, match="at least 1"):
        Conversations(lambda: CodeSession(local_server), max_conversations=0)


async def test_limit_applies_to_idle_sessions_that_are_retained_together(
    local_server: LocalJupyterServer, client: ExecClient
) -> None:
    conversations = Conversations(lambda: CodeSession(local_server), max_conversations=1)
    conversations.retain_all()
    for name in "ab":
        await conversations.run(name, "1")
        assert len(client.list_sessions()) == 1
    await conversations.release_all()
    assert client.list_sessions() == []


async def test_own_server_is_stopped_when_its_start_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[LocalJupyterServer] = []

    class Noted(LocalJupyterServer):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            started.append(self)

    monkeypatch.setattr("jupyter_exec_ext.adapters._autogen_resources.LocalJupyterServer", Noted)
    entering = asyncio.create_task(run_own_server().__aenter__())
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # its thread has begun
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    (server,) = started
    assert server._subprocess.poll() is not None
