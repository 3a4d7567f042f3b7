"""Standard API below a base URL, and at a JupyterHub user's server behind the Hub's proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import requests

from tests.server.test_hub import logged_in
from tests.standard_api.test_cross_site import HANDSHAKE
from tests.support.bearers import Bearer, mint
from tests.support.full import only_in_full
from tests.support.hosts import Host
from tests.support.hubs import USER, HubHost
from tests.support.kernel_sockets import V1, reply_of, start, texts_of


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


async def status_of(http: aiohttp.ClientSession, host: Host, method: str, path: str, token: str | None) -> int:
    """Return the status of an answer below ``exec/jupyter/api``, or of the handshake of a WebSocket."""
    headers = {} if token is None else {"Authorization": f"token {token}"}
    url = f"{host.info.url}exec/jupyter/api{path}"
    async with http.request(method, url, headers=headers, allow_redirects=False) as answer:
        return answer.status


async def check_kernel(http: aiohttp.ClientSession, host: Host, bearer: Bearer) -> str:
    """Start a kernel, use it, end it; return its path."""
    kernel, socket = await start(http, host, bearer, (V1,))
    path = f"/kernels/{kernel['id']}"
    assert socket.socket.protocol == V1
    seen = await socket.run("print('here')\n6 * 7")
    assert texts_of(seen) == "here\n" and reply_of(seen)["status"] == "ok"
    assert [message.content["data"] for message in seen if message.msg_type == "execute_result"] == [
        {"text/plain": "42"}
    ]
    assert await status_of(http, host, "POST", f"{path}/restart", bearer.token) == 200
    assert reply_of(await socket.run("print('again')"))["status"] == "ok"
    assert await status_of(http, host, "POST", f"{path}/interrupt", bearer.token) == 204
    assert await status_of(http, host, "GET", f"{path}/channels", None) == 401
    await socket.socket.close()
    assert await status_of(http, host, "DELETE", path, bearer.token) == 204
    assert await status_of(http, host, "GET", path, bearer.token) == 404
    return path


async def test_kernel_below_base_url_runs_code(http: aiohttp.ClientSession, hosts: Any) -> None:
    host: Host = hosts["server-base-url"]
    bearer = mint(host, policy="trusted")
    headers = {"Authorization": f"token {bearer.token}"}
    async with http.post(f"{host.info.url}exec/jupyter/api/kernels", headers=headers) as made:
        kernel = await made.json()
        assert made.headers["Location"] == f"{host.info.base_url}exec/jupyter/api/kernels/{kernel['id']}"
    assert await status_of(http, host, "DELETE", f"/kernels/{kernel['id']}", bearer.token) == 204
    await check_kernel(http, host, bearer)


@only_in_full
async def test_kernel_at_hub_server_serves_scoped_and_hub_tokens(http: aiohttp.ClientSession, hosts: Any) -> None:
    hub: HubHost = hosts["hub"]
    hub.api("POST", "/users/eve")
    stranger = hub.token_of("eve")
    scoped = mint(hub, policy="trusted")
    for bearer in (scoped, Bearer(hub, str(hub.info.token))):
        path = await check_kernel(http, hub, bearer)
    kernel, socket = await start(http, hub, scoped)
    await socket.socket.close()
    live = f"/kernels/{kernel['id']}"
    for method, wanted in (("GET", "/kernels"), ("POST", "/kernels"), ("GET", live), ("GET", f"{live}/channels")):
        assert await status_of(http, hub, method, wanted, stranger) == 403
        assert await status_of(http, hub, method, wanted, None) == 401
        assert await status_of(http, hub, method, f"{wanted}?token={scoped.token}", None) == 401
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await http.ws_connect(
            f"{hub.info.url}exec/jupyter/api{live}/channels", headers={"Authorization": f"token {stranger}"}
        )
    assert refused.value.status == 403
    assert await status_of(http, hub, "DELETE", live, scoped.token) == 204
    assert await status_of(http, hub, "GET", path, scoped.token) == 404
    assert str(scoped.token) not in hub.log_text()


@only_in_full
def test_hub_login_cookie_opens_no_websocket_and_hub_token_does(hosts: Any) -> None:
    hub: HubHost = hosts["hub"]
    browser, authorization = logged_in(hub, USER), {"Authorization": f"token {hub.info.token}"}
    kernels = f"{hub.info.url}exec/jupyter/api/kernels"
    kernel = requests.post(kernels, headers=authorization, timeout=60).json()["id"]
    channels = f"{kernels}/{kernel}/channels"
    assert kernel in [each["id"] for each in browser.get(kernels, timeout=60).json()]  # the cookie is valid
    (xsrf,) = {cookie.value for cookie in browser.cookies if cookie.name == "_xsrf" and cookie.path != "/hub/"}
    for headers in ({}, {"Origin": hub.info.url.partition("/user/")[0]}, {"X-XSRFToken": str(xsrf)}):
        refused = browser.get(channels, headers={**HANDSHAKE, **headers}, timeout=60)
        assert (refused.status_code, refused.json()["code"]) in ((403, "xsrf_check_failed"), (401, "unauthenticated"))
    assert requests.get(channels, headers={**HANDSHAKE, **authorization}, timeout=60).status_code == 101
    assert requests.delete(f"{kernels}/{kernel}", headers=authorization, timeout=60).status_code == 204
