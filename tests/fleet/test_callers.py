"""Who sends a request to a pool, with a Hub that answers as its documentation says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from jupyter_exec_ext.auth.token_format import new_token
from jupyter_exec_ext.errors import MissingScope, TokenRevoked, TooManyAttempts, Unauthenticated, Unavailable
from jupyter_exec_ext.fleet import callers as callers_module
from jupyter_exec_ext.fleet.callers import Callers
from jupyter_exec_ext.fleet.issued_tokens import IssuedTokens
from jupyter_exec_ext.models import TokenRequest
from jupyter_exec_ext.store.store import ExecStore
from tests.support.token_servers import ADA_MODEL, TokenHub

HERE = "127.0.0.1"


class Clock:
    """Replaces the module's clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ExecStore]:
    store = ExecStore(path=str(tmp_path / "pool"))
    yield store
    store.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(callers_module, "time", clock)
    return clock


@pytest.fixture
def hub() -> TokenHub:
    return TokenHub()


@pytest.fixture
def callers(hub: TokenHub, store: ExecStore, clock: Clock) -> Callers:
    policies = {"custom:exec:few": "strict", "custom:exec:run": "default"}
    return Callers(hub.ask, IssuedTokens(store), policies, stale_seconds=300)


async def test_hub_token_is_a_principal_of_its_own_with_the_policy_of_its_first_scope(
    callers: Callers, hub: TokenHub
) -> None:
    first, second = [await callers.authenticate(f"Bearer {text}", HERE) for text in ("ada", "ada-too")]
    assert first.account == second.account == "user:ada"
    assert first.principal != second.principal
    assert not first.may_see(second.principal)
    assert first.policy == "default"
    hub.models["both"] = {**ADA_MODEL, "scopes": ["custom:exec:run", "custom:exec:few"]}
    assert (await callers.authenticate("token both", HERE)).policy == "strict"


async def test_token_without_a_scope_of_the_pool_is_refused_with_the_scopes(callers: Callers, hub: TokenHub) -> None:
    hub.models["other"] = {**ADA_MODEL, "scopes": ["self"]}
    with pytest.raises(MissingScope, match="'custom:exec:few', 'custom:exec:run'"):
        await callers.authenticate("Bearer other", HERE)
    hub.models["admin"] = {**ADA_MODEL, "scopes": [], "admin": True}
    admin = await callers.authenticate("Bearer admin", HERE)
    assert (admin.is_admin, admin.policy, admin.scopes) == (True, "", frozenset())


async def test_hub_is_asked_again_after_five_seconds_and_its_no_counts(
    callers: Callers, hub: TokenHub, clock: Clock
) -> None:
    for _ in range(3):
        await callers.authenticate("Bearer ada", HERE)
    assert hub.asked == 1
    del hub.models["ada"]
    clock.now += 6
    with pytest.raises(Unauthenticated):
        await callers.authenticate("Bearer ada", HERE)


async def test_known_token_stays_good_while_the_hub_is_away_for_a_time(
    callers: Callers, hub: TokenHub, clock: Clock
) -> None:
    await callers.authenticate("Bearer ada", HERE)
    hub.is_away = True
    clock.now += 299
    await callers.authenticate("Bearer ada", HERE)
    with pytest.raises(Unavailable):
        await callers.authenticate("Bearer ada-too", HERE)  # nobody has seen it yet
    clock.now += 6
    with pytest.raises(Unavailable):
        await callers.authenticate("Bearer ada", HERE)


async def test_wrong_tokens_of_one_address_are_bounded_and_cost_the_hub_no_more(
    callers: Callers, hub: TokenHub
) -> None:
    errors = []
    for number in range(40):
        with pytest.raises((Unauthenticated, TooManyAttempts)) as raised:
            await callers.authenticate(f"Bearer wrong-{number}", HERE)
        errors.append(type(raised.value))
    assert errors[0] is Unauthenticated and errors[-1] is TooManyAttempts
    assert hub.asked <= 20
    await callers.authenticate("Bearer ada", "127.0.0.2")


@pytest.mark.parametrize("wrong", ["wrong", new_token().text, "ended"], ids=["hub", "issued", "ended"])
async def test_program_that_repeats_a_wrong_token_locks_out_no_others_of_its_address(
    callers: Callers, hub: TokenHub, clock: Clock, wrong: str
) -> None:
    hub.models["ended"] = ADA_MODEL
    await callers.authenticate("Bearer ended", HERE)
    del hub.models["ended"]
    for _ in range(600):
        clock.now += 1
        with suppress(Unauthenticated, TooManyAttempts):
            await callers.authenticate(f"Bearer {wrong}", HERE)
    await callers.authenticate("Bearer ada", HERE)


async def test_token_that_the_hub_knows_later_is_good_after_a_minute(
    callers: Callers, hub: TokenHub, clock: Clock
) -> None:
    with pytest.raises(Unauthenticated):
        await callers.authenticate("Bearer late", HERE)
    hub.models["late"] = ADA_MODEL
    clock.now += 61
    await callers.authenticate("Bearer late", HERE)


@pytest.mark.parametrize(("has_ended", "scopes"), [(True, []), (False, []), (False, ["custom:exec:few"])])
async def test_issued_token_ends_with_the_hub_token_that_made_it_and_with_its_policy(
    callers: Callers, hub: TokenHub, store: ExecStore, clock: Clock, has_ended: bool, scopes: list[str]
) -> None:
    ada = await callers.authenticate("Bearer ada", HERE)
    request = TokenRequest("agent", scopes=["sessions:read"])
    issued = await IssuedTokens(store).create(ada, request)
    agent = await callers.authenticate(f"Bearer {issued.text}", HERE)
    assert agent.scopes == {"sessions:read"} and agent.creator is not None
    assert ada.may_see(agent.principal) and agent.creator.principal == ada.principal
    if has_ended:
        del hub.models["ada"]
    else:
        hub.models["ada"] = {**ADA_MODEL, "scopes": scopes}
    clock.now += 6
    for _ in range(2):
        with pytest.raises(TokenRevoked):
            await callers.authenticate(f"Bearer {issued.text}", HERE)


async def test_ended_hub_token_is_still_known_as_ended_after_its_bearer_was_refused(
    callers: Callers, hub: TokenHub, clock: Clock
) -> None:
    ada = await callers.authenticate("Bearer ada", HERE)
    del hub.models["ada"]
    clock.now += 6
    with pytest.raises(Unauthenticated):
        await callers.authenticate("Bearer ada", HERE)
    assert await callers.is_ended(ada.credential, ada.policy)


async def test_hub_that_is_away_for_long_ends_no_work(callers: Callers, hub: TokenHub, clock: Clock) -> None:
    ada = await callers.authenticate("Bearer ada", HERE)
    hub.is_away = True
    clock.now += 3600
    assert not await callers.is_ended(ada.credential, ada.policy)
    for _ in range(2):  # the questions of the watch do not keep it good for requests
        with pytest.raises(Unavailable):
            await callers.authenticate("Bearer ada", HERE)
        assert not await callers.is_ended(ada.credential, ada.policy)
    hub.is_away = False
    del hub.models["ada"]
    assert await callers.is_ended(ada.credential, ada.policy)
