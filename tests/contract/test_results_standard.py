"""The same results over the standard kernels API and WebSocket, as on a server without our extension."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_exec_ext.models import ExecutionState, SessionStateLostEvent
from tests.contract.test_results import *  # noqa: F403
from tests.support.full import only_in_full
from tests.support.hosts import MAX_OUTPUT_BYTES, Host


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


@only_in_full
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


def test_kernel_that_ends_between_runs_is_told_by_the_next(client: Any, host: Host) -> None:
    if host.name == "aca":
        pytest.skip("its kernels are sessions of a service, which do not end by themselves")
    with client.standard_session() as fresh:
        os.kill(int(fresh.run("import os; old = 1; print(os.getpid())").stdout), signal.SIGKILL)
        # The server looks for dead kernels every few seconds. Code that is sent before runs when it has seen to that.
        events = list(fresh.stream("print('old' in globals())", timeout_seconds=30))
        result = events[-1].execution
        if result.state is ExecutionState.KERNEL_DIED:  # it was sent to the kernel that was just ending
            assert result.session_state_preserved is False
            return
        # The server may begin to read the new kernel's output too late, which the result says.
        is_cut = result.truncated is not None and result.truncated.upstream
        assert result.stdout in ({"", "False\n"} if is_cut else {"False\n"})
        assert result.kernel_starts == 2
        assert result.session_state_lost is not None
        assert [event.reason for event in events if isinstance(event, SessionStateLostEvent)] == [
            result.session_state_lost.reason
        ]
        assert fresh.run("1").session_state_lost is None


def test_late_output_is_in_the_next_run(session: Any, host: Host) -> None:
    if host.name == "aca":
        pytest.skip("the service answers once, with what there is by then")
    first = session.run(
        "import asyncio; go_on = asyncio.Event()\n"
        "async def write():\n    await go_on.wait()\n    print('late', flush=True)\n"
        "task = asyncio.create_task(write())"
    )
    events = list(session.stream("print('own', flush=True); go_on.set(); await task"))
    assert [output["text"] for output in events[-1].execution.outputs] == ["own\n", "late\n"]
    assert [event.late_from for event in events if event.late] == [first.id]
    assert events[-1].execution.late_from == (first.id,)


def test_a_restart_clears_the_state(client: Any) -> None:
    with client.standard_session() as fresh:
        fresh.run("old = 1")
        fresh.restart()
        assert fresh.run("print('old' in globals())").stdout == "False\n"


def test_events_are_numbered_and_end_with_the_record(session: Any) -> None:
    events = list(session.stream("for i in range(5): print(i, flush=True)"))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].execution.stdout == "0\n1\n2\n3\n4\n"
