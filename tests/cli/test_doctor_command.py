"""What the doctor says of isolation, on this machine and of a server."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from jupyter_exec_ext.cli import doctor_checks, doctor_policies
from jupyter_exec_ext.cli.doctor_checks import isolation_here, problems_here, refused_policies
from jupyter_exec_ext.cli.doctor_command import Finding, _Report
from jupyter_exec_ext.cli.doctor_policies import check_policies_here, check_secrets
from jupyter_exec_ext.cli.gateway_app import ExecGatewayApp
from jupyter_exec_ext.cli.kernelspecs import local_kernels
from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.isolation.common import cgroup
from tests.cli.kernelspecs.places import Jupyter, needs_sandbox
from tests.cli.test_cli import jupyter_exec
from tests.cli.test_json_output import SHAPES
from tests.support.full import only_in_full
from tests.support.hosts import running_host
from tests.support.kernelspecs import add_kernelspec


def doctors_lines(*names: str) -> list[Finding]:
    """Return what the doctor finds about isolation here; with `names`, where these kernelspecs are sandboxed."""
    kernels = [kernel for kernel in local_kernels.installed() if kernel.name in names]
    return list(isolation_here(kernels, problems_here()))


def on_sandboxes(*names: str) -> Finding:
    """Return what the doctor finds about sandboxes where there can be none."""
    (finding,) = (finding for finding in doctors_lines(*names) if "Landlock" not in finding.what)
    return finding


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == "bwrap" else which(name))


@pytest.fixture
def bubblewrap_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what puts a shell script in the place of bubblewrap."""

    def replace(script: str) -> None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / "bwrap").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")

    return replace


@needs_sandbox
def test_the_doctor_says_that_kernels_can_be_sandboxed() -> None:
    first = doctors_lines()[0]
    assert first.what.startswith("kernels can be sandboxed here (bubblewrap 0.")
    assert first.mark == "ok"


@pytest.mark.usefixtures("no_bubblewrap")
def test_doctor_reports_missing_packages(jupyter: Jupyter) -> None:
    finding = on_sandboxes()
    assert (finding.what, finding.mark) == ("kernels cannot be sandboxed here", "note")
    assert "bubblewrap (bwrap) is not installed; install it" in finding.remedy
    jupyter.install()  # with which it is something that does not work
    finding = on_sandboxes("python3", "python3-sandbox")
    assert finding.what == "kernels cannot be sandboxed here, so these do not start: python3-sandbox"
    assert finding.mark == "FAIL"


def test_doctor_reports_an_old_bubblewrap(bubblewrap_that: Callable[[str], None]) -> None:
    bubblewrap_that("echo bubblewrap 0.4.1")
    finding = on_sandboxes()
    assert "bubblewrap is 0.4.1, and 0.7 is needed" in finding.remedy


def test_doctor_reports_missing_user_namespaces(bubblewrap_that: Callable[[str], None]) -> None:
    bubblewrap_that(
        '[ "$1" = --version ] && exec echo bubblewrap 0.9.0\n'
        "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1"
    )
    finding = on_sandboxes()
    assert "no user namespaces" in finding.remedy
    assert "'landlock'" in finding.remedy


def test_doctor_prints_one_note_without_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    (finding,) = doctors_lines()
    assert finding.what == "kernels can be isolated on Linux only, and this is darwin"
    assert finding.mark == "note"


class _Group:
    def __init__(self, limits: list[str]) -> None:
        self.limits = limits
        self.removed = 0

    def remove(self) -> None:
        self.removed += 1


@needs_sandbox
@pytest.mark.parametrize(
    ("limits", "user", "marks", "words"),
    [
        (["memory", "processes"], 0, ["ok", "ok"], "the memory of a sandbox is limited as a whole"),
        (["memory"], 0, ["ok", "note"], "a fork bomb"),
        (["memory"], 1000, ["ok", "ok"], "RLIMIT_NPROC"),
        (["processes"], 1000, ["note", "ok"], "each of its processes"),
        (None, 0, ["note", "note"], "Delegate=yes"),
    ],
)
def test_doctor_reports_limits_of_a_whole_sandbox(
    monkeypatch: pytest.MonkeyPatch, limits: list[str] | None, user: int, marks: list[str], words: str
) -> None:
    group = None if limits is None else _Group(limits)
    monkeypatch.setattr(cgroup, "new_group", lambda memory_bytes, processes: group)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    findings = list(doctor_checks._limits())
    assert [finding.mark for finding in findings] == marks
    assert words in str(findings)
    assert group is None or group.removed == 1


@needs_sandbox
def test_the_doctor_leaves_no_control_group() -> None:
    def groups() -> set[Path]:
        return {
            path for places in cgroup._cgroup_hierarchies() for parent, _ in places for path in parent.glob("jex-*")
        }

    before = groups()
    assert len(doctors_lines()) >= 3
    assert groups() - before == set()


def test_doctor_reports_an_unusable_kernelspec(jupyter: Jupyter, tmp_path: Path) -> None:
    jupyter.install("--network", "host", "--name", "open")
    add_kernelspec(tmp_path, "cluster", "cluster-provisioner")
    (jupyter.add("broken") / "kernel.json").write_text("{")
    done = jupyter_exec(tmp_path, "doctor")
    assert done.returncode == 0, done.stdout
    assert "note  without isolation: open" in done.stdout
    assert f"{jupyter.kernels}/broken) cannot be read" in done.stdout
    assert "install what provides 'cluster-provisioner'" in done.stdout


def test_doctor_reports_policies_that_the_server_cannot_satisfy(
    tmp_path: Path, bubblewrap_that: Callable[[str], None]
) -> None:
    bubblewrap_that("echo bubblewrap 0.4.1")
    with running_host("server", tmp_path / "old", "--ExecEngine.default_isolation=none") as host:
        done = jupyter_exec(tmp_path, "doctor", "--server", host.info.url, env={"JUPYTER_TOKEN": str(host.info.token)})
    assert done.returncode == 0, done.stdout
    assert "note  without isolation: python3" in done.stdout
    assert "note  no kernel is isolated as these policies require: restricted" in done.stdout
    assert "get the isolation 'sandbox'" not in done.stdout
    assert "restricted (sandbox); their tokens are refused, since kernels get 'landlock' at most" in done.stdout or (
        "restricted (sandbox); their tokens are refused, since kernels get 'none' at most" in done.stdout
    )


def policies_at(config: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Finding]:
    """Return what the doctor finds about the policies with this directory of configuration files."""
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(config))
    return check_policies_here()


def test_doctor_reports_mistake_in_policies_of_server_and_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policies.toml").write_text("[mine]\nmax_session = 1\n")
    mistake = "policies.toml: policy 'mine': unknown field 'max_session'; did you mean 'max_sessions'?"
    with running_host("server", tmp_path, f"--ExecEngine.policy_file={tmp_path / 'policies.toml'}") as host:
        done = jupyter_exec(tmp_path, "doctor", "--server", host.info.url, env={"JUPYTER_TOKEN": str(host.info.token)})
    assert done.returncode == 1, done.stdout
    assert f"FAIL  {host.info.url} runs no code, since its policies have a mistake\n      -> {mistake}" in done.stdout
    (tmp_path / "config").mkdir(exist_ok=True)
    config = tmp_path / "config" / "jupyter_server_config.py"
    config.write_text(f"c.ExecEngine.policy_file = {str(tmp_path / 'policies.toml')!r}\n")
    done = jupyter_exec(tmp_path, "doctor")
    assert done.returncode == 1, done.stdout
    assert f"FAIL  the policies of Jupyter Server have a mistake: {mistake} (read: {config})\n" in done.stdout
    config.write_text("c.ExecEngine.policies = []\n")
    assert [finding.mark for finding in policies_at(config.parent, monkeypatch)] == ["FAIL"]
    config.write_text("c.ExecEngine.policies = {'mine': {'max_sessions': 1}}\n")
    assert list(policies_at(config.parent, monkeypatch)) == [
        Finding(f"the policies of Jupyter Server are valid (read: {config})")
    ]


@pytest.mark.parametrize(
    ("name", "application"),
    [
        ("jupyter_config", "Jupyter Server"),
        ("jupyter_jupyter_exec_ext_config", "Jupyter Server"),
        ("jupyter_kernel_gateway_config", "Kernel Gateway"),
        (f"{ExecGatewayApp.name.replace('-', '_')}_config", "the gateway of jupyter exec"),
    ],
)
def test_doctor_reports_mistake_in_policies_of_every_configuration_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, application: str
) -> None:
    (tmp_path / f"{name}.py").write_text("c.ExecEngine.policies = {'mine': {'max_session': 1}}\n")
    (finding,) = policies_at(tmp_path, monkeypatch)
    assert finding.mark == "FAIL"
    assert finding.what.startswith(f"the policies of {application} have a mistake: ExecEngine.policies: policy 'mine':")
    assert finding.what.endswith(f"(read: {tmp_path}/{name}.py)")


def test_servers_own_configuration_replaces_that_of_the_extension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension, server = (tmp_path / f"jupyter_{name}_config.py" for name in ("jupyter_exec_ext", "server"))
    extension.write_text(f"c.ExecEngine.policy_file = {str(tmp_path / 'missing.toml')!r}\n")
    server.write_text(f"c.ExecEngine.policy_file = {str(tmp_path / 'policies.toml')!r}\n")
    (tmp_path / "policies.toml").write_text("[mine]\nmax_sessions = 1\n")
    (finding,) = policies_at(tmp_path, monkeypatch)
    assert finding == Finding(f"the policies of Jupyter Server are valid (read: {extension}, {server})")


def test_doctor_says_that_a_relative_policy_file_is_relative_to_the_servers_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jupyter_server_config.py").write_text("c.ExecEngine.policy_file = 'policies.toml'\n")
    monkeypatch.chdir(tmp_path)
    (note,) = policies_at(tmp_path, monkeypatch)
    assert note.what.startswith("ExecEngine.policy_file is policies.toml, relative to the directory in which")
    assert f"it was looked up in {tmp_path} " in note.what
    assert (note.mark, note.remedy) == ("note", "write the whole path")
    (tmp_path / "policies.toml").write_text("[mine]\nmax_session = 1\n")
    assert [finding.mark for finding in policies_at(tmp_path, monkeypatch)] == ["note", "FAIL"]


@only_in_full
def test_mistake_in_policies_of_a_gateway_is_named_by_doctor_and_by_run(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    config = {"ExecEngine": {"policies": {"mine": {"max_session": 1}}}}
    (tmp_path / "config" / "jupyter_exec_gateway_config.json").write_text(json.dumps(config))
    mistake = "ExecEngine.policies: policy 'mine': unknown field 'max_session'; did you mean 'max_sessions'?"
    done = jupyter_exec(tmp_path, "doctor")
    assert done.returncode == 1, done.stdout
    what = "a gateway with your configuration runs no code, since its policies have a mistake"
    assert f"FAIL  {what}\n      -> {mistake}" in done.stdout
    done = jupyter_exec(tmp_path, "run", "-c", "print(1)")
    assert done.returncode != 0
    assert done.stderr.startswith(f"jupyter exec: {mistake}"), done.stderr


def test_policy_that_requires_more_isolation_than_there_is_is_a_note() -> None:
    required = {"default": "none", "restricted": "sandbox"}
    (finding,) = refused_policies(required, ["none", "landlock"], "install bubblewrap")
    assert finding.what.startswith("no kernel is isolated as these policies require: restricted (sandbox);")
    assert "since kernels get 'landlock' at most" in finding.what
    assert (finding.mark, finding.remedy) == ("note", "install bubblewrap")
    assert list(refused_policies(required, ["landlock", "sandbox"], "")) == []
    assert len(list(refused_policies(required, [], ""))) == 1


def test_report_hides_what_is_in_place_and_ends_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    good, note, bad = Finding("good"), Finding("odd", "see", fails=False), Finding("bad", "mend it")
    for findings, options, expected in (
        ([good, good], {}, "everything is in place: 2 checks\n"),
        ([good], {"is_verbose": True}, "ok    good\neverything is in place: 1 check\n"),
        ([bad, good, note, bad], {}, "2 problems, 1 note in 4 checks\n"),
    ):
        report = _Report(**{"is_verbose": False, "is_json": False, **options})
        report.add(findings)
        report.print_end()
        printed = capsys.readouterr().out
        assert printed.endswith(expected)
        assert ("good" in printed) == bool(options)


def test_report_as_json_has_all_findings(capsys: pytest.CaptureFixture[str]) -> None:
    report = _Report(is_verbose=False, is_json=True)
    report.add([Finding("good"), Finding("bad", "mend it")])
    report.print_end()
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, SHAPES["doctor"])
    assert printed["summary"] == "1 problem in 2 checks"
    assert printed["findings"][1] == {"mark": "FAIL", "what": "bad", "remedy": "mend it"}


def test_doctor_names_the_libraries_that_network_rules_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = {"isolation": "sandbox", "network": ["a.example"]}
    (tmp_path / "jupyter_server_config.py").write_text(f"c.ExecEngine.policies = {{'net': {policy}}}\n")
    assert len(list(policies_at(tmp_path, monkeypatch))) == 1
    monkeypatch.setattr(doctor_policies, "missing_libraries", lambda: ["h11"])
    _, finding = policies_at(tmp_path, monkeypatch)
    assert finding.what.startswith("policy 'net' has network rules, which need h11; no session can have it")
    assert finding.remedy == "pip install 'jupyter-exec-ext[network]'"


def test_doctor_reports_source_of_packages_or_why_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    config = tmp_path / "jupyter_server_config.py"
    allowed = "c.ExecEngine.policies = {'p': {'packages': 'install'}}\n"
    config.write_text(f"{allowed}c.ExecEngine.package_wheelhouse = {str(wheels)!r}\n")
    _, missing = policies_at(tmp_path, monkeypatch)
    assert missing.what.endswith(f"but the directory {wheels} of their wheels is not there")
    assert missing.remedy == f"make it, and fill it (pip download --dest {wheels} PACKAGE)"
    wheels.mkdir()
    _, found = policies_at(tmp_path, monkeypatch)
    assert (found.what, found.remedy) == (f"policy 'p' lets sessions install packages, from {wheels}", "")
    monkeypatch.setattr(doctor_policies, "find_spec", lambda _: None)
    _, without_pip = policies_at(tmp_path, monkeypatch)
    assert without_pip.what.endswith("but the server's environment has no pip to download them with")
    config.write_text(f"{allowed}c.ExecEngine.session_directories = False\n")
    _, without_directories = policies_at(tmp_path, monkeypatch)
    assert without_directories.what.endswith("but sessions have no directories for them")


def test_doctor_names_secrets_of_policies_that_are_not_set(tmp_path: Path) -> None:
    policies = {"p": {"isolation": "sandbox", "network": ["a.example"], "secrets": ["SET_KEY", "OTHER_KEY"]}}
    with running_host("server", tmp_path, f"--ExecEngine.policies={json.dumps(policies)}") as host:
        with ExecClient(host.info) as client:
            client.secrets.set("SET_KEY", "a-long-value", hosts=["a.example"], header="X-Key: {}")
            listed = client.tokens.policies()
            (missing,) = check_secrets(client, listed)
            assert missing.what == (
                "policy 'p' names the secret OTHER_KEY, which is not set, so its sessions do not start"
            )
            assert missing.remedy.startswith("jupyter exec secret set OTHER_KEY --host")
            client.secrets.set("OTHER_KEY", "a-long-value", hosts=["a.example"], header="X-Key: {}")
            (found,) = check_secrets(client, listed)
            assert found.what == "the secrets of policies are set: OTHER_KEY, SET_KEY"
            token = client.tokens.create("agent", ["executions:create"])
        with ExecClient(replace(host.info, token=token.text)) as scoped:
            assert list(check_secrets(scoped, listed)) == []
