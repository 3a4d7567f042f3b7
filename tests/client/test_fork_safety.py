"""Clients and executors in a process that was forked: they use connections and locks of their own, or say why not."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jupyter_exec_ext import AsyncExecClient, BinderServer, EmbeddedIPythonCodeExecutor, ExecClient, JupyterCodeExecutor
from jupyter_exec_ext.client.access_tokens import AccessToken
from jupyter_exec_ext.client.aio.http_client import AioCredential
from jupyter_exec_ext.client.api.steps import GetToken
from jupyter_exec_ext.client.fork_safety import ProcessLock
from jupyter_exec_ext.errors import ConnectionFailed
from tests.executors.conftest import python
from tests.support.binderhubs import Events, StandInBinderHub, ready
from tests.support.hosts import Host, running_host
from tests.support.waiting import until

_CHILD_SECONDS = 30.0


@pytest.fixture
def host(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


@contextmanager
def child(work: Callable[[], object]) -> Iterator[None]:
    """Do `work` in a forked process while the block runs, and require that it succeeds in time."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    yield
    give_up_at = time.monotonic() + _CHILD_SECONDS
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if time.monotonic() > give_up_at:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


def test_parent_and_children_use_one_client_at_once(host: Host) -> None:
    with ExecClient(host.info) as client, client.session() as session:

        def runs(name: str) -> None:
            for number in range(20):
                assert session.run(f"print({name!r}, {number})").stdout == f"{name} {number}\n"

        runs("before")
        with child(lambda: runs("one")), child(lambda: runs("two")):
            runs("parent")
        runs("after")


def test_lock_held_by_parents_thread_is_free_in_child(host: Host) -> None:
    with ExecClient(host.info) as client, client.session() as session:
        running = threading.Thread(target=session.run, args=("import time; time.sleep(2)",))
        running.start()
        while not session.list_executions():
            time.sleep(0.01)
        with child(lambda: session.run("print(1)")):
            pass
        running.join()


def test_a_standard_session_keeps_its_connection_when_a_child_uses_it(host: Host) -> None:
    with ExecClient(host.info) as client, client.standard_session() as session:
        assert session.run("a = 1; print(a)").stdout == "1\n"

        def runs() -> None:
            assert session.run("a += 1; print(a)").stdout == "2\n"

        with child(runs):
            pass
        assert session.run("print(a)").stdout == "2\n"


def test_asynchronous_client_uses_childs_event_loop_after_fork(host: Host) -> None:
    client = AsyncExecClient(host.info)

    async def run(text: str) -> None:
        async with await client.session() as session:
            assert (await session.run(f"print({text!r})")).stdout == f"{text}\n"

    async def in_the_parent() -> None:
        await run("before")
        with child(lambda: run_in_a_thread(lambda: run("child"))):
            pass
        await run("after")
        await client.close()

    asyncio.run(in_the_parent())


def run_in_a_thread(make: Callable[[], Any]) -> None:
    """Run a coroutine on a loop of another thread: this one has the parent's loop."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(make())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed, failed


def test_an_executor_of_a_server_runs_code_in_a_child(host: Host, tmp_path: Any) -> None:
    with JupyterCodeExecutor(host.info, output_dir=tmp_path) as executor:
        assert executor.execute_code_blocks(python("b = 1")).exit_code == 0

        def runs() -> None:
            assert executor.execute_code_blocks(python("print(b)")).output.strip() == "1"

        with child(runs), child(runs):
            runs()


def test_credential_that_parent_is_asking_is_asked_anew_in_child() -> None:
    parent_pid, is_answered = os.getpid(), asyncio.Event()

    class Credential:
        async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
            if os.getpid() == parent_pid:
                await is_answered.wait()
            return AccessToken(str(os.getpid()), time.time() + 3600)

    source = AioCredential(Credential(), "scope")

    async def get() -> None:
        assert (await source.get(GetToken(5.0))).token == str(os.getpid())

    async def in_the_parent() -> None:
        getting = asyncio.ensure_future(get())
        await until(lambda: source._asking)
        with child(lambda: run_in_a_thread(get)):
            pass
        is_answered.set()
        await getting

    asyncio.run(in_the_parent())


def test_executor_that_child_stops_keeps_parents_session(host: Host, tmp_path: Any) -> None:
    with JupyterCodeExecutor(host.info, output_dir=tmp_path) as executor:
        executor.execute_code_blocks(python("b = 1"))
        with child(executor.stop):
            pass
        assert executor.execute_code_blocks(python("print(b)")).output.strip() == "1"


@pytest.mark.parametrize("kind", ["session", "standard_session"])
def test_child_that_leaves_block_of_session_keeps_it(host: Host, kind: str) -> None:
    with ExecClient(host.info) as client, getattr(client, kind)() as session:
        session.run("a = 1")
        with child(lambda: leave_by_exit(session)):
            pass
        assert session.run("print(a)").stdout == "1\n"


def test_child_that_leaves_block_of_server_keeps_it(tmp_path: Any) -> None:
    with (
        running_host("server", tmp_path) as host,
        StandInBinderHub(Events([ready(host.info)])) as binder,
        BinderServer("gh/owner/repository/HEAD", binder_url=binder.url, on_progress=None) as server,
        ExecClient(server) as client,
    ):
        with child(lambda: leave_by_exit(server)), child(server.stop):
            pass
        assert client.run("print(1)").stdout == "1\n"


def leave_by_exit(context: Any) -> None:
    """Leave a block as `sys.exit` does."""
    context.__exit__(SystemExit, SystemExit(), None)


def test_embedded_executor_in_child_raises_error_and_keeps_parents_kernel(tmp_path: Any) -> None:
    with EmbeddedIPythonCodeExecutor(output_dir=tmp_path) as executor:
        assert executor.execute_code_blocks(python("c = 1")).exit_code == 0

        def refused() -> None:
            with pytest.raises(ConnectionFailed, match=str(os.getppid())):
                executor.execute_code_blocks(python("c = 2"))
            executor.stop()
            with EmbeddedIPythonCodeExecutor(output_dir=tmp_path) as own:
                assert own.execute_code_blocks(python("print(3)")).output.strip() == "3"

        with child(refused):
            pass
        assert executor.execute_code_blocks(python("print(c)")).output.strip() == "1"


def test_a_lock_is_free_in_a_child_and_held_in_the_parent() -> None:
    lock = ProcessLock()

    def take() -> None:
        with lock:
            pass

    with lock:
        with child(take):
            pass
        assert lock._lock.locked()
