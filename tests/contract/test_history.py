"""History: pages of a session's executions, and the search in those of all sessions, ended ones included."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from jupyter_exec_ext.errors import ExecutionNotFound, InvalidRequest


def test_executions_are_listed_page_by_page(fresh: Any) -> None:
    ids = [fresh.submit(f"x = {number}").id for number in range(5)]
    fresh.run("1")
    assert [one.id for one in fresh.list_executions(2, before=ids[4])] == ids[2:4]
    assert [one.id for one in fresh.list_executions(2, before=ids[2])] == ids[:2]
    assert fresh.list_executions(before=ids[0]) == []
    assert [one.id for one in fresh.list_executions(2, after=ids[0])] == ids[1:3]
    assert [one.id for one in fresh.list_executions(after=ids[0], before=ids[3])] == ids[1:3]
    with pytest.raises(ExecutionNotFound, match="list its executions again"):
        fresh.list_executions(before="exe_unknown")


def test_cursor_of_another_session_is_unknown(session: Any, fresh: Any) -> None:
    fresh.run("1")
    with pytest.raises(ExecutionNotFound):
        fresh.list_executions(after=session.run("1").id)


def test_search_finds_executions_of_ended_sessions(client: Any) -> None:
    planted = secrets.token_hex(8)
    with client.session(name=f"named {planted}a") as ended:
        by_name = ended.run("1")
        by_code = ended.run(f"x = '{planted}b'")
        by_output = ended.run(f"print('{planted[::-1]}'[::-1] + 'c')")
        by_error = ended.run(f"raise KeyError('{planted[::-1]}'[::-1] + 'd')")
    expected = {"b": by_code, "c": by_output, "d": by_error}
    for letter, execution in expected.items():
        (one,) = client.search_executions(f"{planted.upper()}{letter}")
        assert (one.execution.id, one.session_name) == (execution.id, f"named {planted}a")
        assert (one.execution.session_id, one.execution.stdout) == (ended.id, "")
    found = client.search_executions(f"{planted}a", limit=3)
    assert [one.execution.id for one in found] == [by_error.id, by_output.id, by_code.id]
    assert [one.execution.id for one in client.search_executions(f"{planted}a", before=by_code.id)] == [by_name.id]
    assert f"named {planted}a" in repr(found)


def test_search_takes_its_text_as_it_is(client: Any, session: Any) -> None:
    planted = secrets.token_hex(8)
    run = session.run(f"""x = '"{planted}" AND %_&?#+'""")
    (found,) = client.search_executions(f'"{planted}" AND %_&?#+')
    assert found.execution.id == run.id
    assert client.search_executions(f"{planted[:6]}*") == []
    assert [found.execution.id for found in client.search_executions(f'{planted}" AND ')] == [run.id]
    assert client.search_executions(f'{planted}" AND  ') == []
    with pytest.raises(InvalidRequest, match="at least 3 characters"):
        client.search_executions("ab")
    with pytest.raises(InvalidRequest, match="at most 200"):
        client.search_executions("a" * 201)


def test_running_execution_is_found_as_it_is_now(client: Any, session: Any) -> None:
    planted = secrets.token_hex(8)
    handle = session.submit(f"import time; time.sleep(60) # {planted}", allow_input=False)
    try:
        (found,) = client.search_executions(planted)
        assert (found.execution.id, found.execution.state.finished) == (handle.id, False)
    finally:
        handle.cancel()
    (found,) = client.search_executions(planted)
    assert found.execution.state == "cancelled"
