"""The session that tools run their code in, through our API and through the standard one."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from jupyter_exec_ext import AsyncExecClient, ExecClient
from jupyter_exec_ext.adapters import _session_portal
from jupyter_exec_ext.adapters._code_session import CodeSession
from jupyter_exec_ext.adapters._session_portal import SessionPortal
from jupyter_exec_ext.adapters._tool_text import NotRun
from jupyter_exec_ext.errors import SessionEnded
from jupyter_exec_ext.models import Execution, ExecutionState
from tests.adapters.doorbell import Doorbell
from tests.support.full import only_in_full
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
def session(server: Host) -> Iterator[SessionPortal]:
    with SessionPortal(server.info, timeout_seconds=60) as session:
        yield session


def kernels(server: Host) -> set[str]:
    answer = requests.get(f"{server.info.url}api/kernels", headers=server.info.auth_headers, timeout=30)
    return {kernel["id"] for kernel in answer.json()}


def remove_kernel(server: Host, kernel_id: str) -> None:
    url = f"{server.info.url}api/kernels/{kernel_id}"
    requests.delete(url, headers=server.info.auth_headers, timeout=30).raise_for_status()


async def test_portal_opens_on_first_run_and_close_ends_the_kernel(server: Host) -> None:
    before = kernels(server)
    session = SessionPortal(server.info)
    assert kernels(server) == before
    await session.run_async("1")
    assert len(kernels(server) - before) == 1
    session.close()
    session.close()
    assert kernels(server) == before


async def test_blocking_and_asynchronous_runs_share_one_session(session: SessionPortal) -> None:
    await asyncio.to_thread(session.run, "x = 1")
    assert (await session.run_async("x += 1; print(x)")).to_text() == "2\n"
    assert (await asyncio.to_thread(session.run, "print(x)")).to_text() == "2\n"


def test_concurrent_first_runs_open_one_session(server: Host) -> None:
    before = kernels(server)
    with SessionPortal(server.info) as session, ThreadPoolExecutor(6) as pool:
        assert [e.to_text() for e in pool.map(session.run, [f"print({n})" for n in range(6)])] == [
            f"{n}\n" for n in range(6)
        ]
        assert len(kernels(server) - before) == 1


async def test_cancelling_a_task_stops_its_code_and_not_the_session(session: SessionPortal, doorbell: Doorbell) -> None:
    await session.run_async("kept = 1")
    running = asyncio.create_task(session.run_async(doorbell.code))
    await doorbell.wait_async()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    again = await asyncio.wait_for(session.run_async("print(kept)"), 30)  # the code's own time limit is longer
    assert again.to_text() == "1\n"


async def test_cancelling_a_waiting_run_keeps_the_running_one(session: SessionPortal, doorbell: Doorbell) -> None:
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


@only_in_full
async def test_ended_kernel_is_reported_and_then_replaced(plain_server: Host) -> None:
    with SessionPortal(plain_server.info) as session:
        await session.run_async("x = 1")
        await asyncio.to_thread(remove_kernel, plain_server, session.open().id)
        died = await session.run_async("x")
        assert isinstance(died, Execution) and died.state is ExecutionState.KERNEL_DIED
        told = await session.run_async("x")
        assert isinstance(told, NotRun) and told.session_lost
        assert "variables, imports and definitions are gone" in told.to_text()
        assert (await session.run_async("print('x' in globals())")).to_text() == "False\n"


async def test_given_standard_session_is_used_and_not_ended(plain_server: Host) -> None:
    with ExecClient(plain_server.info) as client, client.standard_session() as given:
        with SessionPortal(session=given) as session:
            await session.run_async("x = 1")
            assert (await asyncio.to_thread(session.run, "print(x)")).to_text() == "1\n"
        assert given.run("x").ok
        async with CodeSession(session=given) as own:
            assert (await own.run("print(x)")).to_text() == "1\n"
        assert given.run("x").ok
    async with AsyncExecClient(plain_server.info) as other_client, await other_client.standard_session() as theirs:
        with pytest.raises(ValueError, match="of the class StandardExecSession"):
            SessionPortal(session=theirs)


def test_close_while_the_session_opens_leaves_no_kernel(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosts["server"]
    before = kernels(host)
    opening, may_go_on = threading.Event(), threading.Event()
    new = AsyncExecClient.session

    async def slow(self: AsyncExecClient, *args: Any, **options: Any) -> Any:
        opened = await new(self, *args, **options)
        opening.set()
        assert await asyncio.to_thread(may_go_on.wait, 60)
        return opened

    monkeypatch.setattr(AsyncExecClient, "session", slow)
    with SessionPortal(host.info) as session, ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(session.run, "1") for _ in range(2)]
        assert opening.wait(60)
        session.close()
        may_go_on.set()
        for run in runs:
            with pytest.raises(SessionEnded, match="closed"):
                run.result(60)
    assert kernels(host) == before


async def test_runs_of_all_threads_and_loops_share_one_client(hosts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[AsyncExecClient] = []
    init = AsyncExecClient.__init__

    def noted(self: AsyncExecClient, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        made.append(self)

    monkeypatch.setattr(AsyncExecClient, "__init__", noted)
    with SessionPortal(hosts["server"].info) as session:
        outcomes = await asyncio.gather(*(session.run_async(str(number)) for number in range(3)))
        assert [outcome.to_text() for outcome in outcomes] == ["0", "1", "2"]
        assert (await asyncio.to_thread(asyncio.run, session.run_async("3"))).to_text() == "3"
        assert (await asyncio.to_thread(session.run, "4")).to_text() == "4"
    assert len(made) == 1
    assert made[0]._driver._is_closed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_uses_the_same_session(server: Host, session: SessionPortal) -> None:
    session.run("x = 1")
    child = os.fork()
    if child == 0:
        os._exit(0 if session.run("x").to_text() == "1" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert session.run("x").to_text() == "1"


def test_a_dropped_portal_prints_nothing(hosts: Any) -> None:
    info = hosts["server"].info
    code = (
        "from jupyter_exec_ext import JupyterConnectionInfo\n"
        "from jupyter_exec_ext.adapters._session_portal import SessionPortal\n"
        f"info = JupyterConnectionInfo.from_url({info.url!r}, {info.token!r})\n"
        "dropped, kept = SessionPortal(info), SessionPortal(info)\n"
        "print(dropped.run('1').to_text(), kept.run('2').to_text())\n"
        "del dropped\n"
    )
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("1 2\n", "", 0)


@pytest.mark.parametrize("moment", ["the thread starts", "work is scheduled"])
def test_portal_collected_while_the_background_loop_starts_causes_no_deadlock(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    background = _session_portal._BackgroundLoop()
    monkeypatch.setattr(_session_portal, "_BACKGROUND", background)
    collected = threading.Event()
    portals = [SessionPortal("http://127.0.0.1:1/")]
    weakref.finalize(portals[0], collected.set)
    portals[0].cycle = portals[0]  # type: ignore[attr-defined]  # only the garbage collector ends a cycle

    def collect() -> None:
        if portals:  # its finaliser schedules work, too
            portals.clear()
            gc.collect()

    class CollectingThread(threading.Thread):
        def __init__(self, *args: Any, **options: Any) -> None:
            collect()
            super().__init__(*args, **options)

    schedule = asyncio.run_coroutine_threadsafe

    def schedule_after_collection(*args: Any) -> Any:
        collect()
        return schedule(*args)

    answers: list[int] = []

    async def answer() -> int:
        return 1

    caller = threading.Thread(target=lambda: answers.append(background.call(answer())), daemon=True)
    if moment == "the thread starts":
        monkeypatch.setattr(threading, "Thread", CollectingThread)
    else:
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", schedule_after_collection)
    caller.start()
    caller.join(10)
    assert collected.is_set()
    assert answers == [1]


async def test_close_lets_a_run_in_a_given_session_finish(hosts: Any, doorbell: Doorbell) -> None:
    code = doorbell.code.replace("while True:\n    pass", "import time; time.sleep(1); print('whole')")
    with ExecClient(hosts["server"].info) as client, client.session() as given:
        tool = SessionPortal(session=given)
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
    with SessionPortal(hosts["server"].info) as session:
        session.run("x = 1")
        assert copy.deepcopy(session).run("print(x)").to_text() == "1\n"
        assert str(hosts["server"].info.token) not in repr(session)
