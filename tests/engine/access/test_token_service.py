"""Creating, bearing and managing tokens, on a real store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.auth.policy_parsing import read_policies
from jupyter_exec_ext.auth.scopes import ALL_SCOPES, SCOPES
from jupyter_exec_ext.auth.token_format import new_token
from jupyter_exec_ext.engine.access.token_service import ATTEMPTS_AT_ONCE, MAX_DEPTH, MINTED_AT_ONCE, TokenService
from jupyter_exec_ext.engine.access.token_watch import TokenJournal, TokenWatch
from jupyter_exec_ext.engine.change_feed import ChangeFeed
from jupyter_exec_ext.engine.concurrency import BackgroundTasks
from jupyter_exec_ext.engine.settings import EngineSettings
from jupyter_exec_ext.errors import (
    ExecError,
    Forbidden,
    InvalidRequest,
    PolicyDenied,
    PolicyNotFound,
    TokenExpired,
    TokenNotFound,
    TokenRevoked,
    TokenTooBroad,
    TooManyAttempts,
    TooManyTokens,
    Unauthenticated,
)
from jupyter_exec_ext.models import IssuedToken, Token, TokenRequest
from jupyter_exec_ext.protocol.records_json import seconds_of, utc_timestamp
from jupyter_exec_ext.store.store import ExecStore
from tests.support.waiting import until

ADA = owner("Ada", {"username": "ada"})
HERE = "127.0.0.1"


@dataclass
class World:
    verbs: TokenService
    # What a server makes of the same tokens that is started with these policies.
    with_policies: Callable[[dict[str, Policy]], TokenService]
    watch: TokenWatch
    store: ExecStore

    async def caller(self, by: Caller = ADA, **request: Any) -> Caller:
        request = {"name": "t", "scopes": sorted(ALL_SCOPES), **request}
        issued = await self.verbs.create(by, TokenRequest(**request))
        return self.verbs.authenticate(issued.text, HERE)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = ExecStore(path=str(tmp_path / "store"), reserve_bytes=4096, log=logging.getLogger("test"))
    background = BackgroundTasks()
    settings = EngineSettings(max_tokens=MAX_DEPTH + 5, max_token_seconds=1000.0, default_token_seconds=100.0)
    journal = TokenJournal(store.tokens, store.audit, ChangeFeed(), background)
    watch = TokenWatch(store.tokens, journal, logging.getLogger("test"))

    def with_policies(policies: dict[str, Policy]) -> TokenService:
        return TokenService(store.tokens, policies, settings, store.audit, ChangeFeed(), journal, watch)

    yield World(with_policies(read_policies({"mine": {"max_sessions": 3}})), with_policies, watch, store)
    watch.close()
    await background.drain()
    store.close()


async def test_a_bearer_has_the_scopes_and_bounds_of_the_token(world: World) -> None:
    caller = await world.caller(scopes=["files:read", "sessions:read"], policy="mine", limits={"max_sessions": 2})
    assert caller.scopes == {"files:read", "sessions:read"}
    assert not caller.is_owner
    assert caller.user == ADA.user
    assert [bound.policy.max_sessions for bound in caller.bounds] == [3, 2]
    child = await world.caller(await world.caller(policy="mine"), limits={"max_sessions": 1})
    assert [bound.policy.max_sessions for bound in child.bounds] == [3, 3, 1]
    assert len({bound.principal for bound in child.bounds}) == 2


async def test_a_policy_counts_as_it_is_configured_now(world: World) -> None:
    issued = await world.verbs.create(ADA, TokenRequest("t", "mine", ["sessions:read"], limits={"max_sessions": 3}))
    narrower = world.with_policies({"mine": Policy("mine", max_sessions=1)})
    caller = narrower.authenticate(issued.text, HERE)
    assert min(policy.max_sessions or 0 for policy in caller.policies) == 1
    with pytest.raises(PolicyDenied, match="'mine' is not configured any more"):
        world.with_policies({}).authenticate(issued.text, HERE)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"scopes": None}, InvalidRequest),
        ({"scopes": []}, InvalidRequest),
        ({"scopes": ["sessions:reed"]}, InvalidRequest),
        ({"scopes": ["*"]}, InvalidRequest),
        ({"policy": "nope"}, PolicyNotFound),
        ({"policy": ""}, None),
        ({"limits": {"max_session": 1}}, InvalidRequest),
        ({"limits": {"max_sessions": 6}}, TokenTooBroad),
        ({"expires_in_seconds": 1000.1}, TokenTooBroad),
        ({"expires_in_seconds": 1000.0}, None),
    ],
)
async def test_what_is_asked_for_is_checked(
    world: World, request_: dict[str, Any], error: type[ExecError] | None
) -> None:
    if error is None:
        await world.caller(**request_)
        return
    with pytest.raises(error):
        await world.caller(**request_)
    assert await world.verbs.list(ADA) == []


async def test_a_child_may_do_no_more_than_its_parent(world: World) -> None:
    parent = await world.caller(scopes=["tokens:create", "files:read"], policy="mine", expires_in_seconds=50.0)
    for name in SCOPES:
        if name not in parent.scopes:
            with pytest.raises(TokenTooBroad, match=name):
                await world.caller(parent, scopes=[name])
    with pytest.raises(TokenTooBroad, match="good for 50 s"):
        await world.caller(parent, scopes=["files:read"], expires_in_seconds=51.0)
    with pytest.raises(TokenTooBroad):
        await world.caller(parent, scopes=["files:read"], limits={"max_sessions": 4})
    child = await world.caller(parent, scopes=["files:read"], policy="trusted")  # which frees it of nothing
    assert [bound.policy.name for bound in child.bounds] == ["mine", "trusted"]
    listed = {token.id: token for token in await world.verbs.list(ADA)}
    assert listed[str(child.token_id)].expires_at <= listed[str(parent.token_id)].expires_at


async def test_for_whom_nobody_can_be_asked_no_token_is_made(world: World) -> None:
    with pytest.raises(Forbidden):
        await world.caller(owner("somebody"))


async def test_the_chain_of_tokens_has_an_end(world: World) -> None:
    caller = ADA
    for _ in range(MAX_DEPTH):
        caller = await world.caller(caller)
    with pytest.raises(TokenTooBroad, match=f"{MAX_DEPTH} deep"):
        await world.caller(caller)
    assert len(list(caller.bounds)) == MAX_DEPTH


async def test_there_are_no_more_than_max_tokens(world: World) -> None:
    for _ in range(MAX_DEPTH + 5):
        await world.caller()
    with pytest.raises(TooManyTokens):
        await world.caller()


async def test_tokens_leave_room_for_one_of_the_owners(world: World) -> None:
    parent = await world.caller()
    for _ in range(MAX_DEPTH + 3):
        await world.caller(parent)
    with pytest.raises(TooManyTokens, match="max_tokens"):
        await world.caller(parent)
    await world.caller()


async def test_a_token_and_those_below_it_make_so_many_in_a_minute(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "jupyter_exec_ext.engine.access.token_service.time", SimpleNamespace(time=time.time, monotonic=lambda: 1.0)
    )
    parent = await world.caller()
    child = await world.caller(parent)
    for n in range(MINTED_AT_ONCE - 1):
        await world.verbs.rotate((parent, child)[n % 2], str(child.token_id), 0.0)
    for verb in (
        world.verbs.rotate(child, str(child.token_id), 0.0),
        world.verbs.create(parent, TokenRequest("t", scopes=["files:read"])),
    ):
        with pytest.raises(TooManyTokens) as raised:
            await verb
        assert 0 < (raised.value.retry_after_seconds or 0) <= 1
    other = await world.caller()
    assert await world.caller(other)


async def test_each_sees_and_manages_its_own_and_what_is_below(world: World) -> None:
    parent = await world.caller()
    child, stranger = await world.caller(parent), await world.caller()
    assert {token.id for token in await world.verbs.list(parent)} == {parent.token_id, child.token_id}
    assert {token.id for token in await world.verbs.list(child)} == {child.token_id}
    assert len(await world.verbs.list(ADA)) == 3
    for caller, foreign in ((child, parent), (stranger, parent), (parent, stranger)):
        for verb in (
            world.verbs.get(caller, str(foreign.token_id)),
            world.verbs.rotate(caller, str(foreign.token_id), 0.0),
            world.verbs.revoke(caller, str(foreign.token_id)),
        ):
            with pytest.raises(TokenNotFound):
                await verb
    ended: list[Token | None] = []
    world.watch.watch(str(child.token_id), ended.append)
    await world.verbs.revoke(parent, str(child.token_id))
    assert [token and token.id for token in ended] == [child.token_id]


async def test_a_new_secret_takes_the_place_of_the_old_one(world: World) -> None:
    old = await world.verbs.create(ADA, TokenRequest("t", scopes=["sessions:read"]))
    new = await world.verbs.rotate(ADA, old.token.id, 0.0)
    assert new.token.id == old.token.id
    assert world.verbs.authenticate(new.text, HERE).token_id == old.token.id
    with pytest.raises(Unauthenticated) as raised:
        world.verbs.authenticate(old.text, HERE)
    assert raised.value.code == "unauthenticated"
    newer = await world.verbs.rotate(ADA, old.token.id, 60.0)
    assert {world.verbs.authenticate(each.text, HERE).token_id for each in (new, newer)} == {old.token.id}
    with pytest.raises(InvalidRequest):
        await world.verbs.rotate(ADA, old.token.id, 86_400.1)
    assert old.text not in repr(old) and newer.text not in repr(newer)


async def test_a_token_is_extended_with_a_new_secret_and_never_beyond_those_above_it(world: World) -> None:
    scopes = ["sessions:read", "tokens:create"]
    above = await world.verbs.create(ADA, TokenRequest("above", scopes=scopes, expires_in_seconds=60))
    bearer = world.verbs.authenticate(above.text, HERE)
    below = await world.verbs.create(bearer, TokenRequest("below", scopes=["sessions:read"], expires_in_seconds=1))
    with pytest.raises(TokenTooBroad):
        await world.verbs.rotate(ADA, below.token.id, 0.0, 120.0)
    with pytest.raises(TokenTooBroad):
        await world.verbs.rotate(bearer, above.token.id, 0.0, 120.0)  # nor itself
    await world.verbs.rotate(ADA, above.token.id, 60.0, 120.0)
    extended = await world.verbs.rotate(ADA, below.token.id, 0.0, 110.0)
    assert 100 < seconds_of(extended.token.expires_at) - time.time() <= 110
    assert await world.verbs.get(ADA, below.token.id) == extended.token
    unchanged = await world.verbs.rotate(ADA, below.token.id, 0.0)
    assert unchanged.token.expires_at == extended.token.expires_at


async def test_tokens_below_end_with_a_token_that_is_rotated_to_an_earlier_end(world: World) -> None:
    above = await world.verbs.create(ADA, TokenRequest("above", scopes=sorted(ALL_SCOPES), expires_in_seconds=900))
    child = await world.caller(world.verbs.authenticate(above.text, HERE), expires_in_seconds=800)
    grandchild = await world.caller(child, expires_in_seconds=700)
    short = await world.caller(child, expires_in_seconds=1)
    stranger = await world.caller(expires_in_seconds=900)
    before = {token.id: token.expires_at for token in await world.verbs.list(ADA)}
    rotated = await world.verbs.rotate(ADA, above.token.id, 0.0, 60.0)
    after = {token.id: token.expires_at for token in await world.verbs.list(ADA)}
    for each in (above.token.id, child.token_id, grandchild.token_id):
        assert after[str(each)] == rotated.token.expires_at
    for each in (short.token_id, stranger.token_id):
        assert after[str(each)] == before[str(each)]
    await world.verbs.rotate(ADA, above.token.id, 0.0, 0.001)
    ended: list[Token | None] = []
    world.watch.watch(str(grandchild.token_id), ended.append)
    await until(lambda: ended)
    with pytest.raises(TokenExpired):
        await world.verbs.bearer(ADA, str(child.token_id))


async def test_rotation_shortens_a_token_that_an_earlier_version_let_outlast_its_parent(world: World) -> None:
    above = await world.verbs.create(ADA, TokenRequest("above", scopes=sorted(ALL_SCOPES), expires_in_seconds=900))
    child = await world.caller(world.verbs.authenticate(above.text, HERE), expires_in_seconds=800)
    earlier = time.time() + 60.0
    sql = "UPDATE tokens SET expires_at = ? WHERE id = ?"
    await world.store._writer.run(lambda db: db.execute(sql, (earlier, above.token.id)))
    rotated = await world.verbs.rotate(ADA, str(child.token_id), 0.0)
    assert rotated.token.expires_at == utc_timestamp(earlier)


async def test_a_token_made_while_the_one_above_gets_an_earlier_end_does_not_outlive_it(world: World) -> None:
    above = await world.verbs.create(ADA, TokenRequest("above", scopes=sorted(ALL_SCOPES), expires_in_seconds=900))
    bearer = world.verbs.authenticate(above.text, HERE)
    child = await world.caller(bearer, expires_in_seconds=10)
    outcomes = await asyncio.gather(
        world.verbs.rotate(ADA, above.token.id, 0.0, 60.0),
        world.verbs.create(bearer, TokenRequest("late", scopes=["files:read"], expires_in_seconds=800)),
        world.verbs.rotate(bearer, str(child.token_id), 0.0, 800.0),
        return_exceptions=True,
    )
    assert all(isinstance(each, (IssuedToken, TokenTooBroad)) for each in outcomes)
    ends = {token.id: seconds_of(token.expires_at) for token in await world.verbs.list(ADA)}
    assert max(ends.values()) == ends[above.token.id]


async def test_a_new_secret_is_in_the_name_of_whoever_asked_for_it(world: World) -> None:
    old = await world.verbs.create(ADA, TokenRequest("t", scopes=["sessions:read"]))
    new = await world.verbs.rotate(owner("Bob", {"username": "bob"}), old.token.id, 60.0)
    for each in (old, new):
        assert world.verbs.authenticate(each.text, HERE).user == {"username": "bob"}
    with pytest.raises(Forbidden, match="server's own user"):  # who could not have created it either
        await world.verbs.rotate(owner("a guest"), old.token.id, 0.0)
    assert world.verbs.authenticate(new.text, HERE).token_id == old.token.id


async def test_what_has_ended_says_how_and_is_not_given_a_new_secret(world: World) -> None:
    revoked = await world.verbs.create(ADA, TokenRequest("t", scopes=["sessions:read"]))
    await world.verbs.revoke(ADA, revoked.token.id)
    await world.verbs.revoke(ADA, revoked.token.id)  # again is fine
    expired = await world.verbs.create(ADA, TokenRequest("t", scopes=["sessions:read"], expires_in_seconds=0.001))
    await asyncio.sleep(0.002)
    for issued, error in ((revoked, TokenRevoked), (expired, TokenExpired)):
        with pytest.raises(error, match=issued.token.id):
            world.verbs.authenticate(issued.text, HERE)
        with pytest.raises(error):
            await world.verbs.rotate(ADA, issued.token.id, 60.0)
    assert await world.verbs.list(ADA) == []
    assert len(await world.verbs.list(ADA, ended=True)) == 2


def use_up(world: World, address: str, tries: int = ATTEMPTS_AT_ONCE + 1) -> None:
    """Send wrong tokens from an address until it is asked to wait."""
    errors = set()
    for _ in range(tries):
        with pytest.raises((Unauthenticated, TooManyAttempts)) as raised:
            world.verbs.authenticate(new_token().text, address)
        errors.add(type(raised.value))
    assert errors == {Unauthenticated, TooManyAttempts}


@pytest.mark.parametrize("tries", [25, 1000])
async def test_a_valid_token_is_let_in_after_any_number_of_wrong_ones(world: World, tries: int) -> None:
    issued = await world.verbs.create(ADA, TokenRequest("t", scopes=["sessions:read"]))
    use_up(world, HERE, tries)
    assert world.verbs.authenticate(issued.text, HERE).token_id == issued.token.id


async def test_beyond_the_budget_each_kind_of_token_is_told_apart(world: World) -> None:
    parent = await world.verbs.create(ADA, TokenRequest("t", scopes=["sessions:read", "tokens:create"]))
    above = world.verbs.authenticate(parent.text, "elsewhere")
    child = await world.verbs.create(above, TokenRequest("child", scopes=["sessions:read"]))
    replaced = await world.verbs.create(ADA, TokenRequest("t", scopes=["sessions:read"]))
    rotated = await world.verbs.rotate(ADA, replaced.token.id, 0.0)
    revoked = await world.verbs.create(ADA, TokenRequest("t", scopes=["sessions:read"]))
    await world.verbs.revoke(ADA, revoked.token.id)
    use_up(world, HERE)
    for valid in (parent, child, rotated):
        assert world.verbs.authenticate(valid.text, HERE).token_id == valid.token.id
    with pytest.raises(TokenRevoked):  # its secret is right, so it is no guess
        world.verbs.authenticate(revoked.text, HERE)
    for wrong in (replaced.text, new_token(parent.token.id).text, new_token().text):
        with pytest.raises(TooManyAttempts) as raised:
            world.verbs.authenticate(wrong, HERE)
        assert 0 < (raised.value.retry_after_seconds or 0) <= 6
    with pytest.raises(Unauthenticated):  # what is no token at all is a slip of the keyboard
        world.verbs.authenticate(parent.text[:-1], HERE)


async def test_valid_tokens_leave_the_budget_for_wrong_ones_as_it_is(world: World) -> None:
    issued = await world.verbs.create(ADA, TokenRequest("t", scopes=["sessions:read"]))
    for _ in range(10 * ATTEMPTS_AT_ONCE):
        world.verbs.authenticate(issued.text, HERE)
    with pytest.raises(Unauthenticated):
        world.verbs.authenticate(new_token().text, HERE)
