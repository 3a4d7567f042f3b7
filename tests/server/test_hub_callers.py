"""The meaning of JupyterHub's answer about a token for a server, with JupyterHub's own check of scopes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_exec_ext.auth.built_in_policies import BUILT_IN
from jupyter_exec_ext.server.hub_callers import HubCallers, Standing, find_mapping_problem

auth = pytest.importorskip("jupyterhub.services.auth")

OWNER, NO_POLICY = Standing(True, None), Standing(False, "")
MAPPING = {"custom:exec:run": "restricted", "custom:exec:long": "default"}
ACCESS = "access:servers!user=ada"


@pytest.fixture
def hub_auth(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    monkeypatch.setenv("JUPYTERHUB_SERVER_NAME", "w2")
    yield auth.HubOAuth(access_scopes={"access:servers!server=ada/w2"}, cookie_host_prefix_enabled=False)
    auth.HubOAuth.clear_instance()


def callers(hub_auth: Any, mapping: dict[str, str]) -> HubCallers:
    records: Any = SimpleNamespace(ask=lambda hub: None)
    provider = SimpleNamespace(hub_auth=hub_auth, get_user=None)
    return HubCallers(provider, records, mapping, stale_seconds=300, log=logging.getLogger("test"))


def user(name: str, *scopes: str, kind: str = "user", admin: bool = False) -> dict[str, Any]:
    return {"name": name, "kind": kind, "admin": admin, "scopes": list(scopes)}


@pytest.mark.parametrize(
    ("who", "standing"),
    [
        (user("ada", ACCESS), OWNER),
        (user("ada", ACCESS, "custom:exec:run"), OWNER),
        (user("root", "access:servers", admin=True), OWNER),
        (user("bob", ACCESS, "custom:exec:run"), Standing(False, "restricted")),
        (user("bob", ACCESS, "custom:exec:long", "custom:exec:run"), Standing(False, "restricted")),
        (user("bob", ACCESS, "custom:exec:long!user=ada"), Standing(False, "default")),
        (user("bob", ACCESS, "custom:exec:long!server=ada/w2"), Standing(False, "default")),
        (user("bob", ACCESS, "custom:exec:long!server=ada/w3"), NO_POLICY),
        (user("bob", ACCESS, "custom:exec:long!user=bob"), NO_POLICY),
        (user("bob", ACCESS), NO_POLICY),
        (user("bob", "access:servers!server=ada/", "custom:exec:run"), None),
        (user("bob", "custom:exec:run"), None),
        (user("ada"), None),
        (user("ada", ACCESS, "custom:exec:run", kind="service"), Standing(False, "restricted")),
        (user("root", "access:servers", kind="service", admin=True), NO_POLICY),
    ],
)
def test_a_token_has_the_standing_of_its_holder_and_scopes(
    hub_auth: Any, who: dict[str, Any], standing: Standing | None
) -> None:
    assert callers(hub_auth, MAPPING).standing_of(who) == standing


def test_without_a_mapping_everyone_with_access_is_an_owner(hub_auth: Any) -> None:
    standings = [callers(hub_auth, {}).standing_of(user(name, ACCESS)) for name in ("ada", "bob")]
    assert standings == [OWNER, Standing(False, None)]
    assert callers(hub_auth, {}).standing_of(user("bob")) is None


@pytest.mark.parametrize(("configured", "seconds"), [({}, 5), ({"cache_max_age": 60}, 60)])
def test_the_hubs_answers_are_cached_for_five_seconds_unless_configured(
    hub_auth: Any, configured: dict[str, int], seconds: int
) -> None:
    hub_auth.config.HubOAuth.update(configured)
    hub_auth.update_config(hub_auth.config)
    callers(hub_auth, {}).install(lambda handler: True)
    assert hub_auth.cache_max_age == seconds


@pytest.mark.parametrize(
    ("mapping", "is_hubs", "problem"),
    [
        ({}, False, ""),
        (MAPPING, True, ""),
        (MAPPING, False, "not JupyterHub's"),
        ({"custom:exec:run": "nope"}, True, "there is no policy 'nope'"),
        ({"custom:exec:run": 1}, True, "there is no policy 1"),
        ({"custom:exec:run!user=ada": "default"}, True, "without a filter"),
        ({"": "default"}, True, "must be the name of a scope"),
        ({1: "default"}, True, "must be the name of a scope"),
    ],
)
def test_a_mistake_in_the_mapping_is_named(mapping: dict[Any, Any], is_hubs: bool, problem: str) -> None:
    found = find_mapping_problem(mapping, BUILT_IN, is_hubs)
    assert problem in found
    assert bool(problem) is bool(found)
