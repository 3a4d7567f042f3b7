"""The session that tools run their code in, through our API and through the standard one."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.adapters._session import ToolSession
from jupyter_exec_ext.errors import SessionEnded
from jupyter_exec_ext.models import ExecutionState
from tests.adapters.doorbell import Doorbell
from tests.hosts import Host, running_host


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
    with pytest.raises(SessionEnded, match="closed"):
        session.run("1")


async def test_both_kinds_of_runs_are_in_one_session(session: ToolSession) -> None:
    await asyncio.to_thread(session.run, "x = 1")
    assert (await session.run_async("x += 1; print(x)")).stdout == "2\n"
    assert (await asyncio.to_thread(session.run, "print(x)")).stdout == "2\n"


def test_many_who_need_it_first_open_it_once(server: Host) -> None:
    before = kernels(server)
    with ToolSession(server.info) as session, ThreadPoolExecutor(6) as pool:
        assert [e.stdout for e in pool.map(session.run, [f"print({n})" for n in range(6)])] == [
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
    assert again.stdout == "1\n"


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
    assert (await running).stdout == "whole\n"
    assert (await session.run_async("print('touched' in globals())")).stdout == "False\n"


def test_an_ended_session_is_replaced_once_that_was_said(hosts: Any) -> None:
    info = hosts["server"].info
    with ToolSession(info) as session, ExecClient(info) as client:
        session.run("x = 1")
        client.get_session(session.open().id).close()
        with pytest.raises(SessionEnded, match="variables, imports and definitions are gone"):
            session.run("x")
        assert session.run("print('x' in globals())").stdout == "False\n"


async def test_an_ended_kernel_is_replaced_once_that_was_said(plain_server: Host) -> None:
    with ToolSession(plain_server.info) as session:
        await session.run_async("x = 1")
        await asyncio.to_thread(remove_kernel, plain_server, session.open().id)
        assert (await session.run_async("x")).state is ExecutionState.KERNEL_DIED
        with pytest.raises(SessionEnded, match="variables, imports and definitions are gone"):
            await session.run_async("x")
        assert (await session.run_async("print('x' in globals())")).stdout == "False\n"


async def test_a_session_that_was_there_before_is_neither_replaced_nor_ended(hosts: Any) -> None:
    info = hosts["server"].info
    with ExecClient(info) as client:
        given = client.session()
        given.run("x = 1")
        with ToolSession(info, session_id=given.id) as session:
            assert (await session.run_async("print(x)")).stdout == "1\n"
        assert given.run("x").ok
        with ToolSession(info, session_id=given.id) as session:
            session.run("x")
            given.close()
            sessions = client.list_sessions()
            for _ in range(2):
                with pytest.raises(SessionEnded):
                    session.run("x")
        assert client.list_sessions() == sessions


def test_a_copy_works_in_the_same_session(hosts: Any) -> None:
    with ToolSession(hosts["server"].info) as session:
        session.run("x = 1")
        assert copy.deepcopy(session).run("print(x)").stdout == "1\n"
        assert str(hosts["server"].info.token) not in repr(session)
