"""``--isolation`` as people type it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.kernelspecs.places import needs_sandbox
from tests.cli.test_cli import jupyter_exec
from tests.support.hosts import Host, running_host
from tests.support.sandbox_leftovers import WORK


@pytest.fixture
def server(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


@needs_sandbox
def test_isolation_can_be_asked_for(tmp_path: Path, server: Host) -> None:
    where, at = ["--server", server.info.url], {"JUPYTER_TOKEN": str(server.info.token)}
    code = "import os; print(os.getcwd())"
    done = jupyter_exec(tmp_path, "run", "--isolation", "sandbox", "-c", code, *where, env=at)
    assert done.stdout == f"{WORK}\n", done.stderr
    started = jupyter_exec(tmp_path, "session", "start", "--isolation", "sandbox", *where, env=at)
    session_id = started.stdout.strip()
    listed = jupyter_exec(tmp_path, "session", "list", *where, env=at).stdout
    (row,) = [line.split() for line in listed.splitlines() if line.startswith(session_id)]
    assert row[1:4] == ["idle", "python3", "sandbox"]
    assert jupyter_exec(tmp_path, "session", "stop", session_id, *where, env=at).returncode == 0


def test_isolation_that_cannot_be_had_is_refused(tmp_path: Path, server: Host) -> None:
    where, at = ["--server", server.info.url], {"JUPYTER_TOKEN": str(server.info.token)}
    done = jupyter_exec(tmp_path, "run", "--isolation", "remote", "-c", "print(1)", *where, env=at)
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot have 'remote' here" in done.stderr
    done = jupyter_exec(tmp_path, "run", "--isolation", "sandbox", "--session", "x", "-c", "print(1)", *where, env=at)
    assert (done.returncode, "--isolation is for a new session" in done.stderr) == (2, True)


def test_a_server_that_does_not_know_isolation_runs_nothing_that_wants_it(tmp_path: Path) -> None:
    with running_host("server", tmp_path / "plain", "--ExecExtensionApp.enabled=False") as plain:
        where, at = ["--server", plain.info.url], {"JUPYTER_TOKEN": str(plain.info.token)}
        done = jupyter_exec(tmp_path, "run", "--isolation", "sandbox", "-c", "print(1)", *where, env=at)
    assert (done.returncode, done.stdout) == (3, "")
    assert "has no exec/v1 API" in done.stderr
