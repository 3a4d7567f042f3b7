"""A scoped token can do no more than whoever created it may do at that moment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support.bearers import UNPROTECTED, Bearer
from tests.support.hosts import Host, running_host

DEPLOYMENT = """
from pathlib import Path
from jupyter_server.auth import Authorizer, IdentityProvider, User

HERE = Path(__file__).parent

class ByHeader(IdentityProvider):
    async def get_user(self, handler):
        name = handler.request.headers.get("X-User")
        return User(username=name, name=name.title()) if name else None

    def is_token_authenticated(self, handler):
        return "X-User" in handler.request.headers or getattr(handler, "_token_authenticated", False)

class ByFile(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        with (HERE / "asked").open("a") as asked:
            print(user.username, user.name, action, resource, file=asked)
        denied = (HERE / "denied").read_text().split()
        if "broken" in denied:
            raise RuntimeError("the directory does not answer")
        return user.username not in denied and f"{user.username}:{action}" not in denied
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Path]]:
    home = tmp_path_factory.mktemp("rights")
    (home / "deployment.py").write_text(DEPLOYMENT)
    (home / "denied").write_text("")
    options = [
        UNPROTECTED,
        "--ServerApp.identity_provider_class=deployment.ByHeader",
        "--ServerApp.authorizer_class=deployment.ByFile",
    ]
    path = os.pathsep.join([str(home), os.environ.get("PYTHONPATH", "")])
    with running_host("server", home, *options, env={"PYTHONPATH": path}) as host:
        yield host, home


def as_user(host: Host, user: str, method: str, path: str, **options: object) -> requests.Response:
    url = f"{host.info.url}exec/v1{path}"
    return requests.request(method, url, headers={"X-User": user}, timeout=60, **options)  # type: ignore[arg-type]


@pytest.fixture
def ada(deployment: tuple[Host, Path]) -> Iterator[Bearer]:
    """A token that Ada has created."""
    host, home = deployment
    scopes = ["sessions:create", "sessions:read", "sessions:delete", "executions:create", "files:read"]
    made = as_user(host, "ada", "POST", "/tokens", json={"name": "ada's", "scopes": scopes})
    assert made.status_code == 201, made.text
    yield Bearer(host, made.json()["token"], made.json()["id"])
    (home / "denied").write_text("")


def test_the_authorizer_is_asked_about_the_creator(deployment: tuple[Host, Path], ada: Bearer) -> None:
    (deployment[1] / "asked").write_text("")
    assert ada.call("GET", "/sessions").status_code == 200
    assert (deployment[1] / "asked").read_text() == "ada Ada read kernels\n"


def test_what_the_creator_may_no_longer_do_the_token_may_not(deployment: tuple[Host, Path], ada: Bearer) -> None:
    session_id = ada.session()
    assert ada.run(session_id, "1").json()["state"] == "ok"
    (deployment[1] / "denied").write_text("ada:execute")
    refused = ada.run(session_id, "1")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert ada.call("GET", "/sessions").status_code == 200
    (deployment[1] / "denied").write_text("ada")
    assert ada.call("GET", "/sessions").status_code == 403
    assert as_user(deployment[0], "bob", "GET", "/sessions").status_code == 200
    (deployment[1] / "denied").write_text("bob")
    assert ada.call("DELETE", f"/sessions/{session_id}").status_code == 204


def test_a_rotated_token_does_no_more_than_whoever_rotated_it_may(deployment: tuple[Host, Path], ada: Bearer) -> None:
    host, home = deployment
    (home / "denied").write_text("bob:execute")
    session_id = ada.session()
    rotated = as_user(host, "bob", "POST", f"/tokens/{ada.id}/rotate", json={"overlap_seconds": 60})
    assert rotated.status_code == 200, rotated.text
    for bearer in (Bearer(host, rotated.json()["token"]), ada):
        refused = bearer.run(session_id, "1")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert bearer.call("GET", "/sessions").status_code == 200


def test_scopes_are_looked_at_before_rights(deployment: tuple[Host, Path], ada: Bearer) -> None:
    (deployment[1] / "asked").write_text("")
    assert ada.call("GET", "/executions/exe_1").json()["code"] == "missing_scope"
    assert (deployment[1] / "asked").read_text() == ""


def test_an_authorizer_that_fails_lets_nobody_in(deployment: tuple[Host, Path], ada: Bearer) -> None:
    (deployment[1] / "denied").write_text("broken")
    for answer in (ada.call("GET", "/sessions"), as_user(deployment[0], "ada", "GET", "/sessions")):
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert "directory" not in answer.text
    assert "the directory does not answer" in deployment[0].log_text()
