"""Gateway with `auth_token_is_scoped`, for clients that choose the token of the gateway that they start."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import requests

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.errors import ExecError, StoreUnavailable, TokenExpired, TokenNotFound, TokenRevoked
from jupyter_exec_ext.models import IssuedToken, Token, TokenRequest
from jupyter_exec_ext.standard_api.renewed_token import RenewedToken
from tests.support import canaries
from tests.support.bearers import UNPROTECTED
from tests.support.hosts import Host, running_host
from tests.support.waiting import until, wait_until

CHOSEN = "chosen-by-the-client-4f1d0c2b9a7e"
OPTIONS = ["scoped_standard_api", "allow_token_in_url", "auth_token_is_scoped"]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    options = [UNPROTECTED, *(f"--ExecPersonality.{name}=True" for name in OPTIONS)]
    policy = '--ExecEngine.policies={"default": {"isolation": "none", "max_sessions": 1}}'
    canaries.note(CHOSEN)
    with running_host("gateway", tmp_path_factory.mktemp("alias"), *options, policy, token=CHOSEN) as host:
        yield host
    assert canaries.look_through(host) == []


def call(host: Host, method: str, path: str, token: str = CHOSEN, **options: Any) -> requests.Response:
    headers = {"Authorization": f"token {token}"} if token else {}
    return requests.request(method, f"{host.info.url}{path}", headers=headers, timeout=60, **options)


@pytest.mark.parametrize("base", ["api", "exec/jupyter/api"])
def test_chosen_token_has_rights_of_scoped_token(host: Host, base: str) -> None:
    made = call(host, "POST", f"{base}/kernels?token={CHOSEN}", "")
    assert made.status_code == 201, made.text
    refused = call(host, "POST", f"{base}/kernels")
    assert (refused.status_code, refused.json()["limit"]["name"]) == (429, "max_sessions")
    assert len(call(host, "GET", "exec/v1/sessions").json()["sessions"]) == 1
    assert call(host, "DELETE", f"{base}/kernels/{made.json()['id']}").status_code == 204


def test_chosen_token_lacks_owner_rights(host: Host) -> None:
    refused = call(host, "POST", "exec/v1/tokens", json={"name": "more"})
    assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    assert call(host, "GET", "api/kernelspecs/python3/kernel.js").status_code in (401, 403, 404)
    assert call(host, "GET", "metrics").status_code in (401, 403, 404)


@pytest.mark.parametrize("token", ["", "wrong", CHOSEN[:-1]])
def test_other_tokens_are_refused(host: Host, token: str) -> None:
    for path in ("api/kernels", "exec/jupyter/api/kernels", "exec/v1/sessions"):
        assert call(host, "GET", path, token).status_code in (401, 403), path


def test_chosen_token_in_url_is_accepted_only_by_standard_api(host: Host) -> None:
    assert call(host, "GET", f"exec/v1/sessions?token={CHOSEN}", "").status_code == 401
    assert call(host, "GET", f"api/kernels?token={CHOSEN}", "").status_code == 200


def test_gateway_without_a_token_does_not_start(tmp_path: Any) -> None:
    option = "--ExecPersonality.auth_token_is_scoped=True"
    starting = running_host("gateway", tmp_path, option, token="")
    with pytest.raises(AssertionError, match="set KG_AUTH_TOKEN"), starting:
        pass


# --- the end of the scoped token ---


class Tokens:
    """Service that creates and rotates one kind of token, and fails as a test says."""

    def __init__(self) -> None:
        self.lives: list[tuple[str, float]] = []
        self.failures: list[ExecError] = []
        self.is_known = True

    async def create(self, caller: Any, request: TokenRequest) -> IssuedToken:
        return self._issue("created", request.expires_in_seconds)

    async def rotate(self, caller: Any, token_id: str, overlap: float, seconds: float) -> IssuedToken:
        if self.failures:
            raise self.failures.pop(0)
        return self._issue("rotated", seconds)

    async def get(self, caller: Any, token_id: str) -> None:
        if not self.is_known:
            self.is_known = True
            raise TokenNotFound("there is no such token")

    def _issue(self, how: str, seconds: float | None) -> IssuedToken:
        self.lives.append((how, seconds or 0.0))
        return IssuedToken(Token("id", "token:id", "t", "p", (), "then", "later"), f"secret {len(self.lives)}")


@asynccontextmanager
async def renewed(tokens: Tokens, max_seconds: float) -> AsyncIterator[RenewedToken]:
    token = RenewedToken(cast(Any, tokens), owner(), "t", (), max_seconds)
    token.start()
    yield token
    await token.close()


async def test_scoped_token_is_renewed_before_its_end() -> None:
    tokens, began_at = Tokens(), time.time()
    async with renewed(tokens, 0.4) as token:
        await until(lambda: len(tokens.lives) == 3)
        assert time.time() - began_at >= 0.4  # each after half of a life
        assert tokens.lives == [("created", 0.4), ("rotated", 0.4), ("rotated", 0.4)]
        assert token.text == "secret 3"


async def test_renewal_is_tried_again_and_a_token_that_expired_is_followed_by_another() -> None:
    tokens = Tokens()
    tokens.failures = [StoreUnavailable("the database is locked"), TokenExpired("expired")]
    async with renewed(tokens, 0.2):
        await until(lambda: len(tokens.lives) == 3)
        assert [how for how, _ in tokens.lives] == ["created", "created", "rotated"]


async def test_token_that_a_new_database_does_not_know_is_created_anew_at_once() -> None:
    tokens = Tokens()
    async with renewed(tokens, 100.0) as token:
        await until(lambda: tokens.lives)
        tokens.is_known = False
        await until(lambda: len(tokens.lives) == 2, seconds=30.0)
        assert (tokens.lives[1][0], token.text) == ("created", "secret 2")


async def test_token_that_the_owner_has_revoked_stays_so() -> None:
    tokens = Tokens()
    tokens.failures = [TokenRevoked("revoked"), TokenRevoked("revoked")]
    async with renewed(tokens, 0.2) as token:
        await until(lambda: token._renewing is not None and token._renewing.done())
    assert tokens.lives == [("created", 0.2)]


async def test_token_lives_for_a_day_and_ends_soon_after_the_server() -> None:
    tokens = Tokens()
    async with renewed(tokens, 30 * 86_400.0):
        await until(lambda: tokens.lives)
    assert tokens.lives == [("created", 86_400.0), ("rotated", 120.0)]


def test_kernel_of_chosen_token_outlasts_the_scoped_token(tmp_path: Any) -> None:
    options = [UNPROTECTED, *(f"--ExecPersonality.{name}=True" for name in OPTIONS)]
    life = [f"--ExecEngine.{name}_token_seconds=15" for name in ("default", "max")]
    with running_host("gateway", tmp_path, *options, *life, token=CHOSEN) as host:
        kernel = call(host, "POST", "api/kernels").json()["id"]
        ends_at = time.time() + 16.0
        wait_until(lambda: time.time() > ends_at)
        assert call(host, "GET", f"api/kernels/{kernel}").status_code == 200
