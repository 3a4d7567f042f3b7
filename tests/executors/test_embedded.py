"""What is only the embedded executor's: its kernel's process, environment and end. The rest is in `test_jupyter`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
from jupyter_client.kernelspec import KernelSpecManager

from jupyter_exec_ext import EmbeddedIPythonCodeExecutor
from jupyter_exec_ext.errors import KernelStartFailed, OutOfResources, SessionEnded
from jupyter_exec_ext.executors.stateful_executor import StatefulCodeExecutor
from jupyter_exec_ext.models import ExecutionState, OutputEvent, StreamEvent
from tests.executors.conftest import python
from tests.support.full import only_in_full
from tests.support.sandbox_leftovers import WORK
from tests.support.session_processes import has_ended


def say(executor: StatefulCodeExecutor, code: str) -> str:
    result = executor.execute_code_blocks(python(code))
    assert result.exit_code == 0, result.output
    return result.output.strip()


def pid_of(executor: StatefulCodeExecutor) -> int:
    return int(say(executor, "import os; print(os.getpid())"))


def ended(pid: int) -> bool:
    """Whether a process has ended, waited for or not."""
    try:
        process = psutil.Process(pid)
        process.wait(10)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return has_ended(process)
    return True


def test_the_code_gets_a_chosen_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with EmbeddedIPythonCodeExecutor(env={"MODE": "test"}, output_dir=str(tmp_path)) as executor:
        look = "import os; print(os.environ.get('OPENAI_API_KEY'), os.environ['MODE'], 'PATH' in os.environ)"
        assert say(executor, look) == "None test True"
    assert executor.output_dir == tmp_path


def test_stopping_ends_the_kernel_and_its_children_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    executor = EmbeddedIPythonCodeExecutor()
    child = int(say(executor, "import subprocess; p = subprocess.Popen(['sleep', '300']); print(p.pid)"))
    kernel = pid_of(executor)
    assert list((tmp_path / "run").glob("kernel-*.json"))
    executor.stop()
    executor.stop()
    assert ended(kernel) and ended(child)
    assert not list((tmp_path / "run").glob("kernel-*.json"))
    assert not list((tmp_path / "temporary").iterdir())
    with pytest.raises(SessionEnded, match="stopped"):
        executor.restart()


def test_garbage_collected_executor_ends_its_kernel() -> None:
    executor = EmbeddedIPythonCodeExecutor()
    child = int(say(executor, "import subprocess; p = subprocess.Popen(['sleep', '300']); print(p.pid)"))
    kernel = pid_of(executor)
    del executor
    gc.collect()
    assert ended(kernel) and ended(child)


def test_a_process_that_is_killed_leaves_no_kernel() -> None:
    code = """
    import os, signal
    from jupyter_exec_ext import CodeBlock, EmbeddedIPythonCodeExecutor
    executor = EmbeddedIPythonCodeExecutor()
    print(executor.execute_code_blocks([CodeBlock("import os; print(os.getpid())", "python")]).output, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    code = "\n".join(line.strip() for line in code.splitlines())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert ended(int(done.stdout))


def test_exiting_process_leaves_no_kernel_and_no_warning(tmp_path: Path) -> None:
    code = "from jupyter_exec_ext import EmbeddedIPythonCodeExecutor\nexecutor = EmbeddedIPythonCodeExecutor()\n"
    options = ["-W", "error", "-X", "dev"]
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    # Development mode has asyncio note what took 0.1 s, which says something about the machine.
    told = [line for line in done.stderr.splitlines() if not re.fullmatch(r"Executing <.*> took [\d.]+ seconds", line)]
    assert (done.stdout, told) == ("", [])
    assert not list((tmp_path / "run").glob("kernel-*.json"))


def test_it_works_where_an_event_loop_runs() -> None:
    async def agent() -> str:
        with EmbeddedIPythonCodeExecutor() as executor:
            return say(executor, "print('inside')")

    assert asyncio.run(agent()) == "inside"


def test_a_kernel_that_died_while_nothing_ran_is_replaced_before_the_next_run() -> None:
    with EmbeddedIPythonCodeExecutor() as executor:
        for _ in range(2):
            os.kill(pid_of(executor), signal.SIGKILL)
            result = executor.execute_code_blocks(python("print('runs')"))
            said, _, output = result.output.partition("\n")
            assert said.startswith("State lost: the kernel was ended by SIGKILL after the code before this had run. ")
            assert (result.exit_code, output) == (1, "runs\n")


@only_in_full
def test_a_flood_of_output_is_bounded_here_and_the_kernel_waits_for_a_slow_reader(tmp_path: Path) -> None:
    printed = tmp_path / "printed"

    def read_slowly(event: OutputEvent) -> None:
        if isinstance(event, StreamEvent):
            time.sleep(0.1)

    with EmbeddedIPythonCodeExecutor() as executor:
        say(executor, "print('x' * 1000)")
        before = psutil.Process().memory_info().rss
        session = executor._open_session()
        flood = f"file = open({str(printed)!r}, 'w', buffering=1)\nwhile True: print('x' * 100_000); print(file=file)"
        execution = session.run(flood, timeout_seconds=3, on_event=read_slowly)
        grown = psutil.Process().memory_info().rss - before
        assert execution.state is ExecutionState.TIMEOUT
        assert grown < 60 * 1024 * 1024
        assert 0 < len(printed.read_text()) <= 500  # some thirty were read; ZeroMQ by itself would let it print 2,000
        session.close()


def test_output_beyond_cap_is_dropped_and_reported() -> None:
    with EmbeddedIPythonCodeExecutor() as executor:
        result = executor.execute_code_blocks(python("for n in range(500): print('x' * 100_000)"))
    assert "bytes of stdout left out" in result.output
    assert len(result.output) < 40_000_000


def test_output_of_many_messages_is_complete() -> None:
    with EmbeddedIPythonCodeExecutor() as executor:
        code = "from IPython.display import display\nfor n in range(3000): display({'n': n})"
        numbers = [json.loads(line.replace("'", '"'))["n"] for line in say(executor, code).splitlines()]
        assert numbers == list(range(3000))
        assert len(say(executor, "print('y' * 20_000_000)")) == 20_000_000


def test_a_kernelspec_that_is_not_installed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Kernel nope is not installed\..*ipykernel install --user --name nope"):
        EmbeddedIPythonCodeExecutor(kernel_name="nope")


def test_kernel_that_does_not_start_reports_reason(tmp_path: Path) -> None:
    for name, argv in {
        "falls": [sys.executable, "-c", "raise SystemExit('no licence')", "{connection_file}"],
        "missing": [str(tmp_path / "no-such-program"), "{connection_file}"],
    }.items():
        (tmp_path / name).mkdir()
        spec = {"argv": argv, "display_name": name, "language": "python"}
        (tmp_path / name / "kernel.json").write_text(json.dumps(spec))
        KernelSpecManager().install_kernel_spec(str(tmp_path / name), name, user=True)

    def held() -> tuple[int, int, int]:
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd")), len(psutil.Process().children())

    def fail() -> tuple[int, int, int]:
        with pytest.raises(KernelStartFailed, match="ended before it answered:\nno licence"):
            EmbeddedIPythonCodeExecutor(kernel_name="falls")
        with pytest.raises(KernelStartFailed, match="no-such-program"):
            EmbeddedIPythonCodeExecutor(kernel_name="missing")
        return held()

    assert fail() == fail()
    assert not list((tmp_path / "run").glob("kernel-*.json"))


@pytest.mark.needs("sandbox")
@only_in_full
def test_a_kernel_in_a_sandbox_is_stopped_and_replaced_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boxed").mkdir()
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "boxed",
        "language": "python",
        "metadata": {"kernel_provisioner": {"provisioner_name": "sandbox-provisioner"}},
    }
    (tmp_path / "boxed" / "kernel.json").write_text(json.dumps(spec))
    KernelSpecManager().install_kernel_spec(str(tmp_path / "boxed"), "boxed", user=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with EmbeddedIPythonCodeExecutor(kernel_name="boxed", timeout=2) as executor:
        assert say(executor, "import os; print(os.getcwd())") == WORK
        assert "variables were kept" in executor.execute_code_blocks(python("while True: pass")).output
        assert "KernelDied" in executor.execute_code_blocks(python("os._exit(1)")).output
        assert say(executor, "print('again')") == "again"


def test_importing_executors_loads_nothing_of_kernels() -> None:
    code = (
        "import sys, jupyter_exec_ext.executors\n"
        "jupyter_exec_ext.executors.EmbeddedIPythonCodeExecutor\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'zmq', 'traitlets', 'jupyter_client'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_exhausted_descriptors_raise_out_of_resources() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # not while it counts on what is open: earlier tests have left objects with descriptors
    opened = len(os.listdir("/proc/self/fd"))
    try:
        for free in range(0, 32, 4):  # at some of these, libzmq would end this process
            resource.setrlimit(resource.RLIMIT_NOFILE, (opened + free, limits[1]))
            with pytest.raises(OutOfResources, match="too many open files"):
                EmbeddedIPythonCodeExecutor()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with EmbeddedIPythonCodeExecutor() as executor:
        assert say(executor, "print(1)") == "1"
        assert len(os.listdir("/proc/self/fd")) < opened + 32
