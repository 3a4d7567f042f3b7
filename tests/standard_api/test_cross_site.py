"""Cross-site requests to the standard API: every route and the WebSocket, on both hosts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests

from tests.server.test_cross_site import FOREIGN, cookies_of, refused
from tests.standard_api.test_rest import CELLS, UNKNOWN
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host

CHANNELS = next(path for path, _, _ in CELLS if path.endswith("/channels"))
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


@dataclass
class World:
    """Host on which an agent and the owner have a kernel each."""

    host: Host
    agent: Bearer
    kernels: dict[str, str]

    def send(self, path: str, method: str, token: str | None = None, **options: Any) -> requests.Response:
        """Send a request about the owner's kernel, or about the agent's if it has the agent's token."""
        headers = dict(HANDSHAKE if path == CHANNELS else {})
        if token is not None:
            headers["Authorization"] = f"token {token}"
        headers |= options.pop("headers", {})
        kernel = self.kernels["agent" if token == self.agent.token else "owner"]
        url = f"{self.host.info.url}exec/jupyter/api{path.replace(UNKNOWN, kernel)}"
        return requests.request(method, url, headers=headers, timeout=60, allow_redirects=False, **options)

    def state(self) -> Any:
        sessions = [each.call("GET", "/sessions?ended=true").json()["sessions"] for each in (self.agent, self.owner)]
        return [(one["id"], one["state"], one["kernel_starts"]) for found in sessions for one in found]

    @property
    def owner(self) -> Bearer:
        return owner_of(self.host)


@pytest.fixture(scope="module", params=["server", "gateway"])
def world(request: pytest.FixtureRequest, hosts: Any) -> Iterator[World]:
    host: Host = hosts[request.param]
    agent = mint(host, policy="trusted")
    made = World(host, agent, {"agent": "", "owner": ""})
    for name, token in (("agent", agent.token), ("owner", made.owner.token)):
        made.kernels[name] = made.send("/kernels", "POST", token, json={}).json()["id"]
    yield made
    for token in (agent.token, made.owner.token):
        assert made.send(f"/kernels/{UNKNOWN}", "DELETE", token).status_code == 204


def body_of(method: str) -> dict[str, Any]:
    return {"json": {"path": "stolen"}} if method == "POST" else {}


@pytest.mark.every_place
def test_token_in_header_opens_websocket(world: World) -> None:
    """Control of the tests below: the same requests pass with a token in the header."""
    for token in (world.agent.token, world.owner.token):
        assert world.send(CHANNELS, "GET", token).status_code == 101


@only_in_full
def test_hub_token_opens_websocket(hosts: Any) -> None:
    world = World(hosts["hub"], owner_of(hosts["hub"]), {"agent": ""})
    world.kernels["agent"] = world.send("/kernels", "POST", world.owner.token, json={}).json()["id"]
    assert world.send(CHANNELS, "GET", world.owner.token).status_code == 101
    assert world.send(f"/kernels/{UNKNOWN}", "DELETE", world.owner.token).status_code == 204


@pytest.mark.every_place
@pytest.mark.parametrize("origin", [None, "own", *FOREIGN])
def test_cookie_without_token_changes_nothing_and_opens_no_websocket(world: World, origin: str | None) -> None:
    # A gateway has no login, and its log has the token that `cookies_of` puts into a URL.
    before, cookies = world.state(), {} if world.host.is_gateway else cookies_of(world.host)
    own = world.host.info.url.rstrip("/")
    headers = {} if origin is None else {"Origin": own if origin == "own" else origin}
    for path, method, _ in CELLS:
        answer = world.send(path, method, cookies=cookies, headers=headers, **body_of(method))
        if method != "GET" or path == CHANNELS:
            refused(answer, "unauthenticated", "xsrf_check_failed", "origin_not_allowed")
        elif origin not in (None, "own"):
            assert "Access-Control-Allow-Origin" not in answer.headers, path
    assert world.state() == before


@pytest.mark.every_place
@pytest.mark.parametrize("origin", FOREIGN)
def test_token_from_another_site_is_refused(world: World, origin: str) -> None:
    before = world.state()
    for path, method, _ in CELLS:
        for token in [world.agent.token, *([world.owner.token] if world.host.is_gateway else [])]:
            refused(
                world.send(path, method, token, headers={"Origin": origin}, **body_of(method)), "origin_not_allowed"
            )
    assert world.state() == before


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example:80"])
def test_foreign_host_name_is_refused(world: World, name: str) -> None:
    before = world.state()
    for path, method, _ in CELLS:
        for token in (world.agent.token, world.owner.token):
            for headers in ({"Host": name}, {"Host": name, "Origin": f"http://{name}"}):
                answer = world.send(path, method, token, headers=headers, **body_of(method))
                refused(answer, "host_not_allowed", "origin_not_allowed")
    assert world.state() == before


def test_plain_text_body_is_accepted_only_with_token_in_header(world: World) -> None:
    """A form of another site can send this body, but it cannot set the header."""
    plain = {"Content-Type": "text/plain"}
    if not world.host.is_gateway:  # which has no login
        before, browser, url = world.state(), requests.Session(), world.host.info.url
        browser.get(f"{url}api/status?token={world.host.info.token}", timeout=30)
        browser.get(f"{url}exec/v1/", timeout=30)
        xsrf = {"X-XSRFToken": str(browser.cookies["_xsrf"])}
        for path in ("kernels", "sessions"):
            sent = browser.post(f"{url}exec/jupyter/api/{path}", data=b"{}", headers={**plain, **xsrf}, timeout=60)
            refused(sent, "unsupported_media_type")
        assert world.state() == before
    for token in (world.agent.token, world.owner.token):
        made = world.send("/kernels", "POST", token, data=b"{}", headers=plain)
        assert made.status_code == 201, made.text
        assert world.send(f"/kernels/{made.json()['id']}", "DELETE", token).status_code == 204


@pytest.mark.parametrize("origin", FOREIGN)
def test_preflight_of_other_site_gets_no_allowed_origin(world: World, origin: str) -> None:
    for path, method, _ in CELLS:
        answer = world.send(path, "OPTIONS", headers={"Origin": origin, "Access-Control-Request-Method": method})
        assert "Access-Control-Allow-Origin" not in answer.headers, path
