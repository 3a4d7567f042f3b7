"""Forked kernels as sessions of a server, and the kernels' own conformance suite."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.forkserver import ForkServerProvisioner
from jupyter_exec_ext.models import ExecutionState
from tests.cli.kernelspecs.places import needs_sandbox
from tests.isolation.test_conformance import outcomes
from tests.support.forked_kernels import add_forked, add_plain, retire_all
from tests.support.full import only_in_full
from tests.support.hosts import Host, running_host
from tests.support.sandbox_leftovers import WORK
from tests.support.session_processes import has_ended, kernel_of, marked

pytestmark = pytest.mark.skipif(ForkServerProvisioner.unavailable() is not None, reason="no fork here")

#: A module that notes which expressions its kernel is asked for.
NOTING = """
from ipykernel.ipkernel import IPythonKernel

questions = []
execute = IPythonKernel.execute_request

def execute_and_note(kernel, stream, identities, request):
    questions.extend(request["content"]["user_expressions"])
    return execute(kernel, stream, identities, request)

IPythonKernel.execute_request = execute_and_note
"""
STARTED_AS_USUAL = "import noting; from ipykernel.kernelapp import launch_new_instance; launch_new_instance()"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("forking")
    add_forked(home)
    (home / "noting.py").write_text(NOTING)
    env = {"PYTHONPATH": str(home)}
    add_forked(home, "told", env=env, preload=["noting"])
    add_forked(home, "asked", argv=(sys.executable, "-c", STARTED_AS_USUAL, "-f", "{connection_file}"), env=env)
    with running_host("server", home) as host:
        yield host


@pytest.fixture
def client(server: Host) -> Iterator[ExecClient]:
    with ExecClient(server.info) as client:
        yield client


@pytest.fixture
def session(client: ExecClient) -> Iterator[Any]:
    with client.session("forked") as session:
        yield session


def test_a_session_has_a_kernel_that_was_forked(server: Host, session: Any) -> None:
    kernel = psutil.Process(kernel_of(session))
    parent = kernel.parent()
    assert parent is not None and parent.ppid() == server.pid
    assert any(argument.endswith("program.py") for argument in parent.cmdline())


def test_its_kernel_waits_for_its_readers_from_the_start(session: Any) -> None:
    code = """
import zmq
from IPython import get_ipython
kernel = get_ipython().kernel
print(kernel.iopub_thread.socket.getsockopt(zmq.SNDHWM), kernel._execute_sleep)
"""
    mark, sleep = session.run(code).stdout.split()
    assert (mark, float(sleep)) == ("16", 0)


@pytest.mark.parametrize(
    ("kernel_name", "questions"), [("told", {"unattended"}), ("asked", {"waits", "defaults", "unattended"})]
)
def test_it_is_told_to_wait_and_not_asked(client: ExecClient, kernel_name: str, questions: set[str]) -> None:
    with client.session(kernel_name) as session:  # a kernel that is slow to answer is asked again
        assert set(session.run("import noting; print(*noting.questions)").stdout.split()) == questions


def test_of_what_it_shares_with_others_a_kernel_uses_its_part(client: ExecClient, session: Any) -> None:
    with client.session("forked") as full:
        full.run("held = bytearray(220 * 10**6); held[::4096] = b'x' * len(held[::4096])")
        used = {listed.id: listed.memory_bytes or 0 for listed in client.list_sessions(memory=True)}
        assert 200 * 10**6 <= used[full.id] - used[session.id] < 300 * 10**6
        assert 0 < used[session.id] < psutil.Process(kernel_of(session)).memory_info().rss * 0.8


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os._exit(7)", "exited with code 7"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_a_kernel_that_dies_is_told_at_once_with_how_it_ended(session: Any, code: str, reason: str) -> None:
    session.run("1")
    begun = time.monotonic()
    result = session.run(code)
    assert (result.state, reason in str(result.error or result)) == (ExecutionState.KERNEL_DIED, True), result
    assert time.monotonic() - begun < 10
    assert session.run("print('again')").stdout == "again\n"


def test_where_a_kernel_crashed_is_told(session: Any) -> None:
    result = session.run("import ctypes\ndef crash():\n    ctypes.string_at(0)\ncrash()")
    assert result.state is ExecutionState.KERNEL_DIED
    assert "in crash" in str(result.outputs), result


def test_what_a_session_left_behind_ends_with_it(client: ExecClient) -> None:
    with client.session("forked") as session:
        code = "import subprocess; p = subprocess.Popen(['sleep', '600'], start_new_session=True); print(p.pid)"
        left = psutil.Process(int(session.run(code).stdout))
        assert len(marked(session.id)) == 2
    assert has_ended(left)
    assert marked(session.id) == []


def test_sessions_go_on_when_the_parent_is_killed(client: ExecClient, session: Any) -> None:
    parent = psutil.Process(kernel_of(session)).ppid()
    session.run("x = 1")
    os.kill(parent, signal.SIGKILL)
    with client.session("forked") as other:
        assert psutil.Process(kernel_of(other)).ppid() != parent
    assert session.run("print(x)").stdout == "1\n"
    result = session.run("import os; os._exit(7)")
    assert result.state is ExecutionState.KERNEL_DIED
    assert session.run("print(2)").stdout == "2\n"


def test_a_forked_kernel_has_the_defaults_of_others(session: Any) -> None:
    assert session.run("import os\nprint(os.environ['NO_COLOR'], 'x\\ud835')").stdout == "1 x\ud835\n"
    assert session.run("print(hasattr(get_ipython().display_pub.publish, '__wrapped__'))").stdout == "True\n"


@needs_sandbox
def test_who_asks_for_isolation_gets_it_and_no_fork(client: ExecClient) -> None:
    with client.session("forked", isolation="sandbox") as session:
        assert session.run("import os; print(os.getcwd())").stdout == f"{WORK}\n"
        assert session.record.isolation == "sandbox"


@only_in_full
def test_a_forked_kernel_conforms_as_the_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add_plain(tmp_path)
    add_forked(tmp_path)
    monkeypatch.chdir(tmp_path)
    try:
        plain = outcomes("plain")
        assert list(plain.values()).count("passed") >= 12, plain
        assert outcomes("forked") == plain
    finally:
        retire_all()
    assert "started as usual" not in caplog.text


def test_nbclient_runs_a_notebook_on_a_forked_kernel(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    add_forked(tmp_path)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import os; print(6 * 7, os.getppid())")])
    nbclient.NotebookClient(notebook, kernel_name="forked", timeout=60).execute()
    answer, parent = notebook.cells[0].outputs[0].text.split()
    retire_all()
    assert answer == "42" and int(parent) != os.getpid()
    assert json.dumps(notebook.cells[0].outputs[0])
