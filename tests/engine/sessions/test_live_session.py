"""Live sessions on scripted kernels, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from jupyter_exec_ext.errors import SessionEnded
from jupyter_exec_ext.models import Execution, ExecutionRequest, ExecutionState, SessionRequest, SessionState
from tests.engine.test_states import ME, EngineMachine


@pytest.fixture
def machine() -> Iterator[EngineMachine]:
    machine = EngineMachine()
    machine.abruptly = True  # no checks of requests that the tests make past the machine
    machine.judge = lambda: None  # type: ignore[method-assign]
    yield machine
    machine.teardown()


def test_session_that_is_busy_when_its_start_ends_does_not_end_as_idle(machine: EngineMachine) -> None:
    engine = machine.engine
    machine.host.start_delay = lambda: 0.5  # type: ignore[method-assign]

    async def run_longer_than_idle_timeout() -> Execution:
        creating = asyncio.ensure_future(engine.create_session(ME, SessionRequest(idle_timeout_seconds=1.0)))
        await asyncio.sleep(0.2)
        (session,) = await engine.list_sessions(ME)
        assert session.state is SessionState.STARTING
        execution = await engine.execute(ME, session.id, ExecutionRequest("wait", timeout_seconds=3.0))
        await creating
        record = await execution.wait()
        assert (await engine.get_session(ME, session.id)).state is not SessionState.ENDED
        await asyncio.sleep(1.5)
        assert (await engine.get_session(ME, session.id)).ended_reason == "idle for 1 s"
        return record

    record = machine.run(run_longer_than_idle_timeout())
    assert record.state is ExecutionState.TIMEOUT


def test_session_that_has_ended_is_not_restarted_and_is_forgotten(machine: EngineMachine) -> None:
    engine = machine.engine

    async def restart_ended() -> None:
        session_id = (await engine.create_session(ME, SessionRequest())).id
        live = engine._registry.sessions[session_id]
        await live.close("ended")  # as while a restore copies files
        with pytest.raises(SessionEnded):
            await live.restart()
        engine._registry.remove_ended()
        assert session_id not in engine._registry.sessions

    machine.run(restart_ended())
