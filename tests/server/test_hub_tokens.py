"""Questions about JupyterHub's tokens, to a small Hub with the documented ``GET /hub/api/user``, on a test's clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, HTTPError, RequestHandler

from jupyter_exec_ext.errors import StoreUnavailable
from jupyter_exec_ext.server import hub_tokens
from jupyter_exec_ext.server.hub_tokens import HubTokens
from tests.support.waiting import until

TOKEN, MAX_AGE, STALE = "0123456789abcdef", 5, 300.0


@dataclass
class Hub:
    """A Hub that knows one token, and what it was asked.

    Parameters
    ----------
    status : int
        Of its answers; 0 if it does not answer at all.
    """

    url: str
    user: dict[str, Any] = field(default_factory=lambda: {"name": "ron", "kind": "user", "scopes": ["access:servers"]})
    status: int = 200
    asked: list[str] = field(default_factory=list)


class WhoAmI(RequestHandler):
    """``GET /hub/api/user``"""

    def initialize(self, hub: Hub) -> None:
        self.hub = hub

    async def get(self) -> None:
        text = self.request.headers["Authorization"].removeprefix("token ")
        self.hub.asked.append(text)
        status = 403 if self.hub.status == 200 and text != TOKEN else self.hub.status
        if not status:
            await asyncio.Event().wait()
        self.set_status(status)
        self.finish(self.hub.user if status == 200 else {"status": status})


class Clock:
    """A clock that a test sets forward."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@dataclass
class Made:
    """Tokens that were made in the names of Hub tokens."""

    until: float = 0.0
    failures: int = 0
    ended: list[str] = field(default_factory=list)

    def made_until(self, hub_token: str) -> float:
        return self.until

    async def end(self, hub_token: str) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the disk is away")
        self.ended.append(hub_token)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(hub_tokens, "time", clock)
    return clock


@pytest.fixture
async def hub(clock: Clock) -> AsyncIterator[Hub]:
    socket, port = bind_unused_port()
    hub = Hub(f"http://127.0.0.1:{port}/hub/api")
    server = HTTPServer(Application([("/hub/api/user", WhoAmI, {"hub": hub})]))
    server.add_socket(socket)
    yield hub
    server.stop()
    await server.close_all_connections()


@pytest.fixture
def made() -> Made:
    return Made()


@pytest.fixture
async def tokens(hub: Hub, made: Made) -> AsyncIterator[HubTokens]:
    auth: Any = SimpleNamespace(api_url=hub.url, cache_max_age=MAX_AGE, certfile="", keyfile="", client_ca="")
    log = logging.getLogger("test")
    tokens = HubTokens(
        auth, made, lambda user: tuple(user["scopes"]) or None, stale_seconds=STALE, log=log, ask_seconds=0.0
    )
    yield tokens
    tokens.close()


async def digest_of(tokens: HubTokens) -> str:
    user = await tokens.user_for_token(TOKEN)
    assert user is not None
    return user.token.digest


# --- questions ---


async def test_an_answer_is_good_until_its_age_and_then_asked_again(tokens: HubTokens, hub: Hub, clock: Clock) -> None:
    for seconds, questions in ((0, 1), (MAX_AGE - 0.1, 1), (0.1, 2), (MAX_AGE, 3)):
        clock.now += seconds
        user = await tokens.user_for_token(TOKEN)
        assert (user is not None and user["name"], len(hub.asked)) == ("ron", questions)


async def test_requests_at_once_put_one_question(tokens: HubTokens, hub: Hub) -> None:
    users = await asyncio.gather(*(tokens.user_for_token(TOKEN) for _ in range(50)))
    assert [user is not None and user["name"] for user in users] == ["ron"] * 50
    assert len(hub.asked) == 1


async def test_another_login_session_and_a_caller_without_cache_ask_at_once(tokens: HubTokens, hub: Hub) -> None:
    await tokens.user_for_token(TOKEN, session_id="first")
    await tokens.user_for_token(TOKEN, session_id="second")
    await tokens.user_for_token(TOKEN, use_cache=False, session_id="second")
    assert len(hub.asked) == 3


@pytest.mark.parametrize("text", ["", "x" * 1001, "a\nb", "ä"])
async def test_a_text_that_is_no_token_is_not_asked_about(tokens: HubTokens, hub: Hub, text: str) -> None:
    assert await tokens.user_for_token(text) is None
    assert hub.asked == []


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_refused_token_is_refused_at_once(tokens: HubTokens, hub: Hub, clock: Clock, status: int) -> None:
    await digest_of(tokens)
    hub.status = status
    clock.now += MAX_AGE
    assert await tokens.user_for_token(TOKEN) is None
    hub.status = 500  # an outage makes it no better
    clock.now += MAX_AGE
    assert await tokens.user_for_token(TOKEN) is None


@pytest.mark.parametrize("status", [500, 502, 503, 302, 429])
async def test_while_the_hub_fails_its_last_answer_is_good_for_a_time(
    tokens: HubTokens, hub: Hub, clock: Clock, status: int
) -> None:
    digest = await digest_of(tokens)
    hub.status = status
    clock.now += STALE
    user = await tokens.user_for_token(TOKEN)
    assert user is not None
    assert user.token.digest == digest
    clock.now += 0.1
    with pytest.raises(HTTPError) as raised:
        await tokens.user_for_token(TOKEN)
    assert raised.value.status_code == 503
    hub.status = 200
    assert await tokens.user_for_token(TOKEN) is not None


async def test_a_hub_that_refuses_connections_or_is_silent_is_away(
    tokens: HubTokens, hub: Hub, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_tokens, "_ANSWER_SECONDS", 0.2)
    auth: Any = tokens._hub_auth
    await digest_of(tokens)
    hub.status = 0
    clock.now += MAX_AGE
    assert await tokens.user_for_token(TOKEN) is not None
    auth.api_url = "http://127.0.0.1:9/hub/api"
    clock.now += MAX_AGE
    assert await tokens.user_for_token(TOKEN) is not None
    with pytest.raises(HTTPError):
        await tokens.user_for_token("of-another")


async def test_during_an_outage_requests_do_not_wait_for_the_hub(tokens: HubTokens, hub: Hub, clock: Clock) -> None:
    await digest_of(tokens)
    hub.status = 500
    clock.now += MAX_AGE
    await tokens.user_for_token(TOKEN)
    hub.status = 0  # the next question has no answer, and is not waited for
    clock.now += MAX_AGE
    assert await asyncio.wait_for(tokens.user_for_token(TOKEN), 1.0) is not None


async def test_many_wrong_tokens_push_no_good_one_out(tokens: HubTokens, hub: Hub, monkeypatch: Any) -> None:
    monkeypatch.setattr(hub_tokens, "_MAX_TOKENS", 3)
    digest = await digest_of(tokens)
    for number in range(10):
        assert await tokens.user_for_token(f"wrong {number}") is None
    assert tokens.get(digest) is not None
    assert len(tokens._others) == 3


# --- what ends with a token ---


async def test_a_watched_token_is_asked_about_again_and_others_are_not(tokens: HubTokens, hub: Hub) -> None:
    digest = await digest_of(tokens)
    unwatch = tokens.watch(digest, _fail)
    await until(lambda: len(hub.asked) > 3)
    unwatch()
    token = tokens._good[digest]
    await until(lambda: token.repeating is None)
    assert set(hub.asked) == {TOKEN}
    assert len(tokens._good) == 1


async def test_what_runs_in_the_name_of_a_refused_token_ends(
    tokens: HubTokens, hub: Hub, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    digest, ends = await digest_of(tokens), list[str]()
    tokens.watch(digest, lambda: ends.append("first"))
    tokens.watch(digest, lambda: ends.append("second"))
    user = tokens.get(digest)
    hub.status = 403
    await until(lambda: made.ended)
    assert (sorted(ends), made.ended) == (["first", "second"], [digest])
    assert user is not None
    assert user.token.text == ""
    assert TOKEN not in f"{user.token!r} {tokens!r} {caplog.text}"
    late = asyncio.Event()
    tokens.watch(digest, late.set)  # of a request that came in just before
    await late.wait()


async def test_an_outage_ends_nothing_however_long(tokens: HubTokens, hub: Hub, clock: Clock, made: Made) -> None:
    digest = await digest_of(tokens)
    tokens.watch(digest, _fail)
    hub.status = 500
    clock.now += 10 * STALE
    before = len(hub.asked)
    await until(lambda: len(hub.asked) > before + 3)
    assert made.ended == []


async def test_another_standing_ends_what_was_begun_under_the_earlier(tokens: HubTokens, hub: Hub, made: Made) -> None:
    digest, ended = await digest_of(tokens), asyncio.Event()
    tokens.watch(digest, ended.set)
    hub.user["scopes"] = ["access:servers", "custom:exec:run"]
    await ended.wait()
    await until(lambda: made.ended == [digest])
    assert await tokens.user_for_token(TOKEN) is not None


async def test_a_token_is_asked_about_while_one_that_it_made_is_good(
    tokens: HubTokens, hub: Hub, clock: Clock, made: Made
) -> None:
    digest = await digest_of(tokens)
    tokens.keep_asking(digest, clock.now + 60)
    await until(lambda: len(hub.asked) > 3)
    clock.now += 60
    token = tokens._good[digest]
    await until(lambda: token.repeating is None)
    tokens.keep_asking(digest, clock.now + 60)
    hub.status = 403
    await until(lambda: token.user is None)
    assert not token.is_wanted
    tokens.keep_asking(digest, clock.now + 60)  # made while the Hub refused it
    await until(lambda: made.ended == [digest] * 2)


async def test_tokens_made_before_the_servers_start_count(
    tokens: HubTokens, hub: Hub, clock: Clock, made: Made
) -> None:
    made.until = clock.now + 60
    await digest_of(tokens)
    await until(lambda: len(hub.asked) > 3)


async def test_made_tokens_are_revoked_once_the_store_takes_it(tokens: HubTokens, hub: Hub, made: Made) -> None:
    digest = await digest_of(tokens)
    made.failures, hub.status = 3, 403
    assert await tokens.user_for_token(TOKEN, use_cache=False) is None
    await until(lambda: made.ended == [digest])


async def test_a_wrong_token_costs_the_store_one_try(tokens: HubTokens, hub: Hub, made: Made) -> None:
    made.failures = 10
    assert await tokens.user_for_token("wrong") is None
    await until(lambda: not tokens._ending)
    assert made.failures == 9


def _fail() -> None:
    raise AssertionError("it has not ended")
