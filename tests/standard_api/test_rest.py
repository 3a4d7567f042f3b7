"""Standard API over HTTP: access, answers, and places of the token."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import requests

from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.standard_api.routes import STANDARD_ROUTES
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.hosts import Host, running_host

HOSTS = ["server", "gateway"]
UNKNOWN = "01234567-0123-0123-0123-0123456789ab"


def path_of(path: str, kernel_id: str = UNKNOWN) -> str:
    """Return a path of a route."""
    return path.format(kernel_id=kernel_id, name="python3").removesuffix("/")


CELLS = [(path_of(path), method, access) for path, _, methods in STANDARD_ROUTES for method, access in methods.items()]


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    return hosts[request.param]  # type: ignore[no-any-return]


def call(host: Host, method: str, path: str, token: str | None, **options: Any) -> requests.Response:
    headers = {} if token is None else {"Authorization": f"token {token}"}
    url = f"{host.info.url}exec/jupyter/api{path}"
    return requests.request(method, url, headers=headers, timeout=60, allow_redirects=False, **options)


@pytest.fixture
def bearer(host: Host) -> Iterator[Bearer]:
    bearer = mint(host, policy="trusted")
    yield bearer
    for kernel in call(host, "GET", "/kernels", bearer.token).json():
        call(host, "DELETE", f"/kernels/{kernel['id']}", bearer.token)


@pytest.mark.every_place
@pytest.mark.parametrize(("path", "method", "access"), CELLS)
def test_route_requires_token_scope_and_own_kernel(
    host: Host, bearer: Bearer, path: str, method: str, access: Any
) -> None:
    assert call(host, method, path, None).status_code == 401
    assert call(host, method, path, "jex_abcdefgh_secret").status_code in (401, 429)
    if access.scope is not None:
        wrong = mint(host, ALL_SCOPES - set(access.scopes.replace(" or ", " ").split()))
        refused = call(host, method, path, wrong.token)
        assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    answer = call(host, method, path, bearer.token)
    assert answer.status_code == (404 if UNKNOWN in path else 201 if method == "POST" else 200), answer.text
    if UNKNOWN in path:
        other = mint(host, policy="trusted")
        theirs = call(host, "POST", "/kernels", other.token).json()["id"]
        assert call(host, method, path.replace(UNKNOWN, theirs), bearer.token).status_code == 404
        call(host, "DELETE", f"/kernels/{theirs}", other.token)


@pytest.mark.parametrize(
    "path", ["", "/contents", "/terminals", "/kernels/a b", "/kernels/1/channels", "/../v1/sessions"]
)
def test_unknown_path_is_401_without_token_and_404_with_it(host: Host, bearer: Bearer, path: str) -> None:
    url = f"{host.info.url}exec/jupyter/api{path}"
    assert requests.get(url, timeout=30).status_code == 401
    expected = 404 if path else 200
    answer = requests.get(url, headers={"Authorization": f"token {bearer.token}"}, timeout=30)
    assert answer.status_code == expected


def test_kernel_lifecycle_is_that_of_a_session(host: Host, bearer: Bearer) -> None:
    made = call(host, "POST", "/kernels", bearer.token, json={"name": "python3"})
    kernel = made.json()
    assert made.headers["Location"].endswith(f"exec/jupyter/api/kernels/{kernel['id']}")
    assert kernel["execution_state"] == "idle" and kernel["connections"] == 0
    (session,) = bearer.call("GET", "/sessions").json()["sessions"]
    assert session["id"].rpartition("_")[2] == kernel["id"].replace("-", "")[:24]
    assert [each["id"] for each in call(host, "GET", "/kernels", bearer.token).json()] == [kernel["id"]]
    path = f"/kernels/{kernel['id']}"
    assert call(host, "POST", f"{path}/restart", bearer.token).json()["id"] == kernel["id"]
    assert call(host, "POST", f"{path}/interrupt", bearer.token).status_code == 204
    assert call(host, "DELETE", path, bearer.token).status_code == 204
    assert call(host, "GET", path, bearer.token).status_code == 404
    assert bearer.call("GET", "/sessions").json()["sessions"] == []


def test_second_creation_at_same_path_returns_first_session(host: Host, bearer: Bearer) -> None:
    body = {"path": "work/agent.ipynb", "name": "agent", "type": "notebook", "kernel": {"name": "python3"}}
    first, second = (call(host, "POST", "/sessions", bearer.token, json=body).json() for _ in range(2))
    assert first["id"] == second["id"] == first["kernel"]["id"]
    assert (first["path"], first["name"], first["type"]) == ("work/agent.ipynb", "agent", "notebook")
    assert [each["id"] for each in call(host, "GET", "/sessions", bearer.token).json()] == [first["id"]]
    assert bearer.call("GET", "/sessions").json()["sessions"][0]["name"] == "agent.ipynb"
    assert call(host, "DELETE", f"/sessions/{first['id']}", bearer.token).status_code == 204


def test_patch_changes_path_name_and_type_of_session(host: Host, bearer: Bearer) -> None:
    body = {"path": "a/old.ipynb", "name": "old", "type": "notebook", "kernel": {"name": "python3"}}
    made = call(host, "POST", "/sessions", bearer.token, json=body).json()

    def patch(body: dict[str, Any], status: int = 200) -> Any:
        answer = call(host, "PATCH", f"/sessions/{made['id']}", bearer.token, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    assert patch({}) == made | {"kernel": patch({})["kernel"]}
    renamed = patch({"path": "b/new.ipynb", "name": None, "kernel": {"id": made["id"]}})
    assert (renamed["path"], renamed["name"], renamed["type"]) == ("b/new.ipynb", "old", "notebook")
    assert patch({"name": "new", "type": "console"})["path"] == "b/new.ipynb"
    assert patch({"notebook": {"path": "c.ipynb"}})["type"] == "notebook"
    assert call(host, "GET", f"/sessions/{made['id']}", bearer.token).json()["path"] == "c.ipynb"
    (session,) = bearer.call("GET", "/sessions").json()["sessions"]
    assert session["name"] == "c.ipynb"
    assert call(host, "POST", "/sessions", bearer.token, json={"path": "c.ipynb"}).json()["id"] == made["id"]
    for kernel in ({"id": UNKNOWN}, {"name": "python3"}, "text"):
        assert patch({"path": "d", "kernel": kernel}, 409)["code"] == "conflict"
    patch({"path": "x" * 1025}, 400)
    assert call(host, "GET", f"/sessions/{made['id']}", bearer.token).json()["path"] == "c.ipynb"


def test_concurrent_creations_at_same_path_return_one_session(host: Host, bearer: Bearer) -> None:
    body = {"path": "same.ipynb", "kernel": {"name": "python3"}}
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(call, host, "POST", "/sessions", bearer.token, json=body) for _ in range(8)]
        assert len({answer.result().json()["id"] for answer in answers}) == 1
    assert len(call(host, "GET", "/sessions", bearer.token).json()) == 1


@pytest.mark.parametrize("body", ["[]", '"text"', "{", '{"name": 1}', '{"path": []}', '{"path": "%s"}' % ("a" * 2000)])
def test_malformed_body_is_400(host: Host, bearer: Bearer, body: str) -> None:
    url, headers = f"{host.info.url}exec/jupyter/api/kernels", {"Authorization": f"token {bearer.token}"}
    headers["Content-Type"] = "application/json"
    assert requests.post(url, data=body, headers=headers, timeout=30).status_code == 400


def test_creation_beyond_max_sessions_is_429(host: Host) -> None:
    bearer = mint(host, policy="trusted", max_sessions=1)
    kernel = call(host, "POST", "/kernels", bearer.token).json()
    refused = call(host, "POST", "/kernels", bearer.token)
    assert (refused.status_code, refused.json()["limit"]["name"]) == (429, "max_sessions")
    call(host, "DELETE", f"/kernels/{kernel['id']}", bearer.token)


# --- places of the token ---


def test_token_in_url_is_refused_with_reason(host: Host, bearer: Bearer) -> None:
    refused = call(host, "GET", f"/kernels?token={bearer.token}", None)
    assert refused.status_code == 401 and "allow_token_in_url" in refused.json()["message"]


async def test_token_in_sub_protocol_opens_websocket(host: Host, bearer: Bearer) -> None:
    kernel = call(host, "POST", "/kernels", bearer.token).json()
    url = f"{host.info.url}exec/jupyter/api/kernels/{kernel['id']}/channels"
    name = "v1.token.websocket.jupyter.org"
    async with aiohttp.ClientSession() as http:
        async with http.ws_connect(url, protocols=(name, f"{name}.{quote(str(bearer.token), safe='')}")) as socket:
            assert socket.protocol == name
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(url, protocols=(name, f"{name}.wrong"))
        assert refused.value.status == 401
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await http.ws_connect(f"{url}?token={bearer.token}")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("server", ["--ExecExtensionApp.allow_token_in_url=True"]),
        ("gateway", ["--ExecPersonality.allow_token_in_url=True", "--ExecPersonality.scoped_standard_api=True"]),
    ],
)
def test_token_in_url_is_accepted_if_allowed_and_never_logged(tmp_path: Path, name: str, options: list[str]) -> None:
    with running_host(name, tmp_path, *options) as host:
        token = str(mint(host, policy="trusted").token)
        assert "jupyter.token-in-url" in owner_of(host).call("GET", "/").json()["features"]
        bases = [f"{host.info.url}exec/jupyter/"] + ([host.info.url] if name == "gateway" else [])
        for base in bases:
            assert requests.get(f"{base}api/kernels?token={token}", timeout=30).json() == []
            assert requests.get(f"{base}api/kernels", timeout=30).status_code == 401
            assert requests.get(f"{base}api/kernels?token=wrong", timeout=30).status_code in (401, 403)
        for path in ("exec/jupyter/api/nothing", "api/nothing", "api/contents"):  # also those that no handler has
            assert requests.get(f"{host.info.url}{path}?a=1&token={token}", timeout=30).status_code in (401, 403, 404)
        if name == "gateway":
            owners = requests.get(f"{host.info.url}api/kernels", headers=host.info.auth_headers, timeout=30)
            assert owners.ok
        assert "allow_token_in_url" in host.log_text() and token not in host.log_text()


def test_creation_at_path_of_another_callers_session_makes_new_one(host: Host, bearer: Bearer) -> None:
    body = {"path": "work/report.ipynb", "name": "report", "type": "notebook", "kernel": {"name": "python3"}}
    first = call(host, "POST", "/sessions", bearer.token, json=body).json()
    assert call(host, "POST", "/sessions", bearer.token, json=body).json()["id"] == first["id"]
    # The owner can list the session, and must not run code in its kernel by accident of an equal path.
    owners = call(host, "POST", "/sessions", owner_of(host).token, json=body).json()
    assert owners["id"] != first["id"]
    call(host, "DELETE", f"/sessions/{owners['id']}", owner_of(host).token)
