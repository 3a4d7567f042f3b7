"""Index of this machine in pip's configuration: variables for sessions, without credentials, and network rules."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.auth.configured_policies import configured_policies
from jupyter_exec_ext.engine.packages import package_index
from jupyter_exec_ext.engine.packages.package_index import IndexReader, NamedSets, PackageIndex, parse_pip_config
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
    index = parse_pip_config(_LINES)
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
    assert parse_pip_config([]) == PackageIndex()
    assert (PackageIndex().variables(), PackageIndex().rules()) == ({}, [])


def test_rules_name_hosts_and_ports_and_are_valid() -> None:
    rules = parse_pip_config(_LINES).rules()
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


def test_index_is_asked_for_again_a_minute_after_a_failure_and_then_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [FileNotFoundError(), subprocess.TimeoutExpired("pip", 30), subprocess.CalledProcessError(1, "pip"), ""]
    clock = [1000.0]

    def answer(command: Any, **_: Any) -> Any:
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return subprocess.CompletedProcess(command, 0, stdout="\n".join(_LINES))

    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    reader = IndexReader()
    for left in (3, 2, 1):
        assert [reader.read() for _ in range(3)] == [PackageIndex()] * 3
        assert len(answers) == left
        clock[0] += package_index._RETRY_SECONDS
    assert reader.read() == reader.read() == parse_pip_config(_LINES)


def test_pip_of_the_working_directory_is_not_run_and_pip_of_the_server_reads_the_users_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel can write into the server's directory, and the server's token is none of pip's variables."""
    (tmp_path / "pip.py").write_text("import os\nprint(os.environ, file=open('ran', 'w'))")
    settings = tmp_path / "config" / "pip" / "pip.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text("[global]\nindex-url = https://of-the-user.example/simple\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("JUPYTER_TOKEN", "of-the-server")
    monkeypatch.chdir(tmp_path)
    commands: list[Any] = []
    run = subprocess.run

    def note(command: Any, **options: Any) -> Any:
        commands.append(options["env"])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", note)
    assert IndexReader().read().url == "https://of-the-user.example/simple"
    assert not (tmp_path / "ran").exists()
    assert [variables.keys() & {"JUPYTER_TOKEN", "PYTHONPATH"} for variables in commands] == [set()]


def test_environment_without_pip_has_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert IndexReader().read() == PackageIndex()
