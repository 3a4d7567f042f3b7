"""Requests for approval of unusual code, and requests that fail, in simulated time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_exec_ext.models import ApprovalAnswer, ExecutionRequest, ExecutionState
from tests.engine.test_states import ME, EngineMachine


@pytest.fixture
def machine() -> Iterator[EngineMachine]:
    machine = EngineMachine()
    machine.begin(seed=1, abruptly=True, by_token=True)
    machine.judge = lambda: None  # type: ignore[method-assign]  # of requests that it has made itself
    yield machine
    machine.teardown()


def submit(machine: EngineMachine, code: str) -> Any:
    (session,) = machine.sessions
    return machine.run(machine.engine.execute(machine.tokens[-1].caller, session, ExecutionRequest(code)))


def test_code_with_a_lone_surrogate_can_wait_for_approval(machine: EngineMachine) -> None:
    submit(machine, "ok '\ud800' asks")
    (waiting,) = machine.engine.approvals.list(ME)
    record = machine.run(machine.engine.cancel(ME, waiting.id))
    assert record.state is ExecutionState.CANCELLED


def test_reason_with_a_lone_surrogate_rejects(machine: EngineMachine) -> None:
    execution = submit(machine, "ok asks")
    answer = ApprovalAnswer(approve=False, reason="\ud800")
    machine.run(machine.engine.approvals.decide(ME, execution.record.id, answer))
    assert execution.record.state is ExecutionState.REJECTED


def test_execution_whose_request_for_approval_fails_is_ended(
    machine: EngineMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (session,) = machine.sessions

    def fail(*args: object) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(machine.engine.approvals, "request", fail)
        with pytest.raises(RuntimeError, match="a defect"):
            submit(machine, "ok asks")
    assert machine.engine.activity() == {}
    (record,) = machine.run(machine.engine.history.list(ME, session, 10))
    assert record.state is ExecutionState.CANCELLED
    assert record.reason is not None and "RuntimeError" in record.reason
