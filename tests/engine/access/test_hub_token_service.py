"""JupyterHub tokens as callers, and the tokens that are made in their names, on a real store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import OWNER, Caller
from jupyter_exec_ext.auth.policy_parsing import read_policies
from jupyter_exec_ext.engine.access.hub_token_service import HubTokenService
from jupyter_exec_ext.engine.access.token_service import MINTED_AT_ONCE, TokenService
from jupyter_exec_ext.engine.access.token_watch import TokenJournal, TokenWatch
from jupyter_exec_ext.engine.change_feed import ChangeFeed
from jupyter_exec_ext.engine.concurrency import BackgroundTasks
from jupyter_exec_ext.engine.settings import EngineSettings
from jupyter_exec_ext.errors import InvalidRequest, TokenRevoked, TokenTooBroad, TooManyTokens, Unauthenticated
from jupyter_exec_ext.models import StoredToken, TokenRequest
from jupyter_exec_ext.protocol.records_json import seconds_of
from jupyter_exec_ext.store import eviction
from jupyter_exec_ext.store.eviction import expire
from jupyter_exec_ext.store.store import ExecStore

HOUR = 3600.0
RON: dict[str, Any] = {"username": "ron", "hub": True}


class Hub:
    """The Hub tokens that are asked about, and what ends with them."""

    def __init__(self) -> None:
        self.asked_until: dict[str, float] = {}
        self.on_ends: dict[str, dict[object, Callable[[], None]]] = {}

    def watch(self, hub_token: str, on_end: Callable[[], None]) -> Callable[[], None]:
        key = object()
        self.on_ends.setdefault(hub_token, {})[key] = on_end
        return lambda: self.on_ends.get(hub_token, {}).pop(key, None) and None

    def keep_asking(self, hub_token: str, until_seconds: float) -> None:
        self.asked_until[hub_token] = until_seconds


@dataclass
class World:
    hub: HubTokenService
    tokens: TokenService
    store: ExecStore
    settings: EngineSettings
    watch: TokenWatch
    asked: Hub

    async def refuse(self, hub_token: str) -> None:
        """End a Hub token as `server.hub_tokens` does."""
        for on_end in self.asked.on_ends.pop(hub_token, {}).values():
            on_end()
        await self.hub.end(hub_token)

    async def ron(self, digest: str = "one", policy: str = "small") -> Caller:
        return await self.hub.caller(digest, f"Hub token {digest} of user ron", RON, policy)

    async def made(self, by: Caller, **request: Any) -> StoredToken:
        issued = await self.tokens.create(by, TokenRequest("made", scopes=["tokens:create"], **request))
        stored = await self.store.tokens.get(issued.token.id)
        assert stored is not None
        return stored

    async def is_active(self, token: StoredToken) -> bool:
        found = await self.store.tokens.get(token.token.id)
        return found is not None and found.token.active

    def bearer(self, stored: StoredToken) -> Caller:
        return self.tokens.admit(stored)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    log = logging.getLogger("test")
    store = ExecStore(path=str(tmp_path / "store"), reserve_bytes=4096, log=log)
    background = BackgroundTasks()
    settings = EngineSettings(max_tokens=1000, max_token_seconds=24 * HOUR)
    journal = TokenJournal(store.tokens, store.audit, ChangeFeed(), background)
    watch = TokenWatch(store.tokens, journal, log)
    policies = read_policies({"small": {"max_sessions": 1}, "large": {"max_sessions": 9}})
    tokens = TokenService(store.tokens, policies, settings, store.audit, ChangeFeed(), journal, watch)
    hub, asked = HubTokenService(store.tokens, tokens, settings, journal, watch), Hub()
    hub.ask(asked)
    yield World(hub, tokens, store, settings, watch, asked)
    watch.close()
    await background.drain()
    store.close()


async def test_first_requests_at_once_are_one_caller_under_the_policy(world: World) -> None:
    callers = await asyncio.gather(*(world.ron() for _ in range(10)))
    assert len({caller.principal for caller in callers}) == 1
    assert [bound.policy.max_sessions for bound in callers[0].bounds] == [1]
    assert not callers[0].is_owner
    assert "pool:read" not in callers[0].scopes


async def test_each_hub_token_and_each_policy_is_a_caller_of_its_own(world: World) -> None:
    callers = [await world.ron(digest, policy) for digest in ("one", "two") for policy in ("small", "large")]
    assert len({caller.principal for caller in callers}) == 4
    assert not any(one.may_see(other.principal) for one in callers for other in callers if one is not other)
    assert (await world.ron("one", "large")).principal == callers[1].principal


async def test_a_record_that_has_expired_is_followed_by_another_one(world: World) -> None:
    world.settings.max_token_seconds = 0.0
    first = await world.ron()
    world.settings.max_token_seconds = HOUR
    assert (await world.ron()).principal != first.principal


async def test_the_record_of_a_hub_token_in_use_does_not_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ron, began_at = await world.ron(), time.time()
    before = await world.store.tokens.get(str(ron.token_id))
    assert before is not None
    for hours, ends_after in ((11.0, 24.0), (13.0, 37.0), (36.0, 60.0)):
        monkeypatch.setattr(time, "time", lambda now=began_at + hours * HOUR: now)
        assert (await world.ron()).principal == ron.principal
        stored = await world.store.tokens.get(str(ron.token_id))
        assert stored is not None
        assert stored.expires_at_seconds == pytest.approx(began_at + ends_after * HOUR, abs=60)
        assert seconds_of(stored.token.expires_at) == pytest.approx(stored.expires_at_seconds, abs=1)


async def test_a_record_that_has_ended_is_not_extended(world: World) -> None:
    ron = await world.ron()
    await world.tokens.revoke(Caller(OWNER), str(ron.token_id))
    before = await world.store.tokens.get(str(ron.token_id))
    await world.store.tokens.extend(str(ron.token_id), time.time() + 999 * HOUR)
    assert await world.store.tokens.get(str(ron.token_id)) == before


async def test_tokens_that_a_hub_token_made_outlast_its_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.settings.max_token_seconds = HOUR
    ron = await world.ron()
    world.settings.max_token_seconds = 1000 * HOUR
    made = await world.made(ron, expires_in_seconds=900 * HOUR)
    below = await world.made(world.bearer(made), expires_in_seconds=HOUR)
    now = time.time()
    for hours, left in ((500.0, [ron.token_id, made.token.id]), (2000.0, [])):
        monkeypatch.setattr(time, "time", lambda now=now + hours * HOUR: now)
        await world.store._writer.run(lambda db: expire(db, world.store.logs, 7 * 24 * HOUR), write=True)
        assert [token.id for token in await world.store.tokens.list(None, ended=True)] == left
    assert not await world.is_active(below)


async def test_a_hub_token_that_the_owner_has_revoked_stays_out(world: World) -> None:
    caller = await world.ron()
    await world.tokens.revoke(Caller(OWNER), str(caller.token_id))
    for policy in ("small", "small", "large"):
        with pytest.raises(TokenRevoked):
            await world.ron(policy=policy)


async def test_a_revocation_by_the_owner_outlasts_the_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    revoked, other = await world.ron(), await world.ron("two")
    await world.tokens.revoke(Caller(OWNER), str(revoked.token_id))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 100 * 86_400.0)
    with pytest.raises(TokenRevoked):
        await world.ron()
    await world.store._writer.run(lambda db: expire(db, world.store.logs, 7 * 86_400.0), write=True)
    with pytest.raises(TokenRevoked):
        await world.ron()
    assert (await world.ron("two")).principal != other.principal
    left = await world.store.tokens.list(None, ended=True)
    assert {str(revoked.token_id)} == {token.id for token in left if token.revoked_at}
    assert len(left) == 2  # the expired record of the other one is gone


async def test_as_many_revocations_are_kept_as_there_may_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction, "_MAX_REVOKED_OF_HUB", 2)
    for digest in ("one", "two", "three"):
        caller = await world.ron(digest)
        await world.tokens.revoke(Caller(OWNER), str(caller.token_id))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 100 * 86_400.0)
    await world.store._writer.run(lambda db: expire(db, world.store.logs, 7 * 86_400.0), write=True)
    assert await world.ron("one")
    for digest in ("two", "three"):
        with pytest.raises(TokenRevoked):
            await world.ron(digest)


async def test_a_hub_token_that_the_hub_ended_before_leaves_no_record_for_good(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.ron()
    await world.hub.end("one")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 100 * 86_400.0)
    await world.store._writer.run(lambda db: expire(db, world.store.logs, 7 * 86_400.0), write=True)
    assert await world.store.tokens.list(None, ended=True) == []
    assert await world.ron()


async def test_the_end_of_a_hub_token_ends_all_that_was_made_in_its_name(world: World) -> None:
    owner = Caller(OWNER, user={"username": "ada"}, hub_token="owners")
    ron, other = await world.ron(), await world.ron("two")
    of_owner, of_ron, of_other = await world.made(owner), await world.made(ron), await world.made(other)
    below = await world.made(world.bearer(of_ron))
    # The owner gave it another secret, but it is still below a token of Ron's.
    await world.tokens.rotate(owner, below.token.id, 0.0)
    await world.hub.end("one")
    active = [await world.is_active(token) for token in (of_owner, of_ron, below, of_other)]
    assert active == [True, False, False, True]
    await world.hub.end("owners")
    assert not await world.is_active(of_owner)
    assert (await world.ron()).principal != ron.principal  # the Hub may let it in again


async def test_a_token_ends_with_the_hub_token_that_rotated_it_last(world: World) -> None:
    first, second = (Caller(OWNER, user={"username": "ada"}, hub_token=digest) for digest in ("first", "second"))
    token = await world.made(first)
    await world.tokens.rotate(second, token.token.id, 0.0)
    await world.hub.end("first")
    assert await world.is_active(token)
    await world.hub.end("second")
    assert not await world.is_active(token)


async def test_work_of_a_token_ends_with_the_hub_token_that_rotated_it_last(world: World) -> None:
    first, second = (Caller(OWNER, user={"username": "ada"}, hub_token=digest) for digest in ("first", "second"))
    token = await world.made(first)
    bearer, ends = world.bearer(token), list[str]()
    world.watch.watch_work(bearer, lambda ended: ends.append(f"work of {ended and ended.id}"))
    world.watch.watch_caller(bearer, lambda: ends.append("stream"))
    assert len(world.asked.on_ends["first"]) == 2
    await world.tokens.rotate(second, token.token.id, 0.0)
    assert world.asked.asked_until["second"] == token.expires_at_seconds
    await world.refuse("first")
    world.watch.poll()
    assert ends == []
    await world.refuse("second")
    assert sorted(ends) == ["stream", f"work of {token.token.id}"]


async def test_work_of_a_token_ends_with_its_hub_token_while_nothing_can_be_written(world: World) -> None:
    token = await world.made(Caller(OWNER, user={"username": "ada"}, hub_token="first"))
    ends: list[str] = []
    world.watch.watch_work(world.bearer(token), lambda _: ends.append("work"))
    for on_end in list(world.asked.on_ends["first"].values()):
        on_end()  # and the revocation of the token cannot be recorded
    assert ends == ["work"]
    world.store.close()
    world.watch.watch_work(world.bearer(token), lambda _: ends.append("unreadable"))
    for on_end in list(world.asked.on_ends["first"].values()):
        on_end()
    assert ends == ["work", "unreadable"]


async def test_work_of_a_hub_token_ends_with_it_and_stops_the_questions(world: World) -> None:
    ron, ada = await world.ron(), Caller(OWNER, user={"username": "ada"}, hub_token="owners")
    ends: list[str] = []
    world.watch.watch_work(ron, lambda _: ends.append("ron"))
    world.watch.watch_work(ada, lambda _: ends.append("ada"))
    for bearer in (ron, ada):
        world.watch.watch_work(bearer, lambda _: ends.append("unwatched"))()
        assert len(world.asked.on_ends[bearer.hub_token]) == 1
    await world.refuse("one")
    await world.refuse("owners")
    assert ends == ["ron", "ada"]


async def test_what_a_login_has_made_outlives_it(world: World) -> None:
    token = await world.made(Caller(OWNER, user={"username": "ada"}, hub_token="login", is_login=True))
    await world.hub.end("login")
    assert await world.is_active(token)


async def test_the_last_expiry_of_made_tokens_is_known(world: World) -> None:
    ron = await world.ron()
    assert world.hub.made_until("one") == 0.0  # its own record is none of them
    made = [await world.made(ron, expires_in_seconds=seconds) for seconds in (HOUR, 2 * HOUR)]
    assert world.hub.made_until("one") == made[1].expires_at_seconds
    await world.tokens.revoke(ron, made[1].token.id)
    assert world.hub.made_until("one") == made[0].expires_at_seconds


async def test_a_token_may_outlast_the_record_of_its_hub_token_and_do_no_more(world: World) -> None:
    world.settings.max_token_seconds = 10.0
    ron = await world.ron()
    world.settings.max_token_seconds = HOUR
    made = await world.made(ron, expires_in_seconds=HOUR, policy="large")
    assert [bound.policy.name for bound in world.bearer(made).bounds] == ["small", "large"]
    with pytest.raises(TokenTooBroad):
        await world.made(world.bearer(made), expires_in_seconds=2 * HOUR)


async def test_a_hub_token_has_no_secret_here(world: World) -> None:
    caller = await world.ron()
    with pytest.raises(InvalidRequest, match="JupyterHub"):
        await world.tokens.rotate(Caller(OWNER, user={"username": "ada"}), str(caller.token_id), 0.0)
    with pytest.raises(Unauthenticated):
        world.tokens.authenticate(f"jex_{caller.token_id}_{'0' * 49}", "127.0.0.1")


async def test_a_user_with_ever_new_hub_tokens_is_slowed_down(world: World) -> None:
    for number in range(MINTED_AT_ONCE):
        await world.ron(str(number))
    with pytest.raises(TooManyTokens):
        await world.ron("one more")
