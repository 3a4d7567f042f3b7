"""A server's start, whatever earlier kernels have left in the places that it reads."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_exec_ext.assembly import OptionalSteps
from jupyter_exec_ext.client import ExecClient
from tests.support.full import only_in_full
from tests.support.hostile_trees import badly_named, closed, deep, special_files
from tests.support.hosts import running_host


def _hostile(path: Path) -> None:
    """Put one of each kind of tree at a path."""
    path.mkdir(parents=True, exist_ok=True)
    deep(path / "deep", 1_500)
    for make in (closed, badly_named, special_files):
        make(path / make.__name__)


def _a_dead_server_of_sandboxes(data: Path) -> None:
    namespace = os.stat("/proc/self/ns/pid").st_ino
    _hostile(data / "private" / f"{namespace}-{2**22}-1" / "kernel")


def _what_was_moved_aside(data: Path) -> None:
    for name in ("private", "work", "logs"):
        _hostile(data / name / "not-removed" / "earlier")


def _directories_for_files_of_servers(data: Path) -> None:
    for suffix in ("lock", "prepared", "reserve", "prepared.new"):
        _hostile(data / "servers" / f"gone.{suffix}")


def _prepared_sessions_that_are_no_text(data: Path) -> None:
    (data / "servers").mkdir(parents=True)
    (data / "servers" / "0123456789abcdef.lock").write_bytes(b"")
    (data / "servers" / "0123456789abcdef.prepared").write_bytes(b"\xff\xfe ses\n../../etc ../..\n\n")


def _session_directories_that_are_something_else(data: Path) -> None:
    (data / "work").mkdir(parents=True)
    (data / "work" / "ses_link").symlink_to("/")
    os.mkfifo(data / "work" / "ses_fifo")
    _hostile(data / "work" / "ses_deep")


def _a_reserve_that_is_a_fifo(data: Path) -> None:
    (data / "servers").mkdir(parents=True)
    os.mkfifo(data / "servers" / "0123456789abcdef.reserve")
    os.mkfifo(data / "servers" / "0123456789abcdef.lock")


@pytest.mark.parametrize(
    "leave",
    [
        _a_dead_server_of_sandboxes,
        _what_was_moved_aside,
        pytest.param(_directories_for_files_of_servers, marks=only_in_full),
        _prepared_sessions_that_are_no_text,
        _session_directories_that_are_something_else,
        pytest.param(_a_reserve_that_is_a_fifo, marks=only_in_full),
    ],
)
def test_server_starts_whatever_was_left_in_its_directories(short_path: Path, leave: Callable[[Path], None]) -> None:
    leave(short_path / "jupyter_data_dir" / "jupyter_exec_ext")
    with (
        running_host("server", short_path, env={"XDG_RUNTIME_DIR": ""}) as host,
        ExecClient(host.info.url, host.info.token) as client,
    ):
        assert client.run("1 + 1").outputs[-1]["data"]["text/plain"] == "2"


@pytest.mark.parametrize(
    "put",
    [
        _hostile,
        pytest.param(os.mkfifo, marks=only_in_full),
        pytest.param(lambda path: path.symlink_to("/etc/passwd"), marks=only_in_full),
    ],
)
def test_running_execution_of_a_killed_server_ends_whatever_has_become_of_its_log(
    short_path: Path, put: Callable[[Path], None]
) -> None:
    with running_host("server", short_path) as host, ExecClient(host.info.url, host.info.token) as client:
        session = client.session()
        execution = session.submit("import time; print(1, flush=True); time.sleep(100)")
        next(event for event in execution.events() if event.type == "stream")
        host.process.kill()
        host.process.wait()
    data = short_path / "jupyter_data_dir" / "jupyter_exec_ext"
    log = data / "logs" / session.id / f"{execution.id}.ndjson"
    log.unlink(missing_ok=True)
    put(log)
    with running_host("server", short_path) as host, ExecClient(host.info.url, host.info.token) as client:
        assert client.get_execution(execution.id).refresh().state == "server_restarted"
    with sqlite3.connect(data / "executions.db") as database:
        assert database.execute("SELECT COUNT(*) FROM executions WHERE NOT finished").fetchone() == (0,)


def test_optional_step_that_fails_is_reported_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    steps = OptionalSteps(logging.getLogger("start"))

    def fail() -> int:
        raise RecursionError("too deep")

    assert steps.run("clear away what was left", fail) is None
    assert steps.run("count", lambda: 3) == 3
    assert steps.problems == [
        "at its start, the server could not clear away what was left (too deep); its log says more"
    ]
    assert "could not clear away what was left" in caplog.text
