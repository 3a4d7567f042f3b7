"""Kernels that are ready before anybody asks, on real hosts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from jupyter_exec_ext import ExecClient
from tests.support.hosts import Host, running_host
from tests.support.session_processes import marked

POOL_KERNELS = "--ExecEngine.pool_kernels=python3"
DEBUG = "--Application.log_level=DEBUG"


def until(condition: Callable[[], Any]) -> Any:
    """Wait for something that a host does in its own time and tells nobody."""
    give_up_at = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    return found


def get(host: Host, path: str) -> requests.Response:
    return requests.get(f"{host.info.url}{path}", headers=host.info.auth_headers, timeout=30)


def metric(host: Host, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} ([0-9.]+)$", get(host, "metrics").text, re.MULTILINE)
    assert found
    return float(found[1])


def prepared(home: Path) -> dict[str, str]:
    """Return what the host has noted of its pool: the ids of sessions to come, with those of their kernels."""
    lines = [line for path in home.glob("**/servers/*.prepared") for line in path.read_text().splitlines()]
    return {session: kernel for session, _, kernel in (line.partition(" ") for line in lines) if kernel}


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_sessions_get_kernels_that_nobody_saw_before(tmp_path: Path, name: str) -> None:
    with running_host(name, tmp_path, POOL_KERNELS, DEBUG) as host, ExecClient(host.info) as client:
        until(lambda: "is ready" in host.log_text())
        (noted,) = prepared(tmp_path).items()
        assert get(host, "api/kernels").json() == []
        assert client.list_sessions() == []
        assert get(host, f"api/kernels/{noted[1]}").status_code == 404
        session = client.session()
        assert (session.id, session.record.kernel_id, session.record.kernel_starts) == (*noted, 1)
        assert session.run("print(6 * 7)").stdout == "42\n"
        assert [kernel["id"] for kernel in get(host, "api/kernels").json()] == [noted[1]]
        until(lambda: host.log_text().count("is ready") == 2)
        if not host.is_gateway:  # which serves no metrics
            assert metric(host, "jupyter_exec_pooled_kernels") == 1
            assert metric(host, 'jupyter_exec_pool_sessions_total{kernel="taken"}') == 1
            assert metric(host, "jupyter_exec_pool_discarded_total") == 0
        processes = psutil.Process(host.process.pid).children(recursive=True)
        kernels = [process for process in processes if not process.children()]  # a process that forks them has children
        assert len(kernels) == 2
    _, alive = psutil.wait_procs(kernels, timeout=30)
    assert alive == []
    assert prepared(tmp_path) == {}


def test_a_full_gateway_has_room_for_whoever_asks(tmp_path: Path) -> None:
    options = (POOL_KERNELS, DEBUG, "--KernelGatewayApp.max_kernels=1")
    with running_host("gateway", tmp_path, *options) as host, ExecClient(host.info) as client:
        until(lambda: "is ready" in host.log_text())
        (ready,) = prepared(tmp_path)
        url = f"{host.info.url}api/kernels"
        kernel = requests.post(url, headers=host.info.auth_headers, timeout=30)
        assert kernel.status_code == 201
        assert marked(ready) == []
        requests.delete(f"{url}/{kernel.json()['id']}", headers=host.info.auth_headers, timeout=30).raise_for_status()
        with client.session(env={"KERNEL_A": "1"}) as session:
            assert session.run("print(1)").stdout == "1\n"
        until(lambda: host.log_text().count("is ready") == 2)


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_the_next_server_clears_away_what_a_killed_one_had_ready(tmp_path: Path, name: str) -> None:
    with running_host(name, tmp_path, POOL_KERNELS, DEBUG) as host:
        until(lambda: "is ready" in host.log_text())
        ((session, kernel),) = prepared(tmp_path).items()
        (process,) = marked(session)
        psutil.Process(process).suspend()  # or it would see by itself that its server is gone
        host.process.kill()
        host.process.wait(20)
    data, runtime = tmp_path / "jupyter_data_dir" / "jupyter_exec_ext", tmp_path / "run"
    assert marked(session) == [process]
    assert (data / "work" / session).is_dir()
    assert (runtime / f"kernel-{kernel}.json").exists()
    with running_host(name, tmp_path, "--ExecEngine.pool_size=0"):
        assert marked(session) == []
        assert not (data / "work" / session).exists()
        assert not (runtime / f"kernel-{kernel}.json").exists()
        assert prepared(tmp_path) == {}


def test_files_of_a_session_that_just_began_are_not_cleared_away(tmp_path: Path) -> None:
    """Though the killed server had it among those to come until shortly before."""
    with running_host("server", tmp_path, POOL_KERNELS, DEBUG) as host, ExecClient(host.info) as client:
        until(lambda: "is ready" in host.log_text())
        session = client.session()
        session.run("open('mine', 'w').write('1')")
        host.process.kill()
        host.process.wait(20)
    data = tmp_path / "jupyter_data_dir" / "jupyter_exec_ext"
    (lock,) = (data / "servers").glob("*.lock")
    lock.with_suffix(".prepared").write_text(f"{session.id} {session.record.kernel_id}\n")
    with running_host("server", tmp_path):
        assert (data / "work" / session.id / "mine").read_text() == "1"
