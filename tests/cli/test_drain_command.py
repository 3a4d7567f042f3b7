"""``jupyter exec drain`` as people type it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from jupyter_exec_ext.client import ExecClient
from tests.cli.test_cli import jupyter_exec
from tests.support.bearers import mint
from tests.support.hosts import Host

Drain = Callable[..., CompletedProcess[str]]


@pytest.fixture
def host(hosts: Any) -> Iterator[Host]:
    """A host that takes new sessions again at the end."""
    started: Host = hosts["gateway"]
    yield started
    with ExecClient(started.info) as client:
        client.drain(undo=True)


@pytest.fixture
def drain(host: Host, tmp_path: Path) -> Drain:
    def call(*args: str, token: str | None = None) -> CompletedProcess[str]:
        return jupyter_exec(tmp_path, "drain", *args, env={"JUPYTER_TOKEN": token or str(host.info.token)})

    return call


def test_drain_waits_and_is_undone(host: Host, drain: Drain) -> None:
    with ExecClient(host.info) as client:
        done = drain(host.info.url, "--wait")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"{host.info.url} takes no new sessions (sessions: ")
        assert client.ready().draining
        done = drain(host.info.url, "--undo", "--json")
        assert (done.returncode, json.loads(done.stdout)["draining"]) == (0, False)
        assert client.ready().ready


def test_wait_fails_after_its_time_and_the_server_stays_drained(host: Host, drain: Drain) -> None:
    with ExecClient(host.info) as client, client.session() as session:
        running = session.submit("import time; time.sleep(600)")
        done = drain("--server", host.info.url, "--wait", "--timeout", "0.1")
        assert (done.returncode, done.stdout) == (3, "")
        assert "code still runs or waits after 0.1 s" in done.stderr and "stays drained" in done.stderr
        assert client.ready().draining
        running.cancel()


def test_scoped_token_is_refused_with_the_remedy(host: Host, drain: Drain) -> None:
    done = drain(host.info.url, token=mint(host).token)
    assert done.returncode == 3
    assert "use the server's own token" in done.stderr


@pytest.mark.parametrize("option", [["--server", "http://127.0.0.1:1/"], ["--hub", "http://127.0.0.1:1/"]])
def test_server_named_twice_is_refused(drain: Drain, option: list[str]) -> None:
    done = drain("http://127.0.0.1:2/", *option)
    assert done.returncode == 2
    assert "name the server once" in done.stderr
