"""Ends of executions that the store cannot write, in simulated time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_exec_ext.engine.executions.live_execution import ExecutionHandle
from jupyter_exec_ext.engine.sessions.session_runner import SessionRunner
from jupyter_exec_ext.models import ExecutionRequest, ExecutionState
from tests.engine.test_states import ME, EngineMachine


@pytest.fixture
def machine() -> Iterator[EngineMachine]:
    machine = EngineMachine()
    machine.begin(seed=1, abruptly=True)
    machine.judge = lambda: None  # type: ignore[method-assign]  # of requests that it has made itself
    yield machine
    machine.problems.clear()  # the errors that the server has logged
    machine.teardown()


@pytest.fixture
def broken(machine: EngineMachine, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A store that writes no end until the patch is undone."""

    async def fail(*args: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(machine.engine._store.executions, "finish", fail)
        yield patch


def submit(machine: EngineMachine, code: str) -> ExecutionHandle:
    handle: ExecutionHandle = machine.run(machine.engine.execute(ME, machine.sessions[0], ExecutionRequest(code)))
    return handle


def test_end_that_cannot_be_written_reaches_its_waiters(machine: EngineMachine, broken: pytest.MonkeyPatch) -> None:
    assert machine.run(submit(machine, "ok 1").wait()).state is ExecutionState.OK
    machine.time_passes(0)
    assert machine.engine.activity() == {}
    broken.undo()
    assert machine.run(submit(machine, "ok 2").wait()).state is ExecutionState.OK


def test_end_of_queued_execution_that_cannot_be_written_reaches_its_waiters(
    machine: EngineMachine, broken: pytest.MonkeyPatch
) -> None:
    running, queued = submit(machine, "wait"), submit(machine, "ok")
    with pytest.raises(RuntimeError):
        machine.run(machine.engine.cancel(ME, queued.record.id))
    assert machine.run(queued.wait()).state is ExecutionState.CANCELLED
    assert list(machine.engine.activity()) == [running.record.id]
    machine.run(machine.engine.cancel(ME, running.record.id))


def test_session_goes_on_after_a_failed_execution_whose_end_cannot_be_written(
    machine: EngineMachine, broken: pytest.MonkeyPatch
) -> None:
    async def fail(*args: Any) -> None:
        raise RuntimeError("a defect")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SessionRunner, "_run_on_kernel", fail)
        assert machine.run(submit(machine, "ok 1").wait()).state is ExecutionState.KERNEL_DIED
        machine.time_passes(0)
    broken.undo()
    assert machine.run(submit(machine, "ok 2").wait()).state is ExecutionState.OK


def test_kernel_is_shut_down_if_the_end_of_a_queued_execution_cannot_be_written(
    machine: EngineMachine, broken: pytest.MonkeyPatch
) -> None:
    handles = [submit(machine, "wait"), submit(machine, "ok")]
    machine.run(machine.engine.delete_session(ME, machine.sessions[0]))
    assert [handle.record.state for handle in handles] == [ExecutionState.CANCELLED] * 2
    assert not machine.host.living(machine.sessions[0])
