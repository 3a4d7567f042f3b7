"""JupyterHub's tokens under policies, at a real Hub: who may come in where, and what holds for those who do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import websocket

from jupyter_exec_ext.aca.endpoint.aca_handler import ACA_PREFIX
from jupyter_exec_ext.aca.protocol.addresses import DEFAULT_API_VERSION
from jupyter_exec_ext.mcp.mcp_handler import MCP_PREFIX
from jupyter_exec_ext.server.routes import ACA_ROUTES, PREFIX, ROUTES
from jupyter_exec_ext.store.audit_table import AuditReader
from tests.mcp.raw_client import RawClient, text_of
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.change_feeds import Watcher
from tests.support.full import only_in_full
from tests.support.hubs import ADMIN, RUNNER, USER, HubHost, running_hub

pytestmark = pytest.mark.needs("configurable-http-proxy")

MAPPING = {"custom:exec:run": "asking", "custom:exec:big": "small"}
POLICIES = {
    "asking": {"max_sessions": 1, "max_execution_seconds": 5, "approval": {"when": ["shell"], "timeout_seconds": 60}},
    "small": {"max_sessions": 2, "max_streams": 2},
}
OPTIONS = [
    UNPROTECTED,
    f"--ExecEngine.policies={json.dumps(POLICIES)}",
    f"--ExecExtensionApp.hub_policies={json.dumps(MAPPING)}",
]
ACCESS = f"access:servers!user={USER}"
CELLS = [
    # An answer to HEAD has no body; tests/server/test_access.py has those.
    *(
        (PREFIX, route.path, method, access)
        for route in ROUTES
        for method, access in route.methods.items()
        if method != "HEAD"
    ),
    *((ACA_PREFIX, route.path, method, access) for route in ACA_ROUTES for method, access in route.methods.items()),
    *((MCP_PREFIX, "", method, None) for method in ("POST", "GET", "DELETE")),
    *((prefix, "/nope", "GET", None) for prefix in (PREFIX, ACA_PREFIX, MCP_PREFIX)),
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubHost]:
    home = tmp_path_factory.mktemp("hub")
    with running_hub(home, *OPTIONS, f"--ExecStore.path={home / 'store'}") as host:
        yield host


@dataclass
class Kinds:
    """Hub tokens of each kind."""

    own: str
    administrator: str
    mapped: str
    no_scope: str
    access_only: str
    revoked: str


@pytest.fixture(scope="module")
def kinds(hub: HubHost) -> Kinds:
    kinds = Kinds(
        own=hub.token_of(USER, ACCESS),
        administrator=hub.token_of(ADMIN),
        mapped=hub.token_of(RUNNER, ACCESS, "custom:exec:run"),
        no_scope=hub.token_of(RUNNER, "custom:exec:run"),
        access_only=hub.token_of(RUNNER, ACCESS),
        revoked=hub.token_of(RUNNER, ACCESS, "custom:exec:run"),
    )
    hub.revoke_token(RUNNER, kinds.revoked)
    return kinds


def bearer_of(hub: HubHost, *scopes: str, user: str = RUNNER) -> Bearer:
    """Return the bearer of a new Hub token that may access the server."""
    return Bearer(hub, hub.token_of(user, ACCESS, *scopes))


def call(hub: HubHost, token: str, method: str, path: str, **options: Any) -> requests.Response:
    headers = {"Authorization": f"token {token}"}
    url = f"{hub.info.url}{path}"
    return requests.request(method, url, headers=headers, timeout=60, allow_redirects=False, stream=True, **options)


def test_each_kind_of_token_gets_its_due_on_every_route(hub: HubHost, kinds: Kinds) -> None:
    wrong = []
    for prefix, path, method, access in CELLS:
        filled = re.sub(r"\{\w+\}", "ses_unknown", path)
        query = f"?identifier=user-1&api-version={DEFAULT_API_VERSION}" if prefix == ACA_PREFIX else ""
        for kind in ("own", "administrator", "mapped", "no_scope", "access_only", "revoked"):
            with call(hub, getattr(kinds, kind), method, f"{prefix}{filled}{query}", json={}) as answer:
                status, text = answer.status_code, "" if answer.status_code == 200 else answer.text
            expected = {"no_scope": status == 403, "revoked": status == 401, "access_only": status == 403}
            is_owners = access is not None and (access.owner_only or access.scope == "pool:read")
            if kind == "access_only":
                right = status == 403 and all(scope in text for scope in MAPPING)
            elif kind == "no_scope":
                right = status == 403 and "access:servers" in text
            elif kind == "mapped" and is_owners:
                right = status == 403 and ("owner" in text or "pool:read" in text)
            else:
                right = expected.get(kind, status not in (401, 403))
            if not right:
                wrong.append((method, f"{prefix}{path}", kind, status, text[:200]))
    assert wrong == []


@pytest.mark.parametrize("kind", ["mapped", "access_only"])
def test_a_token_under_a_mapping_opens_no_other_page_of_the_server(hub: HubHost, kinds: Kinds, kind: str) -> None:
    """Code that it ran there would have no policy."""
    token = getattr(kinds, kind)
    kernel = call(hub, kinds.own, "POST", "api/kernels", json={}).json()["id"]
    for method, path in (
        ("GET", "api/status"),
        ("GET", "api/contents"),
        ("POST", "api/kernels"),
        ("POST", "api/sessions"),
        ("POST", "api/terminals"),
        ("DELETE", f"api/kernels/{kernel}"),
        ("GET", "lab"),
        ("GET", "files/x"),
    ):
        assert call(hub, token, method, path).status_code == 403, path
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        websocket.create_connection(
            f"{hub.info.ws_url}api/kernels/{kernel}/channels", header={"Authorization": f"token {token}"}
        )
    assert call(hub, kinds.own, "DELETE", f"api/kernels/{kernel}").status_code == 204


def test_the_first_matching_scope_of_the_mapping_counts(hub: HubHost) -> None:
    policies = {
        scopes: bearer_of(hub, *scopes).call("GET", "/").json()["policies"][0]["name"]
        for scopes in [
            ("custom:exec:run",),
            ("custom:exec:big",),
            ("custom:exec:big", "custom:exec:run"),
            (f"custom:exec:big!user={USER}",),
            (f"custom:exec:big!server={USER}/",),
        ]
    }
    assert list(policies.values()) == ["asking", "small", "asking", "small", "small"]
    elsewhere = bearer_of(hub, f"custom:exec:run!user={RUNNER}").call("GET", "/")
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (403, "forbidden")


def test_callers_are_apart_from_each_other_and_bound_by_their_policies(hub: HubHost) -> None:
    one, other, owner = bearer_of(hub, "custom:exec:big"), bearer_of(hub, "custom:exec:big"), owner_of(hub)
    with Watcher(one) as feed:
        session, others = one.session(), other.session()
        done = one.run(session, "print(6 * 7)").json()
        assert done["stdout"] == "42\n"
        for path in (f"/sessions/{others}", f"/sessions/{others}/files"):
            assert one.call("GET", path).json()["code"] == "session_not_found"
        assert other.call("GET", f"/executions/{done['id']}").json()["code"] == "execution_not_found"
        assert [each["id"] for each in one.call("GET", "/sessions").json()["sessions"]] == [session]
        assert {session, others} <= {each["id"] for each in owner.call("GET", "/sessions").json()["sessions"]}
        feed.wait_for("execution", done["id"], "ok")
        assert others.encode() not in feed.raw
        with Watcher(one):  # two streams, and two sessions, are what its policy allows
            too_many = one.call("GET", "/events")
        assert (too_many.status_code, too_many.json()["limit"]["name"]) == (429, "max_streams")
    by_mcp = text_of(RawClient.of(other).tool("execute_code", code="print(3)"))
    assert "3" in by_mcp
    full = other.call("POST", "/sessions", json={})
    assert (full.status_code, full.json()["limit"]["name"]) == (429, "max_sessions")
    aca = call(
        hub,
        one.token,
        "POST",
        f"{ACA_PREFIX}/executions?identifier=user-1&api-version={DEFAULT_API_VERSION}",
        json={"code": "print(5)"},
    )
    assert aca.status_code in (200, 202), aca.text
    asking = bearer_of(hub, "custom:exec:run")
    waiting = asking.call("POST", "/executions", json={"code": "!ls"}, headers={"Prefer": "respond-async"}).json()
    assert waiting["state"] == "awaiting_approval"
    refused = asking.call("POST", f"/approvals/{waiting['id']}", json={"decision": "approve"})
    assert (refused.status_code, refused.json()["code"]) == (403, "owner_only")
    assert owner.call("POST", f"/approvals/{waiting['id']}", json={"decision": "reject"}).status_code == 200
    long = asking.call("POST", "/executions", json={"code": "1", "timeout_seconds": 60})
    assert (long.status_code, long.json()["limit"]["name"]) == (403, "max_execution_seconds")
    with closing(AuditReader(hub.home / "store")) as trail:
        by = {line.record().principal for line in trail.newest(1000) if line.record().subject == done["id"]}
    assert by == {one.call("GET", "/").json()["caller"]["principal"]}
    for bearer in (one, other, asking):
        for each in bearer.call("GET", "/sessions").json()["sessions"]:
            bearer.call("DELETE", f"/sessions/{each['id']}")


def test_a_token_that_it_makes_can_do_no_more_than_its_policy(hub: HubHost) -> None:
    made = mint(bearer_of(hub, "custom:exec:big"), ["sessions:create"], policy="trusted")
    policies = [policy["name"] for policy in made.call("GET", "/").json()["policies"]]
    assert policies == ["small", "trusted"]


def test_the_owner_sees_a_hub_token_and_can_lock_it_out(hub: HubHost) -> None:
    bearer, owner = bearer_of(hub, "custom:exec:run"), owner_of(hub)
    token_id = bearer.call("GET", "/").json()["caller"]["principal"].removeprefix("token:")
    shown = owner.call("GET", f"/tokens/{token_id}").json()
    assert re.fullmatch(rf"Hub token a\d+ of user {RUNNER}", shown["name"])
    assert (shown["policy"], shown["created_by"]) == ("asking", "JupyterHub")
    rotated = owner.call("POST", f"/tokens/{token_id}/rotate")
    assert (rotated.status_code, rotated.json()["code"]) == (400, "invalid_request")
    assert owner.call("DELETE", f"/tokens/{token_id}").status_code == 204
    assert bearer.call("GET", "/").json()["code"] == "token_revoked"


def test_no_hub_token_is_stored_or_logged(hub: HubHost, kinds: Kinds) -> None:
    kept = b"".join(path.read_bytes() for path in (hub.home / "store").rglob("*") if path.is_file())
    for token in (kinds.own, kinds.administrator, kinds.mapped, kinds.access_only, kinds.revoked):
        assert token.encode() not in kept
        assert token not in hub.log_text()


@only_in_full
def test_a_mistake_in_the_mapping_closes_the_gate(tmp_path: Path) -> None:
    with running_hub(tmp_path, "--ExecExtensionApp.hub_policies={'custom:exec:run': 'nope'}") as hub:
        answers = {user: bearer_of(hub, user=user).call("GET", "/sessions") for user in (USER, RUNNER)}
    assert [(each.status_code, each.json()["code"]) for each in answers.values()] == [(503, "policies_invalid")] * 2
    assert "hub_policies" in answers[USER].json()["message"]
    assert "hub_policies" not in answers[RUNNER].json()["message"]
