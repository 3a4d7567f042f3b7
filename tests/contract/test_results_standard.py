"""The same results over the standard kernels API and WebSocket, as on a server without our extension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_exec_ext.models import ExecutionState
from tests.contract.test_results import *  # noqa: F403
from tests.hosts import MAX_OUTPUT_BYTES, Host


@pytest.fixture(scope="session", params=["server", "gateway", "aca"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = hosts[request.param]
    return started


@pytest.fixture(scope="session")
def _standard(client: Any) -> Iterator[Any]:
    with client.standard_session(max_output_bytes=MAX_OUTPUT_BYTES) as session:
        yield session


@pytest.fixture
def session(_standard: Any) -> Any:
    """A kernel of the standard API, used as a session."""
    return _standard


def test_code_that_takes_too_long_is_stopped_and_the_state_kept(session: Any) -> None:
    session.run("before_timeout = 'kept'")
    result = session.run("print('started', flush=True)\nwhile True: pass", timeout_seconds=1.5)
    assert (result.state, result.session_state_preserved) == (ExecutionState.TIMEOUT, True)
    assert result.stdout == "started\n"
    assert session.run("print(before_timeout)").stdout == "kept\n"


def test_code_that_ignores_the_interrupt_loses_its_kernel_and_that_is_said(client: Any) -> None:
    stubborn = "import time\nwhile True:\n    try: time.sleep(60)\n    except KeyboardInterrupt: pass"
    with client.standard_session() as fresh:
        result = fresh.run(stubborn, timeout_seconds=0.5)
        assert (result.state, result.session_state_preserved) == (ExecutionState.TIMEOUT, False)
        assert fresh.run("print('again')").stdout == "again\n"


def test_a_dead_kernel_is_named_and_the_next_run_works(client: Any) -> None:
    with client.standard_session() as fresh:
        result = fresh.run("import os; os._exit(3)")
        assert (result.state, result.session_state_preserved) == (ExecutionState.KERNEL_DIED, False)
        again = fresh.run("print('again')")
        assert (again.stdout, again.kernel_starts) == ("again\n", 2)


def test_a_restart_clears_the_state(client: Any) -> None:
    with client.standard_session() as fresh:
        fresh.run("old = 1")
        fresh.restart()
        assert fresh.run("print('old' in globals())").stdout == "False\n"


def test_events_are_numbered_and_end_with_the_record(session: Any) -> None:
    events = list(session.stream("for i in range(5): print(i, flush=True)"))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].execution.stdout == "0\n1\n2\n3\n4\n"
