"""The session that tools run their code in, through our API and through the standard one."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from jupyter_exec_ext import AsyncExecClient, ExecClient
from jupyter_exec_ext.adapters._code_session import CodeSession
from jupyter_exec_ext.adapters._session import ToolSession
from jupyter_exec_ext.adapters._shared import NotRun
from jupyter_exec_ext.errors import SessionEnded
from jupyter_exec_ext.models import Execution, ExecutionState
from tests.adapters.doorbell import Doorbell
from tests.support.hosts import Host, running_host


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Jupyter Server without our API."""
    with running_host("server", tmp_path_factory.mktemp("plain"), "--ExecExtensionApp.enabled=False") as host:
        yield host


@pytest.fixture(params=["server", "plain server"])
def server(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = request.getfixturevalue("plain_server") if request.param == "plain server" else hosts["server"]
    return started


@pytest.fixture
def session(server: Host) -> Iterator[ToolSession]:
    with ToolSession(server.info, timeout_seconds=60) as session:
        yield session


def kernels(server: Host) -> set[str]:
    answer = requests.get(f"{server.info.url}api/kernels", headers=server.info.auth_headers, timeout=30)
    return {kernel["id"] for kernel in answer.json()}


def remove_kernel(server: Host, kernel_id: str) -> None:
    url = f"{server.info.url}api/kernels/{kernel_id}"
    requests.delete(url, headers=server.info.auth_headers, timeout=30).raise_for_status()


async def test_it_is_opened_when_it_is_needed_and_ended_when_it_is_closed(server: Host) -> None:
    before = kernels(server)
    session = ToolSession(server.info)
    assert kernels(server) == before
    await session.run_async("1")
    assert len(kernels(server) - before) == 1
    session.close()
    session.close()
    assert kernels(server) == before


async def test_both_kinds_of_runs_are_in_one_session(session: ToolSession) -> None:
    await asyncio.to_thread(session.run, "x = 1")
    assert (await session.run_async("x += 1; print(x)")).to_text() == "2\n"
    assert (await asyncio.to_thread(session.run, "print(x)")).to_text() == "2\n"


def test_many_who_need_it_first_open_it_once(server: Host) -> None:
    before = kernels(server)
    with ToolSession(server.info) as session, ThreadPoolExecutor(6) as pool:
        assert [e.to_text() for e in pool.map(session.run, [f"print({n})" for n in range(6)])] == [
            f"{n}\n" for n in range(6)
        ]
        assert len(kernels(server) - before) == 1


async def test_cancelling_a_task_stops_its_code_and_not_the_session(session: ToolSession, doorbell: Doorbell) -> None:
    await session.run_async("kept = 1")
    running = asyncio.create_task(session.run_async(doorbell.code))
    await doorbell.wait_async()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    again = await asyncio.wait_for(session.run_async("print(kept)"), 30)  # the code's own time limit is longer
    assert again.to_text() == "1\n"


async def test_cancelling_what_waits_for_its_turn_leaves_what_runs_alone(
    session: ToolSession, doorbell: Doorbell
) -> None:
    code = doorbell.code.replace("while True:\n    pass", "import time; time.sleep(2); print('whole')")
    running = asyncio.create_task(session.run_async(code))
    await doorbell.wait_async()
    waiting = asyncio.create_task(session.run_async("touched = True"))
    await asyncio.sleep(0.5)  # it may be anywhere on its way
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await running).to_text() == "whole\n"
    assert (await session.run_async("print('touched' in globals())")).to_text() == "False\n"


async def test_an_ended_kernel_is_replaced_once_that_was_said(plain_server: Host) -> None:
    with ToolSession(plain_server.info) as session:
        await session.run_async("x = 1")
        await asyncio.to_thread(remove_kernel, plain_server, session.open().id)
        died = await session.run_async("x")
        assert isinstance(died, Execution) and died.state is ExecutionState.KERNEL_DIED
        told = await session.run_async("x")
        assert isinstance(told, NotRun) and told.session_lost
        assert "variables, imports and definitions are gone" in told.to_text()
        assert (await session.run_async("print('x' in globals())")).to_text() == "False\n"


async def test_a_kernel_without_our_api_that_was_there_before_is_used_and_left(plain_server: Host) -> None:
    with ExecClient(plain_server.info) as client, client.standard_session() as given:
        with ToolSession(session=given) as session:
            await session.run_async("x = 1")
            assert (await asyncio.to_thread(session.run, "print(x)")).to_text() == "1\n"
        assert given.run("x").ok
        with pytest.raises(ValueError, match="AsyncStandardExecSession"):
            CodeSession(session=given)


def test_what_waits_when_it_is_closed_does_not_open_it_again(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosts["server"]
    before = kernels(host)
    opening, may_go_on = threading.Event(), threading.Event()
    new = ExecClient.session

    def slow(self: ExecClient, *args: Any, **options: Any) -> Any:
        opening.set()
        assert may_go_on.wait(60)
        return new(self, *args, **options)

    monkeypatch.setattr(ExecClient, "session", slow)
    with ToolSession(host.info) as session, ThreadPoolExecutor(3) as pool:
        first = pool.submit(session.run, "1")
        assert opening.wait(60)
        times_closed = session._times_closed
        closing = pool.submit(session.close)  # gets its turn after whoever opens it
        may_go_on.set()
        closing.result(60)
        with pytest.raises(SessionEnded, match="closed"):
            session._open(times_closed)  # as a run does that began before
        first.exception(60)  # it ran, or was too late: as the threads came
    assert kernels(host) == before


async def test_asynchronous_runs_of_a_loop_have_one_client(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[AsyncExecClient] = []
    asked: list[str] = []
    init, get = AsyncExecClient.__init__, AsyncExecClient.get_session

    def noted(self: AsyncExecClient, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        made.append(self)

    async def noted_get(self: AsyncExecClient, session_id: str) -> Any:
        asked.append(session_id)
        return await get(self, session_id)

    monkeypatch.setattr(AsyncExecClient, "__init__", noted)
    monkeypatch.setattr(AsyncExecClient, "get_session", noted_get)
    with ToolSession(hosts["server"].info) as session:
        for number in range(3):
            assert (await session.run_async(str(number))).to_text() == str(number)
        assert len(made) == len(asked) == 1
        outcomes = await asyncio.gather(*(session.run_async(str(number)) for number in range(3)))
        assert [outcome.to_text() for outcome in outcomes] == ["0", "1", "2"]
        await asyncio.to_thread(asyncio.run, in_two_runs(session))
        assert len(made) == len(asked) == 2
        assert made[1]._driver._closed  # with its loop
        assert not made[0]._driver._closed
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))
    await asyncio.sleep(0)  # closing was asked for on this loop
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))
    assert made[0]._driver._closed


async def in_two_runs(session: ToolSession) -> None:
    for number in range(2):
        assert (await session.run_async(str(number))).to_text() == str(number)


async def test_closing_lets_a_run_of_a_session_that_was_there_before_end(hosts: Any, doorbell: Doorbell) -> None:
    code = doorbell.code.replace("while True:\n    pass", "import time; time.sleep(1); print('whole')")
    with ExecClient(hosts["server"].info) as client, client.session() as given:
        tool = ToolSession(session=given)
        running = asyncio.create_task(tool.run_async(code))
        await doorbell.wait_async()
        tool.close()
        assert (await running).to_text() == "whole\n"
        own = CodeSession(session=given)
        running = asyncio.create_task(own.run(code))
        await doorbell.wait_async()
        await own.close()
        assert (await running).to_text() == "whole\n"
        assert (await own.run("1")).ok
        await own.close()


def test_a_copy_works_in_the_same_session(hosts: Any) -> None:
    with ToolSession(hosts["server"].info) as session:
        session.run("x = 1")
        assert copy.deepcopy(session).run("print(x)").to_text() == "1\n"
        assert str(hosts["server"].info.token) not in repr(session)
