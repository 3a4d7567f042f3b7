"""Requests for approval of unusual code, and requests that fail, in simulated time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.errors import StorageFull
from jupyter_exec_ext.models import ApprovalAnswer, AuditKind, Execution, ExecutionRequest, ExecutionState
from jupyter_exec_ext.store.audit_table import AuditReader
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


def test_release_and_withdrawal_are_in_the_audit_trail_and_a_full_store_releases_nothing(
    machine: EngineMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (submit(machine, f"ok {n} asks").record for n in range(3))
    executions = machine.engine.approvals._executions
    amend = executions.amend

    async def refuse(execution: Execution) -> None:
        if execution.id == second.id:
            raise StorageFull("no room")
        await amend(execution)

    monkeypatch.setattr(executions, "amend", refuse)
    answer = ApprovalAnswer(approve=True, for_session=True)
    machine.run(machine.engine.approvals.decide(ME, first.id, answer))
    assert [waiting.id for waiting in machine.engine.approvals.list(ME)] == [second.id]
    session = machine.run(machine.engine.approvals.withdraw(ME, first.session_id))
    assert session.approved_kinds == ()
    machine.run(machine.engine.shutdown())
    with AuditReader(Path(machine.directory)).snapshot() as (_, lines):
        told = [record for line in lines if (record := line.record()).kind is AuditKind.APPROVAL]
    decided = {record.subject: record for record in told if record.action in ("approved", "withdrawn")}
    assert list(decided) == [first.id, third.id, first.session_id]
    assert [record.data.get("covered_by") for record in decided.values()] == [None, first.id, None]
    assert decided[first.session_id].data["approved_kinds"] == ["pattern"]


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
