"""Scoped tokens where the server itself knows people by a password, or lets everybody in."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import requests
from jupyter_server.auth.security import passwd

from tests.support.bearers import UNPROTECTED, Bearer
from tests.support.hosts import Host, running_host

PASSWORD = "a-password-of-tests"


@pytest.fixture(scope="module")
def with_password(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("password")
    hashed = passwd(PASSWORD)
    option = f"--PasswordIdentityProvider.hashed_password={hashed}"
    with running_host("server", home, UNPROTECTED, option, "--IdentityProvider.token=", token="") as host:
        yield host


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_host(
        "server", tmp_path_factory.mktemp("open"), UNPROTECTED, "--IdentityProvider.token=", token=""
    ) as host:
        yield host


def logged_in(host: Host) -> requests.Session:
    browser = requests.Session()
    browser.get(f"{host.info.url}login", timeout=30)
    form = {"password": PASSWORD, "_xsrf": str(browser.cookies["_xsrf"])}
    browser.post(f"{host.info.url}login", data=form, timeout=30).raise_for_status()
    browser.headers["X-XSRFToken"] = str(browser.cookies["_xsrf"])
    return browser


def made_by(host: Host, owner: requests.Session) -> Bearer:
    body = {"name": "t", "scopes": ["sessions:create", "sessions:read", "executions:create"]}
    made = owner.post(f"{host.info.url}exec/v1/tokens", json=body, timeout=30)
    assert made.status_code == 201, made.text
    return Bearer(host, made.json()["token"], made.json()["id"])


def test_whoever_logged_in_by_password_creates_tokens_that_work(with_password: Host) -> None:
    agent = made_by(with_password, logged_in(with_password))
    assert agent.run(agent.session(), "6 * 7").json()["state"] == "ok"
    assert agent.call("GET", "/tokens").json()["code"] == "missing_scope"
    wrong = Bearer(with_password, agent.token[:-1] + ("a" if agent.token[-1] != "a" else "b"))
    assert wrong.call("GET", "/").json()["code"] == "unauthenticated"
    nobody = requests.get(f"{with_password.info.url}exec/v1/", timeout=30)
    assert (nobody.status_code, nobody.json()["code"]) == (401, "unauthenticated")


def test_a_token_opens_nothing_of_a_server_with_a_password(with_password: Host) -> None:
    agent = made_by(with_password, logged_in(with_password))
    url = f"{with_password.info.url}api/kernels"
    for options in ({"headers": {"Authorization": f"token {agent.token}"}}, {"params": {"token": agent.token}}):
        assert requests.post(url, json={}, timeout=30, **options).status_code == 403  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["expired", "revoked", "narrow"])
def test_where_everybody_comes_in_a_token_is_still_no_more_than_it_is(open_to_all: Host, kind: str) -> None:
    """Whoever sends a token means to be its bearer, and not everybody."""
    anybody = requests.Session()
    anybody.get(f"{open_to_all.info.url}exec/v1/", timeout=30)
    anybody.headers["X-XSRFToken"] = str(anybody.cookies.get("_xsrf"))
    agent = made_by(open_to_all, anybody)
    if kind == "narrow":
        assert agent.call("GET", "/policies").json()["code"] == "owner_only"
        assert agent.call("GET", "/").json()["caller"]["principal"] == f"token:{agent.id}"
    elif kind == "revoked":
        url = f"{open_to_all.info.url}exec/v1/tokens/{agent.id}"
        assert anybody.delete(url, timeout=30).status_code == 204
        assert agent.call("GET", "/sessions").json()["code"] == "token_revoked"
    else:
        body = {"name": "t", "scopes": ["sessions:read"], "expires_in_seconds": 0.01}
        made = anybody.post(f"{open_to_all.info.url}exec/v1/tokens", json=body, timeout=30).json()
        time.sleep(0.05)
        assert Bearer(open_to_all, made["token"]).call("GET", "/sessions").json()["code"] == "token_expired"
