"""Runs in sessions of their own: that these end, that nobody is refused for one that ends, and what a key finds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.sessions.execution_service import idempotency_of
from jupyter_exec_ext.errors import PayloadTooLarge, PolicyLimitReached, TooManySessions, Unavailable
from jupyter_exec_ext.models import ExecutionRequest, ExecutionState, SessionRequest, SessionState, TokenRequest

ME = owner("me")
Make = Callable[..., ExecEngine]
ONE = ExecutionRequest("print(1)")


async def run(engine: ExecEngine, request: ExecutionRequest = ONE, key: str | None = None) -> Any:
    return await (await engine.fresh.run(ME, SessionRequest(), request, key)).wait()


async def sessions(engine: ExecEngine) -> list[SessionState]:
    return [session.state for session in await engine.list_sessions(ME, ended=True)]


async def all_ended(engine: ExecEngine) -> None:
    """Wait until no session is left; each ends in the background."""
    await engine.background.drain()
    assert set(await sessions(engine)) <= {SessionState.ENDED}


async def test_who_may_have_one_session_can_run_one_after_the_other(make_engine: Make) -> None:
    engine = make_engine(max_sessions=1)
    for _ in range(3):
        assert (await run(engine)).stdout == "1\n"
    await all_ended(engine)
    assert len(await sessions(engine)) == 3


async def test_a_session_that_is_in_use_is_not_waited_for(make_engine: Make) -> None:
    engine = make_engine(max_sessions=1)
    session = await engine.create_session(ME, SessionRequest())
    with pytest.raises(TooManySessions):
        await run(engine)
    await engine.delete_session(ME, session.id)
    first = await engine.fresh.run(ME, SessionRequest(), ExecutionRequest("import time; time.sleep(600)"))
    with pytest.raises(TooManySessions):
        await run(engine)
    await engine.cancel(ME, first.record.id)
    assert (await run(engine)).state is ExecutionState.OK


async def test_what_is_refused_leaves_no_session(make_engine: Make) -> None:
    engine = make_engine(max_code_bytes=10)
    with pytest.raises(PayloadTooLarge):
        await run(engine, ExecutionRequest("#" * 11))
    await all_ended(engine)


async def test_a_repeated_request_needs_no_room(make_engine: Make) -> None:
    engine = make_engine(max_sessions=1)
    first = await run(engine, key="k")
    await all_ended(engine)
    await engine.create_session(ME, SessionRequest())
    assert await run(engine, key="k") == first


async def test_a_repeated_request_waits_for_the_session_of_the_first(make_engine: Make) -> None:
    engine = make_engine(max_sessions=1)
    first, second = await asyncio.gather(run(engine, key="k"), run(engine, key="k"))
    assert first == second
    await all_ended(engine)
    assert len(await sessions(engine)) == 1


async def test_nothing_is_begun_for_who_is_gone(make_engine: Make) -> None:
    engine = make_engine()
    here = iter((True, False))
    with pytest.raises(Unavailable):
        await engine.fresh.run(ME, SessionRequest(), ONE, "k", is_wanted=lambda: next(here))
    await all_ended(engine)
    (made,) = await engine.list_sessions(ME, ended=True)
    assert await engine.history.list(ME, made.id, 10) == []
    assert (await run(engine, key="k")).stdout == "1\n"


async def test_nobody_waits_for_what_leaves_no_room_for_them(make_engine: Make) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    request = TokenRequest("agent", policy="trusted", scopes=sorted(ALL_SCOPES), limits={"max_sessions": 1})
    issued = await engine.tokens.create(owner("Ada", {"username": "ada"}), request)
    agent = engine.tokens.authenticate(issued.text, "127.0.0.1")
    await engine.create_session(agent, SessionRequest())
    await run(engine)
    assert engine.fresh._ends  # somebody else's
    with pytest.raises(PolicyLimitReached):
        await engine.fresh.run(agent, SessionRequest(), ONE)
    assert engine.fresh._ends


async def test_it_is_found_again_by_a_later_server(make_engine: Make, tmp_path: Path) -> None:
    engine = make_engine()
    first = await run(engine, key="k")
    await engine.shutdown()
    later = make_engine()
    assert await run(later, key="k") == first
    await all_ended(later)


async def test_the_engine_ends_while_sessions_are_ending(make_engine: Make) -> None:
    engine = make_engine()
    await run(engine)
    running = await engine.fresh.run(ME, SessionRequest(), ExecutionRequest("import time; time.sleep(600)"))
    await asyncio.wait_for(engine.shutdown(), 20)
    assert (await running.wait()).state is ExecutionState.SERVER_RESTARTED


def test_a_key_stands_for_the_session_as_well() -> None:
    plain, fresh, other = (
        idempotency_of("k", ONE, session) for session in (None, SessionRequest(), SessionRequest(env={"A": "1"}))
    )
    assert plain is not None
    assert fresh is not None
    assert other is not None
    assert (plain.of_fresh_session, fresh.of_fresh_session) == (False, True)
    assert len({plain.request_hash, fresh.request_hash, other.request_hash}) == 3
    assert idempotency_of(None, ONE) is None
