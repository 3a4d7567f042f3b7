"""`rollback_on_error`: a block that fails leaves the session as it was before it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import EmbeddedIPythonCodeExecutor, JupyterCodeExecutor
from jupyter_exec_ext.client.sync.session import ExecSession
from jupyter_exec_ext.errors import CheckpointUnsupported, PolicyDenied
from tests.executors.conftest import python
from tests.support.bearers import UNPROTECTED, mint
from tests.support.hosts import Host, running_host
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="checkpoints need Linux")

_BACK = "Rolled back: variables and files are as they were before this block."
Start = Callable[..., JupyterCodeExecutor]


@pytest.fixture
def start(hosts: Any, tmp_path: Path) -> Iterator[Start]:
    """Make executors that roll back; they are stopped at the end."""
    made: list[JupyterCodeExecutor] = []

    def make(**options: Any) -> JupyterCodeExecutor:
        options = {"timeout": 20, "output_dir": tmp_path, "rollback_on_error": True, **options}
        made.append(JupyterCodeExecutor(hosts["server"].info, **options))
        return made[-1]

    yield make
    for executor in made:
        executor.stop()


def checkpoints_of(executor: JupyterCodeExecutor) -> list[str]:
    session = executor._session
    assert isinstance(session, ExecSession)
    return [checkpoint.id for checkpoint in session.checkpoints()]


def last_line(executor: JupyterCodeExecutor, code: str) -> str:
    """Return the last line of the output of a block that fails."""
    result = executor.execute_code_blocks(python(code))
    assert result.exit_code == 1
    return result.output.splitlines()[-1]


def test_failed_block_leaves_variables_and_files_as_they_were(start: Start) -> None:
    executor = start()
    executor.execute_code_blocks(python("x = [1]", "x.append(2); print(x, file=open('kept.txt', 'w'))"))
    result = executor.execute_code_blocks(
        python("print('begun'); x.clear(); open('kept.txt', 'w'); open('new.txt', 'w'); 1 / 0", "print('never')")
    )
    assert (result.exit_code, result.output.splitlines()[0], result.output.splitlines()[-1]) == (1, "begun", _BACK)
    assert result.output.count(_BACK) == 1
    seen = executor.execute_code_blocks(python("import os; print(x, os.listdir(), open('kept.txt').read())"))
    assert seen.output.split("\n")[0] == "[1, 2] ['kept.txt'] [1, 2]"


def test_there_is_one_checkpoint_at_a_time(start: Start) -> None:
    executor = start()
    [first] = checkpoints_of(executor)
    executor.execute_code_blocks(python("x = 1", "x = 2"))
    [second] = checkpoints_of(executor)
    assert last_line(executor, "1 / 0") == _BACK
    [third] = checkpoints_of(executor)
    assert len({first, second, third}) == 3


@pytest.mark.parametrize(
    "code", ["import os; os._exit(1)", "import time; x = 2; time.sleep(60)"], ids=["kernel died", "timeout"]
)
def test_block_that_ends_the_kernel_or_takes_too_long_is_rolled_back(start: Start, code: str) -> None:
    executor = start(timeout=1)
    executor.execute_code_blocks(python("x = 1"))
    assert last_line(executor, code) == _BACK
    assert executor.execute_code_blocks(python("print(x)")).output == "1\n"


def test_functions_are_still_there_after_a_rollback(start: Start) -> None:
    def double(number: int) -> int:
        return 2 * number

    executor = start(functions=[double])
    assert last_line(executor, "1 / 0") == _BACK
    result = executor.execute_code_blocks(python("print(double(2)); 1 / 0"))
    assert result.output.startswith("4\n")
    assert "without the functions" not in result.output


def test_block_runs_without_a_checkpoint_where_a_thread_hinders_it(start: Start) -> None:
    executor = start()
    executor.execute_code_blocks(
        python("import threading; stop = threading.Event(); threading.Thread(target=stop.wait, name='waits').start()")
    )
    assert executor.execute_code_blocks(python("x = 1; print(x)")).output == "1\n"
    assert last_line(executor, "x = 2; 1 / 0").startswith("Not rolled back: the checkpoint cannot have all of the")
    assert executor.execute_code_blocks(python("stop.set(); print(x)")).output == "2\n"
    assert last_line(executor, "x = 3; 1 / 0") == _BACK


def test_rollback_does_not_undo_a_restart(start: Start) -> None:
    executor = start()
    executor.execute_code_blocks(python("x = 1"))
    results = []
    thread = threading.Thread(
        target=lambda: results.append(executor.execute_code_blocks(python("import time; time.sleep(60)")))
    )
    thread.start()
    session = executor._session
    assert isinstance(session, ExecSession)
    wait_until(lambda: session.refresh().state == "busy")
    executor.restart()
    thread.join()
    assert _BACK not in results[0].output
    assert "NameError" in executor.execute_code_blocks(python("print(x)")).output


def test_blocks_of_several_threads_run_one_after_the_other(start: Start) -> None:
    executor = start()
    executor.execute_code_blocks(python("counts = []"))
    codes = [f"counts.append({number}); {'1 / 0' if number % 2 else ''}" for number in range(6)]
    threads = [threading.Thread(target=executor.execute_code_blocks, args=(python(code),)) for code in codes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert executor.execute_code_blocks(python("print(sorted(counts))")).output == "[0, 2, 4]\n"


def test_without_the_option_there_is_no_checkpoint(start: Start) -> None:
    executor = start(rollback_on_error=False)
    assert "Rolled back" not in executor.execute_code_blocks(python("x = 1; 1 / 0")).output
    assert checkpoints_of(executor) == []


def test_server_or_policy_without_checkpoints_is_an_error_at_once(plain_server: Host, tmp_path: Path) -> None:
    for make in (
        lambda: JupyterCodeExecutor(plain_server.info, rollback_on_error=True),
        lambda: EmbeddedIPythonCodeExecutor(rollback_on_error=True),
    ):
        with pytest.raises(CheckpointUnsupported, match="only servers with this package"):
            make()
    with running_host("server", tmp_path, UNPROTECTED) as host:
        token = mint(host, max_checkpoints=0).token
        with pytest.raises(PolicyDenied, match="allows no checkpoints"):
            JupyterCodeExecutor(replace(host.info, token=token), rollback_on_error=True)
