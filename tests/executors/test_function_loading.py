"""Functions in real sessions: on servers with our API and without it, and after each way to lose a kernel."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import JupyterCodeExecutor, with_requirements
from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.executors import FunctionWithRequirements
from jupyter_exec_ext.executors.function_sources import AnyFunction
from jupyter_exec_ext.executors.stateful_executor import StatefulCodeExecutor
from tests.executors.conftest import Make, python
from tests.support.full import only_in_full
from tests.support.hosts import Host


@with_requirements(python_packages=["ipykernel>=6"], global_imports=["math"])
def area(radius: float) -> float:
    """Return the area of a circle."""
    return math.pi * radius**2  # type: ignore[name-defined,no-any-return]  # noqa: F821


def broken() -> None:
    raise RuntimeError("in a function")


SHOW = "from functions import area; print(round(area(1), 2))"


@pytest.fixture
def with_functions(make: Make) -> StatefulCodeExecutor:
    return make(functions=[area, broken])


def works(executor: StatefulCodeExecutor) -> bool:
    return executor.execute_code_blocks(python(SHOW)).output == "3.14\n"


def test_functions_can_be_imported_and_called_by_name(with_functions: StatefulCodeExecutor) -> None:
    assert works(with_functions)
    assert with_functions.execute_code_blocks(python("area(2) == functions.area(2)", "area(0)")).exit_code == 1
    assert with_functions.execute_code_blocks(python("area(0)")).output == "0.0"
    assert (with_functions.functions, with_functions.functions_module) == (["area", "broken"], "functions")
    assert 'def area(radius: float) -> float:\n    """Return the' in with_functions.format_functions_for_prompt()


def test_a_traceback_shows_the_line_of_the_function(with_functions: StatefulCodeExecutor) -> None:
    output = with_functions.execute_code_blocks(python("broken()")).output
    assert 'raise RuntimeError("in a function")' in output
    assert output.endswith("RuntimeError: in a function")


def test_functions_are_there_after_a_restart(with_functions: StatefulCodeExecutor) -> None:
    with_functions.restart()
    assert works(with_functions)


def test_functions_are_there_after_a_restart_during_which_a_block_ran(
    with_functions: StatefulCodeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = with_functions._session
    restart = session.restart

    def run_block_and_restart() -> None:
        assert works(with_functions)  # in the old kernel, as another thread may run it
        restart()

    monkeypatch.setattr(session, "restart", run_block_and_restart)
    with_functions.restart()
    assert works(with_functions)


def test_functions_are_there_after_the_kernel_died(with_functions: StatefulCodeExecutor) -> None:
    assert "KernelDied" in with_functions.execute_code_blocks(python("import os; os._exit(1)")).output
    assert works(with_functions)


@only_in_full
def test_functions_are_there_after_code_that_had_to_be_killed(make: Make) -> None:
    with make(timeout=3, functions=[area]) as executor:
        stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)"
        assert "variables were lost" in executor.execute_code_blocks(python(stubborn)).output
        assert works(executor)


def test_kernel_that_died_while_idle_is_reported(with_functions: StatefulCodeExecutor) -> None:
    pid = int(with_functions.execute_code_blocks(python("import os; print(os.getpid())")).output)
    os.kill(pid, signal.SIGKILL)
    outputs = [with_functions.execute_code_blocks(python(SHOW)).output for _ in range(3)]
    assert "3.14\n" in outputs, outputs
    before = outputs[: outputs.index("3.14\n")]
    lost = "without the functions of the module functions"
    assert all((said.startswith("State lost: ") and lost in said) or "Died" in said for said in before), before


def test_functions_are_in_the_session_that_replaces_an_ended_one(hosts: Any, tmp_path: Path) -> None:
    server: Host = hosts["server"]
    with JupyterCodeExecutor(server.info, output_dir=tmp_path, functions=[area]) as executor:
        with ExecClient(server.info) as client:
            client.get_session(executor._session.id).close()
        assert "A fresh session was started" in executor.execute_code_blocks(python(SHOW)).output
        assert works(executor)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            FunctionWithRequirements(broken, ["no-such-package>=2", "ipykernel"]),
            r"Packages unavailable in the session: no-such-package>=2$",
        ),
        (
            FunctionWithRequirements(broken, global_imports=["no_such_module"]),
            "Functions failed to load: (.|\n)*No module named 'no_such_module'",
        ),
    ],
)
def test_missing_packages_are_named_and_no_kernel_is_left(server: Host, function: AnyFunction, said: str) -> None:
    import requests

    def kernels() -> set[str]:
        answer = requests.get(f"{server.info.url}api/kernels", headers=server.info.auth_headers, timeout=30)
        return {kernel["id"] for kernel in answer.json()}

    before = kernels()
    with pytest.raises(ValueError, match=said):
        JupyterCodeExecutor(server.info, functions=[function])
    assert kernels() <= before
