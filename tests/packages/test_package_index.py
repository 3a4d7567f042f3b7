"""Index of this machine in pip's configuration: variables for sessions, without credentials, and network rules."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from jupyter_exec_ext.engine.packages import package_index
from jupyter_exec_ext.engine.packages.package_index import NamedSets, PackageIndex, index_in, machine_index
from jupyter_exec_ext.engine.settings import configured_policies
from jupyter_exec_ext.isolation.network.rules import RuleError, parse_rules

_LINES = [
    "WARNING: something else",
    ":env:.index-url='https://user:pass-word@index.example:8443/simple'",
    "global.extra-index-url='\\nhttp://more.example/simple\\nfile:///opt/wheels https://[fd00::1]/x'",
    "global.index-url='https://other.example/simple'",
    "global.trusted-host='more.example'",
    "global.timeout='60'",
]


def test_environment_precedes_files_and_credentials_are_left_out() -> None:
    index = index_in(_LINES)
    assert index.url == "https://index.example:8443/simple"
    assert index.extra_urls == ("http://more.example/simple", "https://[fd00::1]/x")
    assert index.variables() == {
        "PIP_INDEX_URL": index.url,
        "UV_DEFAULT_INDEX": index.url,
        "PIP_EXTRA_INDEX_URL": " ".join(index.extra_urls),
        "UV_INDEX": " ".join(index.extra_urls),
        "PIP_TRUSTED_HOST": "more.example",
        "UV_INSECURE_HOST": "more.example",
    }


def test_without_a_configured_index_there_are_no_variables_and_no_rules() -> None:
    assert index_in([]) == PackageIndex()
    assert (PackageIndex().variables(), PackageIndex().rules()) == ({}, [])


def test_rules_name_hosts_and_ports_and_are_valid() -> None:
    rules = index_in(_LINES).rules()
    assert rules == ["index.example:8443", "more.example", "[fd00::1]"]
    assert len(parse_rules(rules[:2])) == 2


def test_set_of_packages_is_the_machines_index_unless_it_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "machine_index", lambda: PackageIndex("https://index.example/simple"))
    assert [rule.text for rule in parse_rules(["@packages"], NamedSets())] == ["index.example"]
    policies = {"p": {"isolation": "sandbox", "network": ["@packages"]}}
    assert configured_policies(policies, "", network_sets=NamedSets())["p"].network == ("@packages",)
    configured = NamedSets({"packages": ["a.example"]})
    assert [rule.text for rule in parse_rules(["@packages"], configured)] == ["a.example"]
    with pytest.raises(RuleError, match="@other"):
        parse_rules(["@other"], configured)


def test_set_of_packages_without_an_index_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "machine_index", PackageIndex)
    with pytest.raises(RuleError, match="there is no set of rules '@packages'"):
        parse_rules(["@packages"], NamedSets())


def test_index_is_asked_for_again_after_a_failure_and_then_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [FileNotFoundError(), subprocess.TimeoutExpired("pip", 30), subprocess.CalledProcessError(1, "pip"), ""]

    def answer(command: Any, **_: Any) -> Any:
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return subprocess.CompletedProcess(command, 0, stdout="\n".join(_LINES))

    monkeypatch.setattr(subprocess, "run", answer)
    package_index._read_index.cache_clear()
    assert [machine_index() for _ in range(3)] == [PackageIndex()] * 3
    assert machine_index() == machine_index() == index_in(_LINES)
    package_index._read_index.cache_clear()
