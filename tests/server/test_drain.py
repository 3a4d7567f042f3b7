"""A drained server: no new session in any way, and the old ones as ever; and what SIGTERM makes of it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.errors import Draining, ShuttingDown
from jupyter_exec_ext.models import ExecutionState, OutputEvent
from tests.mcp.raw_client import RawClient
from tests.support.bearers import UNPROTECTED, mint, owner_of
from tests.support.full import IS_FULL, only_in_full
from tests.support.hosts import Host, running_host
from tests.support.hubs import running_hub
from tests.support.pool_clients import error_of, pool_of

pytestmark = pytest.mark.every_place
HOSTS = ["server", "gateway"]
DRAINED = {"ready": False, "draining": True}


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, hosts: Any) -> Iterator[Host]:
    """A host that takes new sessions again at the end."""
    started: Host = hosts[request.param]
    yield started
    assert owner_of(started).call("DELETE", "/drain").json() == {"ready": True, "draining": False}


def refused(answer: requests.Response) -> bool:
    return (answer.status_code, answer.json()["code"]) == (503, "draining") and int(answer.headers["Retry-After"]) > 0


def test_drained_server_makes_no_session_in_any_way(host: Host) -> None:
    owner, agent = owner_of(host), mint(host, policy="trusted")
    kernel = requests.post(f"{host.info.url}api/kernels", json={}, headers=host.info.auth_headers, timeout=60).json()
    pool = pool_of(host).another(token=agent.token)
    for _ in range(2):  # a drain that is under way goes on
        drained = owner.call("POST", "/drain")
        assert (drained.status_code, drained.json()) == (200, DRAINED)
    ready = requests.get(f"{host.info.url}exec/v1/ready", timeout=30)
    assert (ready.status_code, ready.json()) == (503, DRAINED)
    before = owner.call("GET", "/load").json()
    assert (before["draining"], before["free_places"]) == (True, 0)
    for bearer in (owner, agent):
        assert refused(bearer.call("POST", "/sessions", json={}))
        assert refused(bearer.call("POST", "/executions", json={"code": "1"}))
        tool = RawClient.of(bearer).tool("execute_code", code="1")
        assert tool["isError"] and "drained" in tool["content"][0]["text"]
    assert refused(owner.call("POST", "/sessions", json={"kernel_id": kernel["id"]}))
    made = pool.call("POST", "executions", json={"code": "1"})
    assert error_of(made) == (503, "ServiceUnavailable") and int(made.headers["Retry-After"]) > 0
    assert made.headers["jupyter-exec-error-code"] == "draining"  # a pool asks another server
    assert owner.call("GET", "/load").json()["sessions"] == before["sessions"]
    requests.delete(f"{host.info.url}api/kernels/{kernel['id']}", headers=host.info.auth_headers, timeout=60)


def test_drained_server_serves_the_sessions_that_it_has(host: Host) -> None:
    owner, agent = owner_of(host), mint(host, policy="trusted")
    session, pool = agent.session(), pool_of(host).another(token=agent.token)
    assert pool.value("kept = 1; kept") == 1
    fresh = agent.call("POST", "/executions", json={"code": "6 * 7"}, headers={"Idempotency-Key": "once"})
    owner.call("POST", "/drain")
    for code in ("x = 1", "print(x)"):
        ran = agent.run(session, code)
    assert ran.json()["stdout"] == "1\n"
    assert agent.call("POST", f"/sessions/{session}/restart").status_code == 200
    assert agent.run(session, "print('x' in globals())").json()["stdout"] == "False\n"
    assert RawClient.of(agent).tool("execute_code", code="1", session=session)["isError"] is False
    assert pool.value("kept") == 1
    # A retried request starts nothing: it gets the run of its first try.
    again = agent.call("POST", "/executions", json={"code": "6 * 7"}, headers={"Idempotency-Key": "once"})
    assert again.json()["id"] == fresh.json()["id"]
    assert agent.call("DELETE", f"/sessions/{session}").status_code == 204
    assert pool.call("DELETE", "session").status_code == 204


def test_only_the_owner_drains(host: Host) -> None:
    agent = mint(host)
    for method in ("POST", "DELETE"):
        assert agent.call(method, "/drain").json()["code"] == "owner_only"
    assert owner_of(host).call("GET", "/load").json()["draining"] is False


@pytest.mark.parametrize("name", HOSTS if IS_FULL else ["server"])
def test_sigterm_lets_what_runs_end_and_then_ends_the_server(tmp_path: Path, name: str) -> None:
    options = (UNPROTECTED, "--ExecEngine.drain_seconds=60")
    with running_host(name, tmp_path, *options) as host, ExecClient(host.info) as client:
        session = client.session()
        release = tmp_path / "release"
        waits = (
            f"import os, time\nprint('up', flush=True)\nwhile not os.path.exists({str(release)!r}): time.sleep(0.05)"
        )
        started = threading.Event()

        def note(event: OutputEvent) -> None:
            if event.type == "stream":
                started.set()

        with ThreadPoolExecutor(1) as threads:
            result = threads.submit(session.run, waits, on_event=note)
            assert started.wait(30)
            host.process.send_signal(signal.SIGTERM)
            wait_until_drained(host)
            with pytest.raises(Draining):
                client.session()
            with pytest.raises(ShuttingDown):
                client.drain(undo=True)
            queued = session.submit("print('new in the old session')")
            release.touch()
            assert queued.result().stdout == "new in the old session\n"
        assert result.result().state is ExecutionState.OK
        session.detach()
        assert host.process.wait(20) == 0
    assert "Traceback" not in host.log_text()


@only_in_full
@pytest.mark.parametrize("name", HOSTS)
def test_second_sigterm_ends_the_server_at_once(tmp_path: Path, name: str) -> None:
    with running_host(name, tmp_path, UNPROTECTED, "--ExecEngine.drain_seconds=600") as host:
        bearer = owner_of(host)
        session = bearer.session()
        later = {"Prefer": "respond-async"}
        bearer.call(
            "POST", f"/sessions/{session}/executions", json={"code": "import time; time.sleep(600)"}, headers=later
        )
        host.process.send_signal(signal.SIGTERM)
        wait_until_drained(host)
        host.process.send_signal(signal.SIGTERM)
        assert host.process.wait(20) == 0
    assert "Task was destroyed" not in host.log_text()


@only_in_full
@pytest.mark.parametrize(
    ("name", "way"), [("server", "request"), ("server", "signal"), ("gateway", "signal"), ("hub", "signal")]
)
def test_twenty_runs_of_ten_seconds_end_while_the_server_is_drained(tmp_path: Path, name: str, way: str) -> None:
    options = (UNPROTECTED, "--ExecEngine.drain_seconds=120", "--ExecEngine.pool_size=0")
    start = running_hub(tmp_path, *options) if name == "hub" else running_host(name, tmp_path, *options)
    with start as host, ExecClient(host.info) as client, ThreadPoolExecutor(20) as threads:
        server = psutil.Process(host.pid)
        sessions = list(threads.map(lambda _: client.session(), range(20)))
        runs = [threads.submit(session.run, "import time; time.sleep(10); print(1)") for session in sessions]
        wait_for(lambda: client.load().running == 20)
        if way == "signal":
            server.send_signal(signal.SIGTERM)
        else:
            client.drain()
        wait_until_drained(host)
        refused = 0
        while not all(run.done() for run in runs):
            with pytest.raises(Draining):
                client.session()
            refused += 1
            time.sleep(0.2)
        assert [(run.result().state, run.result().stdout) for run in runs] == [(ExecutionState.OK, "1\n")] * 20
        assert refused >= 10
        for session in sessions:
            session.detach()
        if way == "signal":
            server.wait(30)


def wait_until_drained(host: Host) -> None:
    wait_for(lambda: requests.get(f"{host.info.url}exec/v1/ready", timeout=30).json() == DRAINED)


def wait_for(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)  # a signal is answered by nothing
