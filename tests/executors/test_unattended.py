"""Code that nobody watches: how it exits, and shell scripts with something in the background."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from typing import Any

import psutil
import pytest

from jupyter_exec_ext import CodeBlock, ExecClient
from jupyter_exec_ext.executors.stateful_executor import StatefulCodeExecutor
from jupyter_exec_ext.models import ErrorEvent, ExecutionState
from jupyter_exec_ext.protocol.kernel_messages import KernelMessage
from jupyter_exec_ext.protocol.message_translation import RunTranslator
from jupyter_exec_ext.protocol.run_states import End
from tests.executors.conftest import Make, python
from tests.executors.test_embedded import ended
from tests.support.full import IS_FULL

#: Each kind of session; a gateway's are a server's.
each_kind = pytest.mark.parametrize("make", ["server", "plain server", "embedded"], indirect=True)


# --- exits ---

SUCCESSES = [
    "exit()",
    "quit()",
    "exit",
    "exit(0)",
    "exit(keep_kernel=True)",
    "import sys\nsys.exit()",
    "import sys\nsys.exit(0)",
    "import sys\nsys.exit(False)",
    "raise SystemExit",
    "class Done(SystemExit): pass\nraise Done(0)",
    "import asyncio, sys\nawait asyncio.sleep(0)\nsys.exit(0)",
    "%%time\nimport sys; sys.exit(0)",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\nunittest.main(argv=[''])",
    "import argparse\nargparse.ArgumentParser().parse_args(['--help'])",
]
FAILURES = {
    "exit(1)": "1",
    "quit(5)": "5",
    "import sys\nsys.exit(4)": "4",
    "import sys\nsys.exit(True)": "1",
    "import sys\nsys.exit('no data')": "no data",
    "import sys\nsys.exit('0')": "'0'",
    "raise SystemExit(-1)": "-1",
    "def leave():\n    exit(7)\nleave()": "7",
    "class Bad(SystemExit): pass\nraise Bad(3)": "3",
    "import asyncio\nawait asyncio.sleep(0)\nexit(9)": "9",
    "import os, sys, tempfile\nsys.path.insert(0, tempfile.mkdtemp())\n"
    "open(os.path.join(sys.path[0], 'leaving.py'), 'w').write('exit(6)')\nimport leaving": "6",
    "import argparse\nargparse.ArgumentParser().parse_args(['-x'])": "2",
}


@each_kind
def test_code_that_exits_with_success_is_one_and_later_blocks_run(executor: StatefulCodeExecutor) -> None:
    for code in SUCCESSES:
        rest = "" if code in ("exit", "quit") or code.startswith("%%") else "\nprint('not reached')"
        result = executor.execute_code_blocks(python("kept = 1", code + rest, "print('next', kept)"))
        assert (result.exit_code, result.output.splitlines()[-1]) == (0, "next 1"), code
        assert not re.search("not reached|SystemExit|To exit|%tb", result.output), code


@each_kind
def test_code_that_exits_with_a_failure_is_one_and_the_kernel_lives(executor: StatefulCodeExecutor) -> None:
    executor.execute_code_blocks(python("kept = 1"))
    for code, value in FAILURES.items():
        result = executor.execute_code_blocks(python(f"print('before')\n{code}\nprint('not reached')", "print('next')"))
        assert result.exit_code == 1, code
        assert result.output.startswith("before\n"), code
        assert result.output.rstrip().endswith(f"SystemExit: {value}"), code
        assert not re.search("not reached|next|To exit|%tb|Traceback", result.output), code
    assert executor.execute_code_blocks(python("print(kept)")).output == "1\n"


@each_kind
def test_exit_is_one_again_after_a_restart_and_a_reset(make: Make) -> None:
    executor = make()
    for code in ("%reset -f", "import os; os._exit(1)"):
        executor.execute_code_blocks(python(code))
        assert executor.execute_code_blocks(python("print(1)\nexit(3)\nprint(2)")).output == "1\nSystemExit: 3"
    executor.restart()
    assert executor.execute_code_blocks(python("print(1)\nexit(3)\nprint(2)")).output == "1\nSystemExit: 3"
    assert executor.execute_code_blocks(python("%who")).output == "Interactive namespace is empty.\n"


@each_kind
def test_users_own_exit_function_is_called(executor: StatefulCodeExecutor) -> None:
    blocks = python("def exit(code): print('mine', code)", "exit(3)", "print('next')")
    assert executor.execute_code_blocks(blocks).output == "mine 3\nnext\n"


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("SystemExit", "", ExecutionState.OK),
        ("SystemExit", "0", ExecutionState.OK),
        ("SystemExit", "None", ExecutionState.OK),
        ("SystemExit", "False", ExecutionState.OK),
        ("SystemExit", "1", ExecutionState.ERROR),
        ("SystemExit", "00", ExecutionState.ERROR),
        ("ValueError", "0", ExecutionState.ERROR),
    ],
)
def test_a_kernel_that_reports_success_as_an_error(name: str, value: str, state: ExecutionState) -> None:
    content = {"ename": name, "evalue": value, "traceback": [f"{name}: {value}"]}
    translator = RunTranslator("run")
    events = [translator.feed(KernelMessage("iopub", "error", "run", content))]
    translator.feed(KernelMessage("shell", "execute_reply", "run", {**content, "status": "error"}))
    translator.feed(KernelMessage("iopub", "status", "run", {"execution_state": "idle"}))
    events += translator.close()
    assert translator.states.end is End.COMPLETE
    assert translator.verdict() is state
    assert any(isinstance(event, ErrorEvent) for event in events) is (state is ExecutionState.ERROR)


# --- shell scripts ---

SLEEPER = "import time; time.sleep(600)"
# Each prints the number of the process that it leaves in the background.
BACKGROUND = {
    "bash": ("bash", f"{sys.executable} -c '{SLEEPER}' &\necho $!"),
    "sh": ("sh", "sleep 600 &\necho $!"),
    "bash, quiet": ("bash", "sleep 600 >/dev/null 2>&1 &\necho $!"),
    "bash, nohup": ("bash", "nohup sleep 600 &\necho $!"),
    "bash, group": ("bash", "(sleep 600; true) &\necho $!"),
    "bash, setsid": ("bash", "setsid sleep 600 &\necho $!"),
    "cell": ("python", "%%bash -u\nsleep 600 &\necho $!"),
    "script cell": ("python", "%%script bash\nsleep 600 &\necho $!"),
    "python cell": (
        "python",
        f"%%script {sys.executable}\nimport subprocess\nprint(subprocess.Popen(['sleep', '600']).pid)",
    ),
    "Popen": ("python", "import subprocess\nprint(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"),
}


@each_kind
def test_a_script_ends_with_its_shell_and_its_background_with_the_executor(
    make: Make, request: pytest.FixtureRequest
) -> None:
    executor = make(timeout=20)
    pids = []
    for name, (language, code) in BACKGROUND.items():
        began = time.monotonic()
        result = executor.execute_code_blocks([CodeBlock(code, language)])
        assert result.exit_code == 0, (name, result.output)
        assert time.monotonic() - began < 10, name
        pids.append(int(re.findall(r"^\d+$", result.output, re.MULTILINE)[0]))
        assert psutil.pid_exists(pids[-1]), name
    assert all(map(psutil.pid_exists, pids)), "it goes on while the session does"
    executor.stop()
    if "plain server" in request.node.name:  # which ends a kernel, and what is in its process group
        for pid in pids:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
        return
    assert all(map(ended, pids))


@each_kind
def test_a_restart_ends_what_was_in_the_background(make: Make, request: pytest.FixtureRequest) -> None:
    executor = make()
    pid = int(executor.execute_code_blocks([CodeBlock("setsid sleep 600 &\necho $!", "bash")]).output)
    executor.restart()
    if "plain server" in request.node.name:
        os.kill(pid, signal.SIGKILL)
    assert ended(pid)


@each_kind
def test_output_of_the_background_comes_while_the_session_lasts(executor: StatefulCodeExecutor) -> None:
    ticking = "(while true; do echo tick; sleep 0.05; done) &\necho started"
    assert "started\n" in executor.execute_code_blocks([CodeBlock(ticking, "bash")]).output
    assert "tick" in executor.execute_code_blocks(python("import time; time.sleep(0.5)")).output


@each_kind
def test_a_scripts_output_is_complete_and_its_status_counts(executor: StatefulCodeExecutor) -> None:
    def run(code: str, language: str = "bash") -> Any:
        result = executor.execute_code_blocks([CodeBlock(code, language)])
        return result.exit_code, result.output

    failed = "CalledProcessError: Command 'bash' returned non-zero exit status {}."
    assert run("echo a; echo ü; exit 3") == (1, "a\nü\n" + failed.format(3))
    assert run("nosuchcommand")[1].endswith("command not found\n" + failed.format(127))
    assert run("kill -9 $$") == (1, "CalledProcessError: Command 'bash' died with <Signals.SIGKILL: 9>.")
    assert run("false; true") == (0, "")
    assert run("set -e; false; echo no") == (1, failed.format(1))
    assert run("head -c 3000000 /dev/zero | tr '\\0' x") == (0, "x" * 3_000_000)
    assert run("printf 'no line end'") == (0, "no line end")
    assert run("cat <<END\nhere\nEND\n") == (0, "here\n")
    assert run(f"x={'y' * 300_000}\necho ${{#x}}") == (0, "300000\n")
    assert run("printf '\\xff\\n'") == (0, "\ufffd\n")
    assert run("%%bash --out kept\necho kept", "python") == (0, "")
    assert run("print(kept)", "python")[1].startswith("kept\n")
    assert run("if true; then\r\n  echo yes\r\nfi\r\n") == (0, "yes\n")
    assert run("%%bash\r\nif true; then\r\n  echo yes\r\nfi\r\n", "python") == (0, "yes\n")


@each_kind
def test_a_script_that_takes_too_long_is_stopped_and_the_variables_are_kept(make: Make) -> None:
    executor = make(timeout=1)
    executor.execute_code_blocks(python("kept = 1"))
    scripts = ["trap '' INT\nwhile true; do sleep 0.1; done", "sleep 600", "sleep 600 | cat"]
    for script in scripts[: 3 if IS_FULL else 1]:
        result = executor.execute_code_blocks([CodeBlock(f"echo $$\n{script}", "bash")])
        assert result.exit_code == 1
        assert "time limit" in result.output
        assert "variables were kept" in result.output
        assert ended(int(result.output.split()[0]))
    assert executor.execute_code_blocks(python("print(kept)")).output == "1\n"


# --- output by descriptor ---

BY_DESCRIPTOR = {
    "subprocess.run(['echo', 'hello'], stdout=sys.stdout)": "hello\n",
    "subprocess.run(['ls', '/no/such/place'], stderr=sys.stderr)": "/no/such/place",
    "subprocess.run('echo both; echo of >&2', shell=True, stdout=sys.stdout, stderr=sys.stdout)": "both\nof\n",
    "os.write(sys.stdout.fileno(), b'written\\n')": "written\n",
    "import faulthandler; faulthandler.dump_traceback()": "most recent call first",
    "os.system('echo by the shell')": "by the shell\n",
    "subprocess.run('yes | head -c 500000', shell=True, stdout=sys.stdout)": "y\n" * 250_000,
    "print('before', flush=True); subprocess.run(['echo', 'after'], stdout=sys.stdout)": "before\nafter\n",
}


@each_kind
def test_output_by_descriptor_is_in_the_result(executor: StatefulCodeExecutor) -> None:
    executor.execute_code_blocks(python("import os, subprocess, sys"))
    for code, output in BY_DESCRIPTOR.items():
        for _ in range(3):
            assert output in executor.execute_code_blocks(python(f"{code};")).output, code
    dumps = "import threading\nthreads = [threading.Thread(target=deep, args=(90,)) for _ in range(95)]"
    deep = "def deep(n): deep(n - 1) if n else event.wait()"
    code = f"{deep}\n{dumps}\nevent = threading.Event()\nfor t in threads: t.start()\nfaulthandler.dump_traceback()\n"
    result = executor.execute_code_blocks(python(f"import faulthandler\n{code}event.set()"))
    assert result.output.count("deep") > 8000


def test_a_session_of_the_client_exits_as_an_executors_does(hosts: Any) -> None:
    with ExecClient(hosts["server"].info) as client:
        for session in (client.session(), client.standard_session()):
            with session:
                assert session.run("exit()\nprint('not reached')").ok
                failed = session.run("exit(2)")
                assert failed.error is not None
                assert (failed.error.name, failed.error.value) == ("SystemExit", "2")
                assert failed.session_state_preserved
