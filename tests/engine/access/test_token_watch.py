from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from typing import Any, cast

import pytest

from jupyter_exec_ext.engine.access.token_watch import TokenWatch, why_ended
from jupyter_exec_ext.errors import StoreUnavailable
from jupyter_exec_ext.models import Token

TOKEN = Token("abcdefgh", "token:abcdefgh", "t", "default", (), "then", "later")


class Tokens:
    """The part of a token store that is asked, with what a test makes of the tokens."""

    def __init__(self) -> None:
        self.gone: dict[str, Token | None] = {}
        self.locked = False
        self.asked = 0

    def ended(self, token_ids: Collection[str]) -> dict[str, Token | None]:
        self.asked += 1
        if self.locked:
            raise StoreUnavailable("the database is locked by another program; try again")
        return {token_id: self.gone[token_id] for token_id in token_ids if token_id in self.gone}


class Watched:
    def __init__(self) -> None:
        self.tokens = Tokens()
        self.expired: list[str] = []
        self.seen: list[Token | None] = []
        self.watch = TokenWatch(cast(Any, self.tokens), cast(Any, self), logging.getLogger("test"))

    def note_expired(self, token_id: str) -> None:
        self.expired.append(token_id)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    yield made
    made.watch.close()


@pytest.mark.parametrize(
    ("ended", "expired", "why"),
    [
        (replace(TOKEN, revoked_at="now"), [], "the token abcdefgh was revoked"),
        (replace(TOKEN, expired=True), ["abcdefgh"], "the token abcdefgh expired"),
        (None, [], "not known any more"),
    ],
)
async def test_an_end_is_told_once_to_everybody(
    watched: Watched, ended: Token | None, expired: list[str], why: str
) -> None:
    for _ in range(2):
        watched.watch.watch(TOKEN.id, watched.seen.append)
    watched.watch.poll()
    assert watched.seen == []
    watched.tokens.gone[TOKEN.id] = ended
    watched.watch.poll()
    watched.watch.poll()
    assert watched.seen == [ended, ended]
    assert watched.expired == expired
    assert why in why_ended(ended)


async def test_it_is_noticed_within_half_a_second_and_nobody_is_asked_for_nothing(watched: Watched) -> None:
    noticed = asyncio.Event()
    unwatch = watched.watch.watch(TOKEN.id, lambda _: noticed.set())
    watched.tokens.gone[TOKEN.id] = None
    await asyncio.wait_for(noticed.wait(), 0.6)
    unwatch()
    asked = watched.tokens.asked
    watched.watch.poll()
    assert watched.tokens.asked == asked


async def test_whoever_does_not_watch_any_more_is_not_told(watched: Watched) -> None:
    unwatch = watched.watch.watch(TOKEN.id, watched.seen.append)
    unwatch()
    unwatch()
    watched.tokens.gone[TOKEN.id] = None
    watched.watch.poll()
    assert watched.seen == []


async def test_while_the_store_cannot_be_asked_it_is_said_once_and_tried_again(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.watch.watch(TOKEN.id, watched.seen.append)
    watched.tokens.gone[TOKEN.id] = None
    watched.tokens.locked = True
    for _ in range(5):
        watched.watch.poll()
    assert watched.seen == []
    assert caplog.text.count("tokens cannot be checked") == 1
    watched.tokens.locked = False
    watched.watch.poll()
    assert watched.seen == [None]
