"""Grants of kernels and attachments that meet: whatever comes first, no session outlives its grant."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import Conflict, ExecError, PolicyDenied, StorageFull
from jupyter_exec_ext.models import GrantRequest, KernelGrant, Session, SessionRequest, SessionState, TokenRequest
from tests.engine.sessions.test_attached_kernel import Person
from tests.engine.sessions.test_attached_kernel import person as person  # a fixture

ME = owner("me", {"username": "me"})


async def agent(engine: ExecEngine) -> Caller:
    issued = await engine.tokens.create(ME, TokenRequest("agent", scopes=sorted(ALL_SCOPES)))
    return engine.tokens.authenticate(issued.text, "127.0.0.1")


async def grant(engine: ExecEngine, caller: Caller, person: Person) -> KernelGrant:
    return await engine.grants.create(ME, GrantRequest(str(caller.token_id), person.kernel_id))


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 20, 100])
async def test_revoke_while_attaching_leaves_no_session(engine: ExecEngine, person: Person, turns: int) -> None:
    caller = await agent(engine)
    given = await grant(engine, caller, person)
    attaching = asyncio.create_task(engine.create_session(caller, SessionRequest(kernel_id=person.kernel_id)))
    for _ in range(turns):
        await asyncio.sleep(0)
    await engine.grants.revoke(ME, given.id)
    (outcome,) = await asyncio.gather(attaching, return_exceptions=True)
    await engine.background.drain()
    assert isinstance(outcome, ExecError) or (isinstance(outcome, Session) and outcome.grant_id == given.id)
    live = [each.record.state for each in engine._registry.sessions.values()]
    assert set(live) <= {SessionState.ENDED}


async def test_revoke_between_plan_and_build_refuses_the_session(engine: ExecEngine, person: Person) -> None:
    caller = await agent(engine)
    given = await grant(engine, caller, person)
    request = SessionRequest(kernel_id=person.kernel_id)
    plan = await engine._factory.plan(caller, request, ())
    await engine.grants.revoke(ME, given.id)
    with pytest.raises(PolicyDenied, match="not shared"):
        engine._factory.build(caller, request, plan, None)
    assert engine._registry.sessions == {}


async def test_two_requests_grant_a_kernel_once(engine: ExecEngine, person: Person) -> None:
    caller = await agent(engine)
    both = await asyncio.gather(*(grant(engine, caller, person) for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in both if isinstance(each, ExecError)] == [Conflict]
    assert len(await engine.grants.list(ME)) == 1


async def test_what_cannot_be_recorded_is_not_granted(
    engine: ExecEngine, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise StorageFull("the disk is full")

    caller = await agent(engine)
    monkeypatch.setattr(engine._store.grants, "add", fail)
    with pytest.raises(StorageFull):
        await grant(engine, caller, person)
    assert engine.grants.find(caller, person.kernel_id) is None


async def test_shutdown_ends_the_grants(make_engine: Any, person: Person) -> None:
    engine = make_engine()
    caller = await agent(engine)
    await grant(engine, caller, person)
    await engine.shutdown()
    assert engine.grants.find(caller, person.kernel_id) is None
