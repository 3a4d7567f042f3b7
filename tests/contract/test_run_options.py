"""Options of one run: environment variables for it alone, an error instead of a result, and a directory to begin in."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_exec_ext.errors import CodeError, InvalidRequest
from jupyter_exec_ext.models import ExecutionState
from jupyter_exec_ext.protocol.records_json import to_json

READ = "import os; print(os.environ.get('EXEC_A'), os.environ.get('EXEC_B'))"


def test_env_of_a_run_is_restored_after_success_error_and_timeout(session: Any) -> None:
    session.run("import os; os.environ['EXEC_A'] = 'before'")
    assert session.run(READ, env={"EXEC_A": "during", "EXEC_B": "new"}).stdout == "during new\n"
    assert session.run(READ).stdout == "before None\n"
    assert session.run("1 / 0", env={"EXEC_A": "during"}).state is ExecutionState.ERROR
    stopped = session.run("while True: pass", env={"EXEC_A": "during"}, timeout=1.0)
    assert stopped.state is ExecutionState.TIMEOUT
    assert session.run(READ).stdout == "before None\n"


def test_variables_of_a_run_reach_its_shell_and_leave_no_trace_in_session_or_record(session: Any) -> None:
    names = "sorted(n for n in globals() if not n.startswith('_'))"
    before = session.run(names).text
    run = session.run("echo ${#EXEC_A}", language="bash", env={"EXEC_A": "in the shell"})
    assert run.stdout == "12\n"
    assert "in the shell" not in str(to_json(run))
    assert session.run(names).text == before
    assert session.run("import os; hasattr(os, '_exec_env')").text == "False"
    counts = [session.run("1", env=env).execution_count for env in (None, {"EXEC_A": "1"}, None)]
    assert counts == list(range(counts[0], counts[0] + 3))


@pytest.mark.parametrize("env", [{"a b": "1"}, {"A": "\0"}, {"A": 1}])
def test_variables_that_no_process_can_have_are_refused_and_nothing_runs(session: Any, env: dict[str, Any]) -> None:
    session.run("ran = False")
    with pytest.raises(InvalidRequest, match="'env'"):
        session.run("ran = True", env=env)
    assert session.run("ran").text == "False"


def test_check_raises_what_the_code_raised(client: Any, session: Any) -> None:
    assert session.run("40 + 2", check=True).text == "42"
    with pytest.raises(CodeError, match="ZeroDivisionError: division by zero") as raised:
        session.run("print('so far'); 1 / 0", check=True)
    assert raised.value.execution.stdout == "so far\n"
    with pytest.raises(CodeError, match="NameError"):
        client.run("unknown_name", check=True)


def test_timeout_and_timeout_seconds_together_raise_type_error(client: Any, session: Any) -> None:
    assert session.run("while True: pass", timeout=0.5).state is ExecutionState.TIMEOUT
    for run in (session.run, session.submit, client.run):
        with pytest.raises(TypeError, match="give one of them"):
            run("1", timeout=1, timeout_seconds=1)


def test_session_begins_in_its_directory_and_returns_there_after_a_restart(client: Any) -> None:
    with client.session(cwd="data/raw") as session:
        session.run("open('here.txt', 'w').close()", check=True)
        assert [file.path for file in session.list_files()] == ["data/raw/here.txt"]
        session.restart()
        assert session.run("import os; os.path.exists('here.txt')").text == "True"


@pytest.mark.parametrize("path", ["/tmp", "../up", "a//b", "x" * 5000])
def test_directory_outside_of_the_session_is_refused(client: Any, path: str) -> None:
    with pytest.raises(InvalidRequest):
        client.session(cwd=path)


def test_lists_are_tables_and_still_lists(client: Any, fresh: Any) -> None:
    fresh.run("'shown'")
    assert isinstance(client.list_sessions(), list)
    assert fresh.id in repr(client.list_sessions())
    assert "'shown'" in repr(fresh.list_executions())  # of a session with few: a table has 60 rows at most
    assert "<table>" in client.kernelspecs()._repr_html_()
