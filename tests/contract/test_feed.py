"""What happens on a server, as both clients are told it, on every host."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from jupyter_exec_ext.errors import Unauthenticated
from jupyter_exec_ext.models import Change, CheckpointEvent, ExecutionState, SessionState


def next_of(changes: Any, kind: str, thing_id: str, state: object) -> tuple[Change, Any]:
    """Return the next change that has a thing in a state, and the thing."""
    for change in changes:
        record = getattr(change, kind)
        if record is not None and record.id == thing_id and record.state is state:
            return change, record
    raise AssertionError("a feed has no end")


def test_what_happens_is_told_in_the_records_of_the_lists(client: Any) -> None:
    with closing(client.events()) as changes:
        assert next(changes).is_reset
        session = client.session(name="told")
        assert next_of(changes, "session", session.id, SessionState.IDLE)[1].name == "told"
        execution = session.run("print(1)")
        for state in (ExecutionState.QUEUED, ExecutionState.RUNNING, ExecutionState.OK):
            told = next_of(changes, "execution", execution.id, state)[1]
        assert told == session.list_executions()[-1]
        idle = next_of(changes, "session", session.id, SessionState.IDLE)[1]
        assert idle == client.get_session(session.id).record
        session.close()
        assert next_of(changes, "session", session.id, SessionState.ENDED)[1].ended_reason == "deleted"


def checkpoint_events(changes: Any, count: int) -> list[tuple[str, CheckpointEvent]]:
    """Return the next events of checkpoints, with their kinds."""
    kinds = ("checkpointed", "restored", "branched", "checkpoint_deleted")
    found: list[tuple[str, CheckpointEvent]] = []
    for change in changes:
        found += [(kind, getattr(change, kind)) for kind in kinds if getattr(change, kind) is not None]
        assert not (change.is_reset and found)
        if len(found) >= count:
            return found
    raise AssertionError("a feed has no end")


def test_checkpoints_restores_and_branches_are_events(client: Any, fresh: Any) -> None:
    if fresh.record.isolation != "none":
        pytest.skip("kernels of this host have no branches")
    with closing(client.events()) as changes:
        next(changes)
        checkpoint = fresh.checkpoint("data loaded ü")
        fresh.restore(checkpoint)
        branches = fresh.branch(2, checkpoint)
        fresh.delete_checkpoint(checkpoint)
        told = checkpoint_events(changes, 5)
    for branch in branches:
        branch.close()
    of_session = CheckpointEvent(fresh.id, checkpoint.id, "data loaded ü")
    of_branches = [replace(of_session, session_id=branch.id, branch_of=fresh.id) for branch in branches]
    assert told == [
        ("checkpointed", of_session),
        ("restored", of_session),
        *[("branched", event) for event in of_branches],
        ("checkpoint_deleted", of_session),
    ]


def test_a_reader_goes_on_after_what_it_has(client: Any) -> None:
    with closing(client.events()) as changes:
        first = next(changes)
        session = client.session()
        seen, _ = next_of(changes, "session", session.id, SessionState.IDLE)
    session.close()
    for known in (seen, first):
        with closing(client.events(after=known.id)) as changes:
            begin = next(changes)
            assert not begin.is_reset and begin.id != known.id
            next_of(changes, "session", session.id, SessionState.ENDED)
    with closing(client.events(after="elsewhere-1")) as changes:
        assert next(changes).is_reset


def test_who_may_not_come_in_is_told_so(client: Any) -> None:
    from jupyter_exec_ext import ExecClient

    with ExecClient(client.connection_info.url, "wrong") as stranger, pytest.raises(Unauthenticated):
        next(stranger.events())
