"""Network rules: mistakes in policies, narrower limits of tokens, and what policies allow together."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jupyter_exec_ext.auth.built_in_policies import BUILT_IN
from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.auth.policy_parsing import read_limits, read_policies
from jupyter_exec_ext.engine.access.network_rules import access_within, has_rules, load_access, wanted_rule, with_rule
from jupyter_exec_ext.errors import InvalidRequest, PolicyDenied, TokenTooBroad
from jupyter_exec_ext.isolation.network.control_messages import NetworkRequest

_SETS = {"packages": ["index.example", "files.example"]}


def _policy(network: Any, isolation: str = "sandbox", **fields: Any) -> Policy:
    return Policy(name="net", isolation=isolation, network=network, **fields)


def _texts(*policies: Policy) -> list[list[str]] | None:
    access = access_within(policies, _SETS)
    return None if access is None else [[rule.text for rule in each.rules] for each in access.rule_sets]


@pytest.mark.parametrize(
    ("network", "isolation", "mistake"),
    [
        (["index.example"], "none", "'network' has rules, which 'none' cannot hold; set 'isolation' to 'sandbox'"),
        (["index.example"], "landlock", "'network' has rules, which 'landlock' cannot hold"),
        (["index.example"], "remote", "'network' has rules, which 'remote' cannot hold"),
        ([], "none", "'network' has rules"),
        ("none", "none", "'network' is 'none', which needs isolation"),
        ("host", "sandbox", "'network' is 'host', which leaves nothing of the isolation 'sandbox'"),
        (["@nope"], "sandbox", "there is no set of rules '@nope'; the configuration has: @packages"),
        (["0x7f.1"], "sandbox", "'network': "),
        ("index.example", "sandbox", "must be 'none', 'host' or a list"),
        ([1], "sandbox", "must be 'none', 'host' or a list"),
        ([""], "sandbox", "must be 'none', 'host' or a list"),
        (["x.org"] * 101, "sandbox", "at most 100 rules"),
    ],
)
def test_network_that_the_isolation_cannot_hold_is_a_mistake(network: Any, isolation: str, mistake: str) -> None:
    with pytest.raises(InvalidRequest, match="policy 'net': ") as error:
        read_policies({"net": {"network": network, "isolation": isolation}}, _SETS)
    assert mistake in error.value.message


@pytest.mark.parametrize(
    ("network", "isolation"),
    [(["@packages", "GET https://a.example/v1/*"], "sandbox"), ("none", "landlock"), ("host", "none"), (None, "none")],
)
def test_network_that_the_isolation_can_hold_is_read(network: Any, isolation: str) -> None:
    read = read_policies({"net": {"network": network, "isolation": isolation}}, _SETS)["net"].network
    assert read == (tuple(network) if isinstance(network, list) else network)


def test_rules_of_a_token_are_some_of_its_policys_or_none() -> None:
    outer = _policy(("a.example", "b.example"))
    assert read_limits({"network": ["b.example"]}, outer).network == ("b.example",)
    assert read_limits({"network": "none"}, outer).network == "none"
    for network in (["c.example"], "host"):
        with pytest.raises(TokenTooBroad, match="'network'"):
            read_limits({"network": network}, outer)
    for policy in (BUILT_IN["default"], _policy("none")):
        with pytest.raises(TokenTooBroad, match="'network'"):
            read_limits({"network": ["a.example"]}, policy)


def test_sets_are_replaced_by_their_rules() -> None:
    assert _texts(_policy(("@packages", "a.example"))) == [["index.example", "files.example", "a.example"]]


def test_every_policy_with_rules_has_a_say_and_one_without_leaves_no_network() -> None:
    wide, narrow = _policy(("a.example", "b.example")), _policy(("b.example",))
    assert _texts(wide, wide, narrow) == [["a.example", "b.example"], ["b.example"]]
    assert _texts(wide, _policy("host", "none")) == [["a.example", "b.example"]]
    for other in (_policy(None), _policy("none"), BUILT_IN["default"]):
        assert _texts(wide, other) is None
    assert _texts() is None and _texts(_policy("host", "none")) is None


def test_least_upload_of_all_policies_holds() -> None:
    access = access_within([_policy(("a.example",), max_upload_bytes=n) for n in (None, 20, 10)], _SETS)
    assert access is not None and access.max_upload_bytes == 10


def test_rule_for_a_session_is_added_to_all_policies() -> None:
    access = access_within([_policy(("a.example", "b.example")), _policy(("b.example",))], _SETS)
    assert access is not None
    added = with_rule(access, "c.example:8443")
    assert all([rule.text for rule in each.rules][-1] == "c.example:8443" for each in added.rule_sets)
    with pytest.raises(InvalidRequest, match="'rule': "):
        with_rule(access, "http:/x")


@pytest.mark.parametrize(
    ("host", "port", "method", "path", "wanted"),
    [
        ("b.example", 443, "CONNECT", "", "b.example:443"),
        ("b.example", 8443, "SOCKS", "", "b.example:8443"),
        ("b.example", 80, "GET", "/a*b", "b.example:80"),
        ("a.example", 22, "CONNECT", "", "a.example:22"),
        ("fd00::1", 443, "CONNECT", "", "[fd00::1]:443"),
        ("api.example", 443, "POST", "/v2/x", "POST https://api.example/v2/x"),
        ("api.example", 443, "GET", "/v2/*", ""),  # a star of the program's
        ("api.example", 443, "GET", "/v2/" + "x" * 500, ""),
        ("a.example", 443, "CONNECT", "", ""),  # the host is allowed, so the reason is another one
        ("", 0, "", "", ""),
        ("127.1", 80, "GET", "/", ""),
    ],
)
def test_wanted_rule_is_the_narrowest_that_allows_a_refused_request(
    host: str, port: int, method: str, path: str, wanted: str
) -> None:
    access = access_within([_policy(("a.example", "GET https://api.example/v1/*"))], _SETS)
    assert access is not None
    request = NetworkRequest("s", host, port, method, path, verdict="refused")
    assert wanted_rule(access, request) == wanted
    if wanted:
        assert wanted_rule(with_rule(access, wanted), request) == ""


@pytest.mark.parametrize("networks", [[], ["host"], ["none"], [("a.example",), "none"], [("a.example",), "host"], [()]])
async def test_sessions_have_rules_only_with_network_access(networks: list[Any]) -> None:
    policies = [_policy(network) for network in networks]
    access = access_within(policies, _SETS)
    assert has_rules(policies) == (access is not None)
    assert await load_access(iter(policies), _SETS) == access


async def test_named_sets_are_looked_up_outside_the_event_loop() -> None:
    threads: list[threading.Thread] = []

    class Sets(dict[str, list[str]]):
        def __missing__(self, name: str) -> list[str]:
            threads.append(threading.current_thread())
            return _SETS[name]

    assert await load_access([_policy(("@packages",))], Sets()) is not None
    assert threads and threading.current_thread() not in threads


async def test_limits_with_a_set_that_is_not_configured_any_more_are_refused() -> None:
    with pytest.raises(PolicyDenied, match=r"there is no set of rules '@gone'.*ask for another token"):
        await load_access([_policy(("a.example",)), _policy(("@gone",))], _SETS)
