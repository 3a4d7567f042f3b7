"""Secret service: what can be set, which secrets a session has, and their placeholders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import Bound, Caller, owner
from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.auth.policy_parsing import read_limits, read_policies
from jupyter_exec_ext.engine.access.secret_service import effective_secrets
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.kernels.secret_placeholders import placeholders
from jupyter_exec_ext.errors import Conflict, InvalidRequest, PolicyDenied, SecretNotFound, TokenTooBroad
from jupyter_exec_ext.isolation.network import libraries
from jupyter_exec_ext.models import SecretRequest

ME = owner("me", {"username": "me"})
HEADER = "Authorization: Bearer {}"
VALUE = "a-long-value"


def test_session_has_the_secrets_that_all_policies_have() -> None:
    policies = [Policy(secrets=("A", "B", "C")), Policy(secrets=("C", "A"))]
    assert effective_secrets(policies) == ("A", "C")
    assert effective_secrets([*policies, Policy()]) == effective_secrets([]) == ()


def test_placeholders_differ_by_session_and_name_and_stay_the_same() -> None:
    first = placeholders("ses_1", ["A", "B"])
    assert first == placeholders("ses_1", ["A", "B"])
    assert len({*first.values(), *placeholders("ses_2", ["A", "B"]).values()}) == 4


@pytest.mark.parametrize("value", ["A", ["a"], ["A*"], [1], ["A" * 65], [f"A{n}" for n in range(17)]])
def test_wrong_names_of_secrets_are_a_mistake_in_the_policy(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="'secrets' must be a list of at most 16 names"):
        read_policies({"p": {"isolation": "sandbox", "network": ["a.test"], "secrets": value}})


@pytest.mark.parametrize("network", [{}, {"network": "none", "isolation": "sandbox"}, {"network": "host"}])
def test_policy_with_secrets_needs_network_rules(network: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="'A', which needs network rules"):
        read_policies({"p": {**network, "secrets": ["A"]}})


def test_limits_of_a_token_narrow_the_secrets() -> None:
    outer = Policy(secrets=("A", "B"))
    assert read_limits({"secrets": ["B"]}, outer).secrets == ("B",)
    with pytest.raises(TokenTooBroad, match="'secrets'"):
        read_limits({"secrets": ["B", "C"]}, outer)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("lower", {}, "cannot be the name of a secret"),
        ("PATH", {}, "cannot be the name of a secret"),
        ("HTTPS_PROXY", {}, "cannot be the name of a secret"),
        ("JUPYTER_TOKEN", {}, "cannot be the name of a secret"),
        ("A", {"hosts": None}, "needs 'hosts' and a 'header'"),
        ("A", {"header": None}, "needs 'hosts' and a 'header'"),
        ("A", {"hosts": []}, "needs 'hosts' and a 'header'"),
        ("A", {"hosts": [f"a{n}.test" for n in range(11)]}, "at most 10 hosts"),
        ("A", {"hosts": ["*.test"]}, "not the name of a host"),
        ("A", {"hosts": ["https://a.test"]}, "has the port"),
        ("A", {"hosts": ["A.test"]}, "name a host, in lower case"),
        ("A", {"header": "Authorization"}, "needs a header such as"),
        ("A", {"header": "Authorization: {} {}"}, "needs a header such as"),
        ("A", {"header": "Host: {}"}, "needs a header such as"),
        ("A", {"header": "X: {}\r\nY: 1"}, "characters that a header cannot carry"),
        ("A", {"value": "tiny"}, "fewer than 8 characters"),
        ("A", {"value": " spaces-around "}, "has spaces around it"),
        ("A", {"value": "two\nlines-of-it"}, "characters that a header cannot carry"),
        ("A", {"value": "Umläute-sind-drin"}, "characters that a header cannot carry"),
    ],
)
async def test_secret_that_cannot_be_used_is_refused_without_its_value(
    engine: ExecEngine, name: str, changes: dict[str, Any], message: str
) -> None:
    fields = {"value": VALUE, "hosts": ["a.test"], "header": HEADER, **changes}
    with pytest.raises(InvalidRequest, match=message) as raised:
        await engine.secrets.put(ME, name, SecretRequest(**fields))
    assert fields["value"] not in raised.value.message
    assert await engine.secrets.list() == []


async def test_secret_keeps_hosts_and_header_with_a_new_value(engine: ExecEngine) -> None:
    first = await engine.secrets.put(ME, "A", SecretRequest(VALUE, ["a.test", "b.test:8443"], HEADER))
    second = await engine.secrets.put(ME, "A", SecretRequest(VALUE + "2"))
    assert (second.hosts, second.header, second.created_at) == (first.hosts, HEADER, first.created_at)
    assert (await engine.secrets.get("A")).changed_at == second.changed_at
    for request in (SecretRequest(VALUE, hosts=[]), SecretRequest(VALUE, header="")):
        with pytest.raises(InvalidRequest, match="needs 'hosts'"):
            await engine.secrets.put(ME, "A", request)
    await engine.secrets.delete(ME, "A")
    for missing in (engine.secrets.delete(ME, "A"), engine.secrets.get("A")):
        with pytest.raises(SecretNotFound):
            await missing


async def test_missing_library_is_named(engine: ExecEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_NEEDED", ("no_such_library",))
    with pytest.raises(Conflict, match=r"secrets need no_such_library; install them with pip install 'jupyter-exec-"):
        await engine.secrets.put(ME, "A", SecretRequest(VALUE, ["a.test"], HEADER))
    with pytest.raises(Conflict, match="no_such_library"):
        await engine.secrets.rotate_key(ME)


def test_request_shows_no_value() -> None:
    assert VALUE not in repr(SecretRequest(VALUE, ["a.test"], HEADER))


async def test_changes_by_another_server_reach_this_one_with_the_next_session(
    make_engine: Callable[..., ExecEngine],
) -> None:
    here, there = make_engine(), make_engine()
    policies = read_policies({"p": {"isolation": "sandbox", "network": ["a.test"], "secrets": ["A"]}})
    access = await here.networks.access_of(_bearer(policies["p"]))
    assert access is not None
    changed: list[str] = []

    async def note(name: str) -> None:
        changed.append(name)

    await here.secrets.put(ME, "A", SecretRequest(VALUE, ["a.test"], HEADER))
    here.secrets.on_change = note
    assert await here.secrets.load([policies["p"]], access) == ("A",)
    assert changed == []  # what was set here is what the store has
    await there.secrets.put(ME, "A", SecretRequest(VALUE + "2"))
    await here.secrets.load([policies["p"]], access)
    assert [each.value for each in here.secrets.of_session("ses_1", ["A"])] == [VALUE + "2"]
    assert changed == ["A"]
    await there.secrets.delete(ME, "A")
    with pytest.raises(PolicyDenied, match="it does not exist"):
        await here.secrets.load([policies["p"]], access)
    assert here.secrets.of_session("ses_1", ["A"]) == ()
    assert changed == ["A", "A"]


def _bearer(policy: Policy) -> Caller:
    return Caller("token:a", bounds=(Bound("token:a", policy),))
