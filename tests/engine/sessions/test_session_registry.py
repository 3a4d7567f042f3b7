"""Sessions by names of their callers': one for each name and principal, made when it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import KernelSpecNotFound, SessionEnded
from jupyter_exec_ext.models import ExecutionRequest, Session, SessionRequest, SessionState, TokenRequest

ME = owner("me")
NAME = ("pool", "abcd")
Make = Callable[..., ExecEngine]


class Named:
    """An engine, and how often a session was made in it."""

    def __init__(self, engine: ExecEngine, **request: Any) -> None:
        self.engine = engine
        self.created = 0
        self.request = SessionRequest(**request)
        self.setup_code: str | None = None

    async def use(self, caller: Caller = ME, name: tuple[str, ...] = NAME) -> str:
        async def create() -> Session:
            self.created += 1
            return await self.engine.create_session(caller, self.request, setup_code=self.setup_code)

        async def verb(session_id: str) -> str:
            return session_id

        return await self.engine.named.use(caller, name, create, verb)

    async def run(self, code: str) -> str:
        execution = await self.engine.execute(ME, await self.use(), ExecutionRequest(code))
        return (await execution.wait()).stdout


async def bearer(engine: ExecEngine) -> Caller:
    request = TokenRequest("agent", policy="trusted", scopes=sorted(ALL_SCOPES))
    issued = await engine.tokens.create(owner("Ada", {"username": "ada"}), request)
    return engine.tokens.authenticate(issued.text, "127.0.0.1")


async def test_those_who_ask_at_once_get_one_session(engine: ExecEngine) -> None:
    named = Named(engine)
    found = await asyncio.gather(*(named.use() for _ in range(20)))
    assert (len(set(found)), named.created) == (1, 1)
    assert await named.use() == found[0]
    assert [session.id for session in await engine.list_sessions(ME)] == [found[0]]


async def test_names_and_principals_are_kept_apart(make_engine: Make) -> None:
    engine = make_engine(allow_unprotected_tokens=True)
    named, agent, other = Named(engine), await bearer(engine), await bearer(engine)
    mine = await asyncio.gather(named.use(), named.use(agent), named.use(other), named.use(name=("poolabcd", "")))
    assert len(set(mine)) == 4
    assert {name: session.id for name, session in engine.named.list(agent).items()} == {NAME: mine[1]}
    assert await engine.named.find(agent, ("pool", "abce")) is None


async def test_a_failed_start_is_told_to_all_who_wait_and_forgotten(engine: ExecEngine) -> None:
    named = Named(engine, kernel_name="no-such-kernel")
    failures = await asyncio.gather(*(named.use() for _ in range(3)), return_exceptions=True)
    assert [type(failure) for failure in failures] == [KernelSpecNotFound] * 3
    assert await engine.named.find(ME, NAME) is None
    assert await Named(engine).use()


async def test_whoever_looks_while_it_starts_waits_for_it(engine: ExecEngine) -> None:
    using = asyncio.create_task(Named(engine).use())
    while not engine.named._starting:  # noqa: ASYNC110  # nobody is told
        await asyncio.sleep(0)
    found = await engine.named.find(ME, NAME)
    assert found is not None and found.id == await using
    assert found.state is SessionState.IDLE


async def test_a_session_that_has_ended_or_is_about_to_is_replaced(engine: ExecEngine) -> None:
    named = Named(engine)
    first = await named.use()
    await engine.delete_session(ME, first)
    assert await engine.named.find(ME, NAME) is None
    assert engine.named.list(ME) == {}
    second = await named.use()
    deleting = asyncio.create_task(engine.delete_session(ME, second))
    while not engine._registry.sessions[second].is_closing:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert await engine.named.find(ME, NAME) is None
    third = await named.use()
    await deleting
    assert len({first, second, third}) == 3
    assert set(engine.named._ids.values()) == {third}  # nothing is left of the others


async def test_one_that_ends_under_a_call_is_replaced_once(engine: ExecEngine) -> None:
    named, tried = Named(engine), []

    async def create() -> Session:
        return await engine.create_session(ME, SessionRequest())

    async def ends(session_id: str) -> str:
        tried.append(session_id)
        await engine.delete_session(ME, session_id)
        raise SessionEnded("it has ended")

    with pytest.raises(SessionEnded):
        await engine.named.use(ME, NAME, create, ends)
    assert len(set(tried)) == 2
    assert await named.use() not in tried


async def test_being_used_begins_the_idle_time_anew(engine: ExecEngine) -> None:
    named = Named(engine, idle_timeout_seconds=0.6)
    session_id = await named.use()
    loop = asyncio.get_running_loop()
    end = loop.time() + 1.5
    while loop.time() < end:
        await asyncio.sleep(0.1)
        assert await engine.named.find(ME, NAME) is not None
    ended = asyncio.Event()
    engine._registry.sessions[session_id].on_end(ended.set)
    await asyncio.wait_for(ended.wait(), 10)
    assert "idle" in str((await engine.get_session(ME, session_id)).ended_reason)


async def test_every_kernel_of_a_session_runs_its_setup_code_first(engine: ExecEngine) -> None:
    named = Named(engine)
    named.setup_code = "import os; os.environ['SET_UP'] = 'yes'; print('not to be seen'); _hidden = 1 / 0"
    look = "import os; print(os.environ.get('SET_UP'), len([n for n in globals() if n == 'In' and len(In) > 2]))"
    session_id = await named.use()
    assert await named.run(look) == "yes 0\n"
    await engine.restart_session(ME, session_id)
    assert await named.run(look) == "yes 0\n"
    await named.run("import os; os._exit(1)")
    assert await named.run(look) == "yes 0\n"
