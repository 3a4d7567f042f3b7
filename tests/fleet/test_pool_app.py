"""The token with which a pool is the owner of its servers."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_exec_ext.errors import Unavailable
from jupyter_exec_ext.fleet import pool_app
from jupyter_exec_ext.fleet.pool_app import renewed_token


class TokenSource:
    """A Hub that issues tokens, unless it is away."""

    def __init__(self) -> None:
        self.issued = 0
        self.is_away = False

    async def __call__(self, life_seconds: int) -> str:
        await asyncio.sleep(0)
        if self.is_away:
            raise Unavailable("the JupyterHub cannot be reached")
        self.issued += 1
        return f"token {self.issued}"


async def test_token_is_issued_once_for_all_requests() -> None:
    source = TokenSource()
    current = renewed_token(source, 3600)
    assert await asyncio.gather(*(current() for _ in range(5))) == ["token 1"] * 5


async def test_token_is_kept_while_the_hub_that_is_to_renew_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_app, "_RENEW_AGAIN_SECONDS", 0)
    source = TokenSource()
    current = renewed_token(source, 0)  # so that each call renews it
    source.is_away = True
    with pytest.raises(Unavailable):
        await current()
    source.is_away = False
    assert await current() == "token 1"
    source.is_away = True
    assert await current() == "token 1"
    source.is_away = False
    assert await current() == "token 2"
