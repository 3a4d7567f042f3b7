"""Work of tokens that have ended at the Hub or in the pool, with servers that are away or fail at that moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.errors import StoreUnavailable
from jupyter_exec_ext.fleet import credential_watch as watch_module
from jupyter_exec_ext.fleet.callers import Callers, PoolCaller
from jupyter_exec_ext.fleet.credential_watch import CredentialWatch
from jupyter_exec_ext.fleet.issued_tokens import IssuedTokens
from jupyter_exec_ext.fleet.pool_server import Server
from jupyter_exec_ext.fleet.server_tokens import ServerTokens
from jupyter_exec_ext.fleet.token_requests import TokenRequests
from jupyter_exec_ext.models import TokenRequest
from jupyter_exec_ext.store.store import ExecStore
from tests.support.token_servers import ADA_MODEL, TokenHub, TokenServers
from tests.support.waiting import until

LOG = logging.getLogger("test")


class TokensOfPool:
    """The parts of a pool that have to do with tokens, and its watch, which is fast."""

    def __init__(self, hub: TokenHub, servers: TokenServers, store: ExecStore) -> None:
        unused: Any = None
        self.servers = [Server("w1"), Server("w2")]
        self.issued = IssuedTokens(store)
        self.callers = Callers(hub.ask, self.issued, {"custom:exec:run": "default"}, stale_seconds=300)
        self.tokens = ServerTokens(servers, LOG)  # type: ignore[arg-type]
        self.requests = TokenRequests(self.issued, unused, self.tokens, self, LOG)  # type: ignore[arg-type]
        self.watch = CredentialWatch(self.callers, self.tokens, self.end_work, LOG)

    def answering(self) -> list[Server]:
        return self.servers

    async def end_work(self, principal: str, credential: str) -> None:
        await self.issued.revoke_made_with(credential)
        await self.requests.end_work_of(principal)

    async def use(self, text: str) -> PoolCaller:
        """Have a token for a caller on both servers."""
        caller = await self.callers.authenticate(f"Bearer {text}", "127.0.0.1")
        for server in self.servers:
            await self.tokens.secret(server, caller)
        return caller


@pytest.fixture
def hub() -> TokenHub:
    hub = TokenHub()
    hub.models["bob"] = {**ADA_MODEL, "name": "bob"}
    return hub


@pytest.fixture
def servers() -> TokenServers:
    return TokenServers()


@pytest.fixture
async def pool(
    hub: TokenHub, servers: TokenServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TokensOfPool]:
    monkeypatch.setattr(watch_module, "FRESH_SECONDS", 0.01)
    store = ExecStore(path=str(tmp_path / "pool"))
    pool = TokensOfPool(hub, servers, store)
    running = asyncio.create_task(pool.watch.run())
    yield pool
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    store.close()


def names(servers: TokenServers, *callers: PoolCaller) -> list[bool]:
    """Return whether callers have tokens on the two servers."""
    found = [servers.names("w1"), servers.names("w2")]
    return [f"pool w{n} {each.principal} default" in found[n - 1] for each in callers for n in (1, 2)]


async def test_session_at_rest_of_a_revoked_hub_token_ends(
    pool: TokensOfPool, hub: TokenHub, servers: TokenServers
) -> None:
    ada, bob = await pool.use("ada"), await pool.use("bob")
    del hub.models["ada"]
    await until(lambda: names(servers, ada, bob) == [False, False, True, True])


async def test_session_at_rest_of_a_hub_token_that_has_lost_its_scope_ends(
    pool: TokensOfPool, hub: TokenHub, servers: TokenServers
) -> None:
    ada, bob = await pool.use("ada"), await pool.use("bob")
    hub.models["ada"] = {**ADA_MODEL, "scopes": []}
    await until(lambda: names(servers, ada, bob) == [False, False, True, True])


async def test_agent_of_a_revoked_hub_token_ends_with_it(
    pool: TokensOfPool, hub: TokenHub, servers: TokenServers
) -> None:
    ada = await pool.callers.authenticate("Bearer ada", "127.0.0.1")
    agent = await pool.use((await pool.issued.create(ada, TokenRequest("agent", scopes=["sessions:read"]))).text)
    del hub.models["ada"]
    await until(lambda: names(servers, ada, agent) == [False] * 4)
    assert pool.issued.is_ended(agent.credential)


async def test_work_on_a_server_that_is_away_ends_when_it_answers(
    pool: TokensOfPool, hub: TokenHub, servers: TokenServers
) -> None:
    ada = await pool.use("ada")
    servers.away.add("w1")
    del hub.models["ada"]
    await until(lambda: names(servers, ada) == [True, False])
    servers.away.clear()
    await until(lambda: names(servers, ada) == [False, False])


async def test_server_that_fails_does_not_keep_the_others_from_ending_work(
    pool: TokensOfPool, hub: TokenHub, servers: TokenServers
) -> None:
    ada = await pool.use("ada")
    servers.errors["w1"] = StoreUnavailable("its database is locked")
    del hub.models["ada"]
    await until(lambda: names(servers, ada) == [True, False])
    del servers.errors["w1"]
    await until(lambda: names(servers, ada) == [False, False])


async def test_token_that_an_earlier_pool_has_issued_and_that_was_revoked_ends(
    pool: TokensOfPool, servers: TokenServers
) -> None:
    ada = await pool.callers.authenticate("Bearer ada", "127.0.0.1")
    issued = await pool.issued.create(ada, TokenRequest("agent", scopes=["sessions:read"]))
    agent = PoolCaller(f"{ada.principal}/{issued.token.id}", "default", ada.scopes, issued.token.id, creator=ada)
    earlier = ServerTokens(servers, LOG)  # type: ignore[arg-type]
    for server in pool.servers:
        await earlier.secret(server, agent)
    await pool.issued.revoke(ada, issued.token.id)
    for server in pool.servers:
        await pool.tokens.renew_due(server)
    await until(lambda: names(servers, ada, agent) == [True, True, False, False])


async def test_tokens_that_cannot_be_checked_do_not_stop_the_watch(
    pool: TokensOfPool, hub: TokenHub, servers: TokenServers, caplog: pytest.LogCaptureFixture
) -> None:
    ada, bob = await pool.use("ada"), await pool.use("bob")
    hub.failures["bob"] = ValueError("a proxy's page in place of the Hub's JSON")
    await until(lambda: "a token could not be checked" in caplog.text)
    del hub.models["ada"]
    await until(lambda: names(servers, ada, bob) == [False, False, True, True])


async def test_open_request_is_use_of_a_token(pool: TokensOfPool) -> None:
    ada = await pool.use("ada")
    held = [*pool.tokens._held["w1"].values()]
    for each in held:
        each.used_at = 0.0
    with pool.watch.open_request(ada):
        await until(lambda: all(each.used_at for each in held))


async def test_request_of_a_revoked_token_is_cut(pool: TokensOfPool, hub: TokenHub) -> None:
    ada = await pool.callers.authenticate("Bearer ada", "127.0.0.1")

    async def stream() -> None:
        with pool.watch.open_request(ada):
            await asyncio.Event().wait()

    streaming = asyncio.create_task(stream())
    await asyncio.sleep(0)  # it begins
    del hub.models["ada"]
    await until(streaming.cancelled)


async def test_hub_is_asked_about_fifty_tokens_at_rest_a_round_in_turn(pool: TokensOfPool, hub: TokenHub) -> None:
    texts = [f"user-{n}" for n in range(120)]
    for text in texts:
        hub.models[text] = {**ADA_MODEL, "name": text}
        await pool.use(text)
    hub.asked_texts.clear()
    await until(lambda: len(hub.asked_texts) >= 240)
    rounds = [hub.asked_texts[n * 50 : (n + 1) * 50] for n in range(4)]
    assert all(len(set(each)) == 50 for each in rounds)
    assert set(hub.asked_texts) == set(texts)
