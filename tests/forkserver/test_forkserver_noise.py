"""Forked kernels write nothing to the standard error of their host, however they start and end."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.forkserver import ForkServerProvisioner
from tests.support.forked_kernels import Kernel, add_forked, retire_all, running, until
from tests.support.full import IS_FULL
from tests.support.hosts import Host, running_host
from tests.support.session_processes import has_ended

pytestmark = pytest.mark.skipif(ForkServerProvisioner.unavailable() is not None, reason="no fork here")

#: The variable that keeps the fork parent's debugger from warning.
QUIET = "PYDEVD_DISABLE_FILE_VALIDATION"


@pytest.fixture(autouse=True)
def _parents() -> Iterator[None]:
    yield
    retire_all()


async def ask_to_shut_down(kernel: Kernel) -> None:
    kernel.client.shutdown()


async def shut_down(kernel: Kernel) -> None:
    await kernel.manager.shutdown_kernel()


async def ask_to_restart(kernel: Kernel) -> None:
    await kernel.manager.restart_kernel(now=False)


async def kill(kernel: Kernel) -> None:
    await kernel.manager.restart_kernel(now=True)


async def terminate(kernel: Kernel) -> None:
    os.kill(kernel.pid, signal.SIGTERM)


async def exit_by_code(kernel: Kernel) -> None:
    kernel.client.execute("import os; os._exit(3)")


# No interrupt is among them: ipykernel itself reports one that does not come while code runs, however it was started.
WAYS = [ask_to_shut_down, shut_down, ask_to_restart, kill, terminate, exit_by_code]


@pytest.mark.parametrize("end", WAYS[:: 1 if IS_FULL else 2])
async def test_kernel_that_starts_runs_and_ends_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], end: Any
) -> None:
    add_forked(tmp_path)
    async with running(tmp_path) as kernel:
        process, printed = psutil.Process(kernel.pid), await kernel.says("print('this')")
        await end(kernel)
        await until(lambda: has_ended(process))
    assert printed == "this"
    assert capfd.readouterr().err == ""


async def test_commands_are_in_the_history_when_a_kernel_has_ended(tmp_path: Path) -> None:
    add_forked(tmp_path)
    env = {"IPYTHONDIR": str(tmp_path / "ipython")}
    async with running(tmp_path, env=env) as kernel:
        file = await kernel.says("print(get_ipython().history_manager.hist_file)")
        await kernel.says("get_ipython().history_manager.db_cache_size = 100")  # as in kernels of sessions
        await kernel.says("'written at the end'")
        process = psutil.Process(kernel.pid)
        kernel.client.shutdown()
        await until(lambda: has_ended(process))
    with sqlite3.connect(file) as database:
        sources = [source for (source,) in database.execute("SELECT source FROM history")]
        unfinished = database.execute("SELECT count(*) FROM sessions WHERE end IS NULL").fetchone()
    database.close()
    assert "'written at the end'" in sources
    assert unfinished == (0,)


@pytest.mark.parametrize("given", [None, "0"])
async def test_kernels_do_not_inherit_what_keeps_the_debugger_quiet(tmp_path: Path, given: str | None) -> None:
    add_forked(tmp_path, env={} if given is None else {QUIET: given})
    ask = f"import os, subprocess, sys; print(os.environ.get({QUIET!r}))\n"
    in_child = f"print(subprocess.run([sys.executable, '-c', {ask!r}], capture_output=True, text=True).stdout)"
    async with running(tmp_path) as kernel:
        assert await kernel.says(ask + in_child) == f"{given}\n{given}"
        assert psutil.Process(kernel.pid).environ().get(QUIET) == given


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("quiet")
    add_forked(home)
    return home


def test_log_of_a_server_with_forked_kernels_has_lines_of_the_server_alone(home: Path) -> None:
    with running_host("server", home) as host:
        with ExecClient(host.info) as client:
            for _ in range(5):
                with client.session("forked") as session:
                    assert session.run("print('this')").stdout == "this\n"
            with client.session("forked") as session:
                session.run("1")
                session.restart()
                session.run("1")
            left = client.session("forked")
            left.run("1")
            with client.session("forked") as session:
                session.submit("import time; time.sleep(60)")
            use_kernels_of_notebooks(host)
        host.process.terminate()
        host.process.wait(30)
        lines = host.log_text().splitlines()
    assert [line for line in lines if line and not line.startswith("[")] == []
    assert len(lines) > 10


def use_kernels_of_notebooks(host: Host) -> None:
    """Start three kernels by Jupyter's API, delete one and restart one; two are left to the end of the server."""
    url, headers = f"{host.info.url.rstrip('/')}/api/kernels", {"Authorization": f"token {host.info.token}"}
    kernels = [requests.post(url, json={"name": "forked"}, headers=headers, timeout=60).json() for _ in range(3)]
    requests.delete(f"{url}/{kernels[0]['id']}", headers=headers, timeout=60).raise_for_status()
    requests.post(f"{url}/{kernels[1]['id']}/restart", headers=headers, timeout=60).raise_for_status()
