"""The engine takes a session of a pool for any other kernel: run on a server of its own, over the pool's socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.errors import FilesNotAvailable, IsolationRequired, QuotaExceeded, Unavailable
from jupyter_exec_ext.models import EndEvent
from tests.support.hosts import MAX_FILE_BYTES, Host, running_host

from .pools import VARIABLE, add_aca_kernelspec


@pytest.fixture(scope="module")
def host(hosts: dict[str, Host], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A server on which no kernel may run on the machine itself."""
    home = tmp_path_factory.mktemp("remote")
    add_aca_kernelspec(home / "jupyter_data_dir", "remote", hosts["server"])
    env = {VARIABLE: hosts["server"].info.token or ""}
    with running_host("server", home, "--ExecEngine.default_isolation=remote", env=env) as running:
        yield running


@pytest.fixture
def client(host: Host) -> Iterator[ExecClient]:
    with ExecClient(host.info) as client:
        yield client


def test_its_kernels_are_remote_ones(client: ExecClient) -> None:
    with pytest.raises(IsolationRequired):
        client.session("python3")
    with client.session("remote") as session:
        done = session.run("import sys; print('out'); print('err', file=sys.stderr); 6 * 7")
        assert (done.state, done.stdout, done.stderr) == ("ok", "out\n", "err\n")
        assert done.outputs[-1]["data"]["text/plain"] == "42"


def test_errors_and_state_are_those_of_a_kernel(client: ExecClient) -> None:
    with client.session("remote") as session:
        assert session.run("x = 1").state == "ok"
        failed = session.run("x / 0")
        assert failed.state == "error"
        assert failed.error is not None
        assert failed.error.name == "ZeroDivisionError"
        assert session.run("x").outputs[-1]["data"]["text/plain"] == "1"


def test_a_deadline_ends_the_session_since_nothing_else_stops_its_code(client: ExecClient) -> None:
    with client.session("remote") as session:
        session.run("x = 1")
        done = session.run("import time; time.sleep(60)", timeout_seconds=1)
        assert (done.state, done.session_state_preserved) == ("timeout", False)
        again = session.run("x")
        assert again.error is not None
        assert again.error.name == "NameError"


def test_exit_is_a_kernel_that_died(client: ExecClient) -> None:
    with client.session("remote") as session:
        session.run("exit")
        assert session.run("1 + 1").outputs[-1]["data"]["text/plain"] == "2"


def test_files_come_and_go_while_the_code_runs(client: ExecClient) -> None:
    with client.session("remote") as session:
        session.write_file("in/first", b"1")
        code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint(open('in/first').read())"
        events = session.stream(code)
        assert next(events).type == "state"
        session.write_file("go", b"")
        assert {file.path for file in session.list_files()} == {"go", "in/first"}
        assert session.read_file("in/first") == b"1"
        *_, end = events
        assert isinstance(end, EndEvent)
        assert end.execution.stdout == "1\n"


def test_a_file_larger_than_a_file_may_be_is_not_fetched(client: ExecClient) -> None:
    with client.session("remote") as session:
        for name, size in (("large", MAX_FILE_BYTES + 1), ("most", MAX_FILE_BYTES)):
            assert session.run(f"open({name!r}, 'wb').truncate({size})").ok
        with pytest.raises(QuotaExceeded, match="max_file_bytes"):
            session.read_file("large")
        assert [file.sha256 is None for file in session.list_files(sha256=True)] == [True, False]
        assert len(session.read_file("most")) == MAX_FILE_BYTES


def test_files_end_with_the_session(client: ExecClient) -> None:
    with client.session("remote") as session:
        session.write_file("x", b"1")
        session.restart()
        assert list(session.list_files()) == []
    with pytest.raises(FilesNotAvailable, match="elsewhere"):
        session.read_file("x")


def test_a_credential_that_the_pool_refuses_is_no_fault_of_the_callers(hosts: dict[str, Host], tmp_path: Path) -> None:
    add_aca_kernelspec(tmp_path / "jupyter_data_dir", "remote", hosts["server"])
    env = {VARIABLE: "wrong"}
    with (
        running_host("server", tmp_path, "--ExecEngine.default_isolation=remote", env=env) as running,
        ExecClient(running.info) as client,
        client.session("remote") as session,
        pytest.raises(Unavailable, match="401"),
    ):
        session.write_file("x", b"1")
