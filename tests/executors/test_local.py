"""`LocalJupyterServer`: starts closed, stays alive under load, and leaves nothing behind however its parent ends."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import psutil
import pytest
import requests

from jupyter_exec_ext import CodeBlock, JupyterCodeExecutor, LocalJupyterServer
from jupyter_exec_ext.cli.managed_gateway import configuration
from jupyter_exec_ext.errors import PoliciesInvalid
from jupyter_exec_ext.executors import local
from tests.containment.plain import NOBODY, as_user
from tests.executors.seed_examples import LOCAL, LOCAL_PRINTS
from tests.support.full import only_in_full
from tests.support.hosts import free_port


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_code(server: LocalJupyterServer, code: str) -> str:
    with JupyterCodeExecutor(server) as executor:
        return executor.execute_code_blocks([CodeBlock(code, "python")]).output


def processes_of(server: LocalJupyterServer) -> list[psutil.Process]:
    gateway = psutil.Process(server._subprocess.pid)
    return [gateway, *gateway.children(recursive=True)]


def test_the_seeds_local_example_prints_what_the_seed_prints(tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(LOCAL)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == LOCAL_PRINTS
    assert done.stderr == ""


def test_the_token_is_in_no_command_line_environment_or_file(tmp_path: Path) -> None:
    """Code that runs in a kernel looks for it, as it would."""
    look = """
    import contextlib, pathlib, psutil
    found = []
    for process in [psutil.Process()] + psutil.Process().parents():
        with contextlib.suppress(psutil.AccessDenied):
            found.append(str(process.cmdline()) + str(process.environ()))
    for path in pathlib.Path(ROOT).rglob("*"):
        if path.is_file():
            found.append(path.read_text(errors="replace"))
    print(len(found), "\\n".join(found))
    """
    with LocalJupyterServer() as server, JupyterCodeExecutor(server) as executor:
        code = f"ROOT = {str(tmp_path)!r}\n" + "\n".join(line[4:] for line in look.splitlines())
        output = executor.execute_code_blocks([CodeBlock(code, "python")]).output
        assert server.token is not None
        assert "ipykernel" in output
        assert "managed_gateway" in output
        assert server.token not in output
        assert server.token not in repr(server)


AS_ANOTHER_USER = """
from jupyter_exec_ext import CodeBlock, JupyterCodeExecutor, LocalJupyterServer
look = '''
import os, pathlib, psutil
def tried(process, name):
    try:
        with open(f"/proc/{process.pid}/{name}", "rb") as file:
            return name != "mem" and file.read()
    except PermissionError as error:
        return type(error).__name__
gateway = next(p for p in psutil.Process().parents() if "managed_gateway" in str(p.cmdline()))
print(os.getuid() == gateway.uids().real != 0, tried(psutil.Process(), "mem"))
print(*(tried(gateway, name) for name in ("mem", "environ")))
'''
with LocalJupyterServer() as server, JupyterCodeExecutor(server) as executor:
    print(executor.execute_code_blocks([CodeBlock(look, "python")]).output, end="")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_the_code_cannot_read_the_token_in_the_gateways_memory(tmp_path: Path) -> None:
    """Code of the same user, who is not root, looks where the token must be; tracing may be unrestricted."""
    work = tmp_path / "work"
    work.mkdir()
    os.chown(work, NOBODY, NOBODY) if os.getuid() == 0 else None
    command = as_user([sys.executable, "-c", AS_ANOTHER_USER], NOBODY, needs=[str(work)])
    env = {"PATH": os.environ["PATH"], "HOME": str(work), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout == "True False\nPermissionError PermissionError\n", done.stderr


@only_in_full
def test_the_token_can_be_chosen_or_left_out() -> None:
    with LocalJupyterServer(token="chosen") as server:
        assert server.connection_info.token == "chosen"
        assert requests.get(f"{server.connection_info.url}api", timeout=10).status_code == 401
        assert run_code(server, "print(1)") == "1\n"
    with LocalJupyterServer(token=None) as server:
        assert server.connection_info.token is None
        assert run_code(server, "print(1)") == "1\n"


def test_without_a_token_it_does_not_listen_to_the_world() -> None:
    with pytest.raises(ValueError, match="without a token"):
        LocalJupyterServer(ip="0.0.0.0", token=None)


def test_mistake_in_policies_of_the_users_configuration_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"ExecEngine": {"policies": {"mine": {"max_session": 1}}}}
    (tmp_path / "jupyter_exec_gateway_config.json").write_text(json.dumps(config))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    with pytest.raises(PoliciesInvalid, match=r"policy 'mine': unknown field 'max_session'; did you mean"):
        LocalJupyterServer()


def test_two_servers_have_different_tokens_and_ports() -> None:
    with LocalJupyterServer() as one, LocalJupyterServer() as other:
        assert one.token != other.token
        assert one.port != other.port


def test_a_port_can_be_chosen_and_a_taken_one_is_named() -> None:
    port = free_port()
    with LocalJupyterServer(port=port) as server:
        assert server.port == server.connection_info.port == port
        with pytest.raises(ValueError, match=str(port)):
            LocalJupyterServer(port=port)


@only_in_full
def test_a_flood_of_log_lines_does_not_freeze_it(tmp_path: Path) -> None:
    """Thousands of refused requests, each logged, and a kernel that writes past everything to the real stdout."""
    with LocalJupyterServer(log_level="DEBUG") as server:
        session = requests.Session()
        for _ in range(1500):
            assert session.get(f"{server.connection_info.url}exec/v1", timeout=10).status_code == 401
        run_code(server, "import os\nfor _ in range(2000): os.write(1, b'x' * 100 + b'\\n')")
        assert run_code(server, "print('alive')") == "alive\n"
    assert (tmp_path / "jupyter_gateway.log").stat().st_size > 100_000


def test_the_log_is_rotated(tmp_path: Path) -> None:
    log = tmp_path / "own.log"
    with LocalJupyterServer(log_file=str(log), log_max_bytes=5000, log_backup_count=2) as server:
        for _ in range(100):
            requests.get(f"{server.connection_info.url}exec/v1", timeout=10)
    assert {path.name for path in tmp_path.glob("own.log*")} == {"own.log", "own.log.1", "own.log.2"}
    assert all(path.stat().st_size < 8000 for path in tmp_path.glob("own.log*"))


def test_stopping_ends_the_gateway_and_its_kernels_and_may_be_repeated() -> None:
    server = LocalJupyterServer()
    executor = JupyterCodeExecutor(server)
    executor.execute_code_blocks([CodeBlock("1", "python")])
    processes = processes_of(server)
    assert len(processes) >= 2
    server.stop()
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert alive == []
    server.stop()


def test_end_of_input_stops_gateway_in_order() -> None:
    server = LocalJupyterServer()
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 20
    assert server._subprocess.returncode == 0


def test_modules_of_the_current_directory_are_not_the_gateways(tmp_path: Path) -> None:
    (tmp_path / "secrets.py").write_text("raise SystemExit('shadowed')")
    with LocalJupyterServer() as server:
        assert run_code(server, "print(1)") == "1\n"


def test_gateway_that_does_not_stop_is_killed_with_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_STOP_SECONDS", 1.0)
    server = LocalJupyterServer()
    JupyterCodeExecutor(server).execute_code_blocks([CodeBlock("1", "python")])
    processes = processes_of(server)
    server._subprocess.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 20
    assert psutil.wait_procs(processes, timeout=20)[1] == []


def test_starting_and_stopping_leaves_no_thread_descriptor_or_hook() -> None:
    def use() -> tuple[int, int]:
        with LocalJupyterServer() as server:
            run_code(server, "1")
        kept = weakref.ref(server)
        del server
        gc.collect()
        assert kept() is None  # as it would not be if it was still to be stopped at the end of the program
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    threads, descriptors = use()
    threads_later, descriptors_later = use()
    assert threads_later <= threads
    assert descriptors_later <= descriptors


PARENT = """
import sys, time
from jupyter_exec_ext import CodeBlock, JupyterCodeExecutor, LocalJupyterServer
from jupyter_exec_ext.executors import local
server = LocalJupyterServer()
executor = JupyterCodeExecutor(server)
executor.execute_code_blocks([CodeBlock("1", "python")])
{more}
print(server._subprocess.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("more", "signal_name"),
    [
        ("", "SIGKILL"),
        ("", "SIGTERM"),
        ("import os\nif os.fork() == 0: time.sleep(30)", "SIGKILL"),
    ],
    ids=["killed", "terminated", "killed, and a forked relative holds the pipe"],
)
def test_nothing_outlives_a_parent_that_is_killed(tmp_path: Path, more: str, signal_name: str) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(more=more))
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        gateway = psutil.Process(int(parent.stdout.readline()))
        processes = [gateway, *gateway.children(recursive=True)]
        assert len(processes) >= 2
        parent.send_signal(getattr(signal, signal_name))
        parent.wait(10)
        _, alive = psutil.wait_procs(processes, timeout=15)
        os.killpg(parent.pid, signal.SIGKILL) if more else None
    assert alive == []


def test_a_parent_that_just_exits_stops_it(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "from jupyter_exec_ext import LocalJupyterServer\nprint(LocalJupyterServer()._subprocess.pid, flush=True)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert not psutil.pid_exists(int(done.stdout))


def test_gateway_that_cannot_start_reports_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernel_gateway.py").write_text("raise ImportError('broken on purpose')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    began = time.monotonic()
    with pytest.raises(ValueError, match="broken on purpose"):
        LocalJupyterServer()
    assert time.monotonic() - began < 20


def test_gateway_that_is_never_ready_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernel_gateway.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    before = psutil.Process().children(), threading.active_count()
    with pytest.raises(ValueError, match=r"within 2 seconds; raise startup_timeout_seconds") as raised:
        LocalJupyterServer(startup_timeout_seconds=2.0)
    assert str(tmp_path / "jupyter_gateway.log") in str(raised.value)
    assert (psutil.Process().children(), threading.active_count()) == before


def test_what_it_prints_does_not_decide_whether_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('ERROR: none at all\\nJupyter is available at http://h/')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with LocalJupyterServer() as server:
        assert "ERROR: none at all\n" in server._last_lines
        assert run_code(server, "print(1)").endswith("1\n")


def test_get_client_returns_working_client() -> None:
    with LocalJupyterServer() as server, server.get_client() as client:
        assert client.info()["host"] == "kernel_gateway"


def test_pool_size_reaches_the_gateways_configuration() -> None:
    settings = {"ip": "127.0.0.1", "port": 0, "token": "t", "log_level": "INFO"}
    assert configuration({**settings, "pool_size": 0}).ExecEngine.pool_size == 0
    assert "pool_size" not in configuration({**settings, "pool_size": None}).ExecEngine
