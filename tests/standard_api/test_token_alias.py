"""Gateway with `auth_token_is_scoped`, for clients that choose the token of the gateway that they start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.support import canaries
from tests.support.bearers import UNPROTECTED
from tests.support.hosts import Host, running_host

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
