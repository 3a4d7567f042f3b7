"""Who comes in at a JupyterHub user's server, where the Hub says who is who and a proxy stands in between."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.server.routes import ROUTES
from tests.support.bearers import mint
from tests.support.hubs import ADMIN, USER, HubHost, running_hub

# An answer to HEAD has no body; tests/server/test_access.py has those.
CELLS = [
    (re.sub(r"\{\w+\}", "ses_unknown", route.path), method)
    for route in ROUTES
    for method in route.methods
    if method != "HEAD"
]


@pytest.fixture(scope="module")
def hub(hosts: Any) -> HubHost:
    started: HubHost = hosts["hub"]
    return started


@pytest.fixture(scope="module")
def stranger(hub: HubHost) -> str:
    """The token of another user."""
    hub.api("POST", "/users/bob")
    return hub.token_of("bob")


@pytest.fixture(scope="module")
def powerless(hub: HubHost) -> str:
    """A token of the server's user that is for something else."""
    return hub.token_of(USER, f"read:users!user={USER}")


def call(hub: HubHost, method: str, path: str, token: str | None = None, **options: Any) -> requests.Response:
    headers = {"Authorization": f"token {token}"} if token is not None else {}
    headers.update(options.pop("headers", {}))
    url = f"{hub.info.url}exec/v1{path}"
    return requests.request(method, url, headers=headers, timeout=60, allow_redirects=False, **options)


@pytest.mark.parametrize(("path", "method"), CELLS)
@pytest.mark.parametrize("who", ["stranger", "powerless"])
def test_a_user_without_access_to_the_server_is_refused(
    hub: HubHost, request: pytest.FixtureRequest, who: str, path: str, method: str
) -> None:
    answer = call(hub, method, path, request.getfixturevalue(who))
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert "access:servers" in answer.json()["message"]
    assert "Set-Cookie" not in answer.headers


def test_a_token_that_is_good_for_all_its_user_may_do_comes_in(hub: HubHost) -> None:
    answer = call(hub, "GET", "/", hub.token_of(USER))
    assert (answer.status_code, answer.json()["caller"]["display_name"]) == (200, USER)


def test_a_user_with_whom_the_server_is_shared_comes_in(hub: HubHost) -> None:
    hub.api("POST", "/users/carol")
    hub.api("POST", f"/shares/{USER}/", user="carol", scopes=[f"access:servers!server={USER}/"])
    answer = call(hub, "GET", "/", hub.token_of("carol"))
    assert (answer.status_code, answer.json()["caller"]["display_name"]) == (200, "carol")


def test_a_token_in_the_url_opens_nothing_and_is_not_logged(hub: HubHost) -> None:
    assert call(hub, "GET", f"/?token={hub.info.token}").status_code == 401
    assert str(hub.info.token) not in hub.log_text()


def test_mcp_client_without_a_token_is_led_to_the_hubs_oauth(hub: HubHost) -> None:
    endpoint = f"{hub.info.url}exec/mcp"
    answer = requests.post(endpoint, json={}, timeout=60, allow_redirects=False)
    assert answer.status_code == 401
    address = answer.headers["WWW-Authenticate"].removeprefix('Bearer resource_metadata="').removesuffix('"')
    assert address == f"{endpoint}/.well-known/oauth-protected-resource"
    found = requests.get(address, timeout=60, allow_redirects=False)
    assert (found.status_code, found.json()["resource"]) == (200, endpoint)
    assert found.json()["authorization_servers"] == [hub.hub_url]
    page = requests.get(found.json()["resource_documentation"], timeout=60, allow_redirects=False)
    assert (page.status_code, "jupyter exec token create" in page.text) == (200, True)


def test_a_foreign_host_name_is_the_proxys_matter_and_no_way_in(hub: HubHost) -> None:
    """JupyterHub switches the Host check of its users' servers off."""
    foreign = {"Host": "evil.example"}
    assert call(hub, "GET", "/", hub.info.token, headers=foreign).status_code == 200
    assert call(hub, "GET", "/", headers=foreign).status_code == 401


def test_a_login_cookie_needs_the_xsrf_token_and_the_own_origin(hub: HubHost) -> None:
    browser = logged_in(hub, USER)
    url = f"{hub.info.url}exec/v1/"
    known = browser.get(url, timeout=30)
    assert (known.status_code, known.json()["caller"]["display_name"]) == (200, USER)
    # The Hub's own rule: without it the cookie does not count, and nobody is known.
    assert browser.post(f"{url}sessions", timeout=30).status_code == 401
    values = [cookie.value for cookie in browser.cookies if cookie.name == "_xsrf" and cookie.path == hub.info.base_url]
    xsrf = {"X-XSRFToken": str(values[0])}
    foreign = browser.post(f"{url}sessions", headers={**xsrf, "Origin": "https://evil.example"}, timeout=30)
    assert (foreign.status_code, foreign.json()["code"]) == (403, "origin_not_allowed")
    created = browser.post(f"{url}sessions", headers=xsrf, timeout=60)
    assert created.status_code == 201
    assert browser.delete(f"{url}sessions/{created.json()['id']}", headers=xsrf, timeout=30).status_code == 204


def test_a_user_who_logged_in_and_has_no_access_is_refused(hub: HubHost) -> None:
    """The Hub gives such a browser no token for this server."""
    assert logged_in(hub, "dave").get(f"{hub.info.url}exec/v1/", timeout=30).status_code == 401


def logged_in(hub: HubHost, user: str) -> requests.Session:
    """Return a browser in which a user is logged in at the Hub and has opened the server."""
    browser = requests.Session()
    browser.get(f"{hub.hub_url}login", timeout=30)
    form = {"username": user, "password": "any", "_xsrf": str(browser.cookies.get("_xsrf", path="/hub/"))}
    browser.post(f"{hub.hub_url}login", data=form, timeout=30, allow_redirects=False).raise_for_status()
    browser.get(f"{hub.info.url}lab", timeout=30)
    return browser


def test_the_servers_own_token_is_not_in_a_kernels_environment(hub: HubHost) -> None:
    """It would open this API."""
    own = psutil.Process(hub.pid).environ()["JUPYTERHUB_API_TOKEN"]
    assert call(hub, "GET", "/", own).status_code == 200
    with ExecClient(hub.info) as client, client.session() as session:
        result = session.run("import os; print(sorted(os.environ.items()))")
    assert own not in result.stdout
    assert "PATH" in result.stdout


def test_a_strangers_body_takes_no_memory_behind_the_proxy(hub: HubHost) -> None:
    server = psutil.Process(hub.pid)
    before = server.memory_info().rss
    try:
        answer = call(hub, "POST", "/sessions", data=(b" " * 2**20 for _ in range(100)))
        assert answer.status_code in (401, 503)  # the proxy's word for a server that hung up
    except requests.ConnectionError:
        pass  # cut off while it was still sending
    assert server.memory_info().rss - before < 5 * 2**20


# --- scoped tokens ---


def test_only_the_servers_own_user_creates_and_rotates_tokens(hub: HubHost) -> None:
    """Whether somebody with whom the server is shared still may use it, nobody could be asked later."""
    hub.api("POST", "/users/erin")
    hub.api("POST", f"/shares/{USER}/", user="erin", scopes=[f"access:servers!server={USER}/"])
    request = {"name": "x", "scopes": ["sessions:read"]}
    refused = call(hub, "POST", "/tokens", hub.token_of("erin"), json=request)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "server's own user" in refused.json()["message"]
    created = call(hub, "POST", "/tokens", hub.info.token, json=request)
    assert created.status_code == 201
    rotated = call(hub, "POST", f"/tokens/{created.json()['id']}/rotate", hub.token_of("erin"))
    assert (rotated.status_code, rotated.json()["code"]) == (403, "forbidden")
    assert "token" not in rotated.json()


def test_an_administrator_creates_tokens_in_the_users_name(hub: HubHost) -> None:
    created = call(hub, "POST", "/tokens", hub.token_of(ADMIN), json={"name": "x", "scopes": ["sessions:read"]})
    assert (created.status_code, created.json()["created_by"]) == (201, ADMIN)
    assert call(hub, "GET", "/sessions", created.json()["token"]).status_code == 200


def test_a_scoped_token_never_reaches_the_hub(hub: HubHost) -> None:
    """The Hub's log names every request that a user's server sends it."""
    bearer = mint(hub, ["sessions:read"])
    before = hub.log_text().count("/hub/api/")
    for _ in range(5):
        assert bearer.call("GET", "/sessions").status_code == 200
    assert hub.log_text().count("/hub/api/") == before


AUTHORIZER = """
from jupyterhub.singleuser.extension import JupyterHubAuthorizer

class Watched(JupyterHubAuthorizer):
    def is_authorized(self, handler, user, action, resource):
        handler.log.warning("asked about %s", user.hub_user["name"])
        return super().is_authorized(handler, user, action, resource)
"""


def test_the_hubs_authorizer_sees_the_user_as_the_hub_describes_it_now(tmp_path: Path) -> None:
    (tmp_path / "watched.py").write_text(AUTHORIZER)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    option = "--ServerApp.authorizer_class=watched.Watched"
    with running_hub(tmp_path, option, env={"PYTHONPATH": path}) as watched:
        bearer = mint(watched, ["sessions:read"])
        asked = watched.log_text().count(f"asked about {USER}")
        assert bearer.call("GET", "/sessions").status_code == 200
        assert watched.log_text().count(f"asked about {USER}") > asked
        assert bearer.call("POST", "/sessions").json()["code"] == "missing_scope"
