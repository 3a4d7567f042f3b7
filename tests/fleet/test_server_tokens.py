"""Tokens of a pool's callers on its servers, over hours, and when single ones have ended or cannot be renewed."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_exec_ext.errors import StoreUnavailable
from jupyter_exec_ext.fleet import pool as pool_module
from jupyter_exec_ext.fleet import server_tokens as server_tokens_module
from jupyter_exec_ext.fleet.callers import PoolCaller
from jupyter_exec_ext.fleet.pool_server import Server
from jupyter_exec_ext.fleet.server_tokens import ServerTokens
from tests.support.token_servers import TokenServers
from tests.support.waiting import until

HOUR_SECONDS = 3600.0
ADA = PoolCaller("user:ada/aaa", "default", frozenset({"sessions:read"}), "digest of ada's")
AGENT = PoolCaller("user:ada/aaa/tok1", "default", frozenset({"sessions:read"}), "tok1", creator=ADA)
BOB = PoolCaller("user:bob/bbb", "default", frozenset({"sessions:read"}), "digest of bob's")
ADAS, AGENTS, BOBS = (f"pool w1 {caller.principal} default" for caller in (ADA, AGENT, BOB))


class Clock:
    """Replaces the module's clock."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(server_tokens_module, "time", clock)
    return clock


@pytest.fixture
def servers(clock: Clock) -> TokenServers:
    return TokenServers(clock.time)


@pytest.fixture
def tokens(servers: TokenServers) -> ServerTokens:
    return ServerTokens(servers, logging.getLogger("test"))  # type: ignore[arg-type]


@pytest.fixture
def server() -> Server:
    return Server("w1")


async def renew_for(seconds: float, tokens: ServerTokens, server: Server, clock: Clock) -> None:
    """Renew every 5 minutes, as the pool does."""
    for _ in range(int(seconds / 300)):
        clock.now += 300
        await tokens.renew_due(server)


async def test_renewal_passes_over_a_token_that_was_revoked_on_the_server(
    tokens: ServerTokens, servers: TokenServers, server: Server, clock: Clock
) -> None:
    for caller in (AGENT, BOB):
        await tokens.secret(server, caller)
    agents = next(token for token in servers.tokens["w1"].values() if token.name == AGENTS)
    agents.is_revoked = True
    await renew_for(2 * HOUR_SECONDS, tokens, server, clock)
    assert servers.names("w1") == {ADAS, BOBS}
    assert not await tokens.has_token(server, AGENT)


async def test_renewal_passes_over_a_token_that_the_server_cannot_renew_now(
    tokens: ServerTokens, servers: TokenServers, server: Server, clock: Clock
) -> None:
    for caller in (AGENT, BOB):
        await tokens.secret(server, caller)
    servers.errors[ADAS] = StoreUnavailable("its database is locked")
    await renew_for(0.75 * HOUR_SECONDS, tokens, server, clock)
    del servers.errors[ADAS]
    await renew_for(2 * HOUR_SECONDS, tokens, server, clock)
    assert servers.names("w1") == {ADAS, AGENTS, BOBS}


async def test_token_of_an_earlier_pool_waits_for_the_one_above_it(
    tokens: ServerTokens, servers: TokenServers, server: Server, clock: Clock
) -> None:
    await tokens.secret(server, AGENT)
    restarted = ServerTokens(servers, logging.getLogger("test"))  # type: ignore[arg-type]
    servers.errors[ADAS] = StoreUnavailable("its database is locked")
    await restarted.renew_due(server)
    clock.now += 60
    del servers.errors[ADAS]
    await restarted.renew_due(server)
    assert servers.names("w1") == {ADAS, AGENTS}


async def test_revoked_principal_and_those_below_it_have_no_token_any_more(
    tokens: ServerTokens, servers: TokenServers, server: Server
) -> None:
    for caller in (AGENT, BOB):
        await tokens.secret(server, caller)
    await tokens.revoke(server, ADA.principal)
    assert servers.names("w1") == {BOBS}
    assert [await tokens.has_token(server, caller) for caller in (ADA, AGENT, BOB)] == [False, False, True]


async def test_token_below_is_renewed_although_the_server_is_slow(
    tokens: ServerTokens, servers: TokenServers, server: Server, clock: Clock
) -> None:
    def pass_time() -> None:
        clock.now += 3

    servers.on_answer = pass_time
    await tokens.secret(server, AGENT)
    await renew_for(4 * HOUR_SECONDS, tokens, server, clock)
    assert servers.names("w1") == {ADAS, AGENTS}
    assert await tokens.secret(server, AGENT) == "secret of t1" + "+" * 8


async def test_agent_that_is_busy_once_an_hour_keeps_its_token_for_days(
    tokens: ServerTokens, servers: TokenServers, server: Server, clock: Clock
) -> None:
    await tokens.secret(server, AGENT)
    (agents,) = (token for token in servers.tokens["w1"].values() if token.name == AGENTS)
    for _ in range(50):
        await renew_for(HOUR_SECONDS, tokens, server, clock)
        await tokens.secret(server, AGENT)
    assert servers.names("w1") == {ADAS, AGENTS}
    assert agents.expires_at > clock.now


async def test_token_that_was_not_used_for_a_day_ends(
    tokens: ServerTokens, servers: TokenServers, server: Server, clock: Clock
) -> None:
    for caller in (AGENT, BOB):
        await tokens.secret(server, caller)
    await renew_for(20 * HOUR_SECONDS, tokens, server, clock)
    tokens.note_use({ADA.credential, AGENT.credential})  # a stream is open all the time
    await renew_for(20 * HOUR_SECONDS, tokens, server, clock)
    assert servers.names("w1") == {ADAS, AGENTS}
    assert tokens.holders().keys() == {(ADA.principal, ADA.policy), (AGENT.principal, AGENT.policy)}


async def test_tokens_that_have_ended_on_the_server_are_made_anew_for_the_next_request(
    tokens: ServerTokens, servers: TokenServers, server: Server
) -> None:
    await tokens.secret(server, AGENT)
    servers.tokens["w1"].clear()  # a database that was replaced
    answer = await tokens.call_as(AGENT, server, "GET", "sessions")
    assert answer == {"principal": "t2/t3"}
    assert await tokens.call_as(ADA, server, "GET", "sessions") == {"principal": "t2"}


async def test_server_with_a_strange_answer_does_not_stop_the_renewal_of_all_others(
    tokens: ServerTokens, servers: TokenServers, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_RENEW_SECONDS", 0.001)
    keeper: Any = SimpleNamespace(servers={name: Server(name) for name in ("w1", "w2")})
    for server in keeper.servers.values():
        await tokens.secret(server, BOB)
    (bobs,) = servers.tokens["w2"].values()
    servers.errors["w1"] = KeyError("token")
    renewing = asyncio.create_task(pool_module._renew(keeper, tokens, logging.getLogger("test")))
    try:
        for _ in range(3):
            clock.now += HOUR_SECONDS / 2
            await until(lambda: bobs.expires_at == clock.now + HOUR_SECONDS)
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
