"""Requests of Jupyter Server's own tests, transposed. `python -m tests.full jupyter-suite` runs those tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
import requests

from tests.jupyter_suite.exceptions import EXCEPTIONS
from tests.support.bearers import Bearer, mint
from tests.support.hosts import Host
from tests.support.kernel_sockets import connect_again


@pytest.fixture(params=["server", "gateway"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    return hosts[request.param]  # type: ignore[no-any-return]


@pytest.fixture
def bearer(host: Host) -> Iterator[Bearer]:
    bearer = mint(host)
    yield bearer
    for kernel in call(bearer, "GET", "kernels").json():
        call(bearer, "DELETE", f"kernels/{kernel['id']}")


def call(bearer: Bearer, method: str, path: str, body: Any = None) -> requests.Response:
    """Send a request as the tests do: a body has no media type of JSON."""
    headers = {"Authorization": f"token {bearer.token}", "Content-Type": "application/x-www-form-urlencoded"}
    url, data = f"{bearer.host.info.url}exec/jupyter/api/{path}", None if body is None else json.dumps(body)
    return requests.request(method, url, data=data, headers=headers, timeout=60)


async def test_kernel_requests_of_stock_suite_get_stock_answers(bearer: Bearer) -> None:
    assert call(bearer, "GET", "kernels").json() == []
    made = call(bearer, "POST", "kernels", {"name": "python3"})
    kernel = made.json()
    assert made.status_code == 201
    assert made.headers["Location"] == f"{bearer.host.info.base_url}exec/jupyter/api/kernels/{kernel['id']}"
    second = call(bearer, "POST", "kernels", {"name": "python3", "path": "/foo"}).json()
    listed = call(bearer, "GET", "kernels").json()
    assert [(each["id"], each["name"]) for each in listed] == [(one["id"], "python3") for one in (kernel, second)]
    assert call(bearer, "POST", f"kernels/{second['id']}/interrupt").status_code == 204
    restarted = call(bearer, "POST", f"kernels/{second['id']}/restart").json()
    assert (restarted["id"], restarted["name"]) == (second["id"], second["name"])
    assert call(bearer, "GET", f"kernels/{kernel['id']}").json()["id"] == kernel["id"]
    for method in ("GET", "DELETE"):
        assert call(bearer, method, "kernels/111-111-111-111-111").status_code == 404
    assert call(bearer, "DELETE", f"kernels/{kernel['id']}").status_code == 204
    assert [each["id"] for each in call(bearer, "GET", "kernels").json()] == [second["id"]]


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


async def test_kernel_counts_its_connections(http: aiohttp.ClientSession, host: Host, bearer: Bearer) -> None:
    kernel = call(bearer, "POST", "kernels").json()
    assert kernel["connections"] == 0
    socket = await connect_again(http, host, bearer, kernel)
    assert call(bearer, "GET", f"kernels/{kernel['id']}").json()["connections"] == 1
    await socket.socket.close()
    for _ in range(100):  # the server sees the end a moment later
        if call(bearer, "GET", f"kernels/{kernel['id']}").json()["connections"] == 0:
            return
    raise AssertionError("the connection still counts")


def test_session_requests_of_stock_suite_get_stock_answers(bearer: Bearer) -> None:
    body = {"path": "foo/abc123", "type": "console", "kernel": {"name": None, "id": None}}
    made = call(bearer, "POST", "sessions", body)
    session = made.json()
    assert (made.status_code, session["path"], session["type"]) == (201, "foo/abc123", "console")
    assert made.headers["Location"] == f"{bearer.host.info.base_url}exec/jupyter/api/sessions/{session['id']}"
    (listed,) = call(bearer, "GET", "sessions").json()
    found = call(bearer, "GET", f"sessions/{session['id']}").json()
    for other in (listed, found):
        assert {**other, "kernel": other["kernel"]["id"]} == {**session, "kernel": session["kernel"]["id"]}
    kernel = call(bearer, "POST", "kernels").json()
    attached = call(bearer, "POST", "sessions", {"path": "b", "type": "file", "kernel": {"id": kernel["id"]}})
    assert attached.json()["kernel"]["id"] == kernel["id"] and len(call(bearer, "GET", "kernels").json()) == 2
    deprecated = {"notebook": {"path": "foo/nb1.ipynb"}, "kernel": {"name": "python", "id": "foo"}}
    notebook = call(bearer, "POST", "sessions", deprecated).json()
    assert (notebook["path"], notebook["notebook"]["path"]) == ("foo/nb1.ipynb", "foo/nb1.ipynb")
    assert notebook["type"] == "notebook"
    assert call(bearer, "DELETE", f"sessions/{session['id']}").status_code == 204
    assert call(bearer, "GET", f"sessions/{session['id']}").status_code == 404


def test_kernelspec_name_is_case_insensitive(bearer: Bearer) -> None:
    specs = call(bearer, "GET", "kernelspecs").json()
    assert specs["default"] == "python3" and specs["kernelspecs"]["python3"]["spec"]["display_name"]
    assert call(bearer, "GET", "kernelspecs/Python3").json()["name"] == "python3"
    assert call(bearer, "GET", "kernelspecs/nonexistant").status_code == 404


def test_documented_exceptions_from_stock_suite_hold(bearer: Bearer) -> None:
    assert all(EXCEPTIONS.values())
    chosen = "11111111-2222-3333-4444-555555555555"
    kernel = call(bearer, "POST", "kernels", {"name": "python3", "kernel_id": chosen}).json()
    assert kernel["id"] != chosen
    assert call(bearer, "PATCH", f"sessions/{kernel['id']}", {"kernel": {"name": "python3"}}).status_code == 409
    assert call(bearer, "GET", f"resolvePath?kernel={kernel['id']}&path=hello.py").status_code == 404
    logo = f"{bearer.host.info.url}exec/jupyter/kernelspecs/python3/logo-64x64.png"
    assert requests.get(logo, headers={"Authorization": f"token {bearer.token}"}, timeout=30).status_code == 404
