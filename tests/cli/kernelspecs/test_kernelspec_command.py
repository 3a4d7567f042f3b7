"""``jupyter exec kernelspec`` as people type it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from jupyter_exec_ext.isolation.sandbox import SandboxProvisioner
from tests.cli.kernelspecs.places import INSTALL, Jupyter, needs_sandbox
from tests.cli.test_cli import jupyter_exec
from tests.support.hosts import running_host
from tests.support.kernelspecs import add_kernelspec
from tests.support.sandbox_leftovers import WORK

# --- install ---


def test_a_sandboxed_kernelspec_is_like_the_one_it_was_made_from(jupyter: Jupyter) -> None:
    written = jupyter.install()
    original = KernelSpecManager().get_kernel_spec("python3")
    assert written["argv"] == original.argv
    assert written["display_name"] == f"{original.display_name} (sandboxed)"
    assert written["language"] == "python"
    assert KernelSpecManager().get_kernel_spec("python3-sandbox").interrupt_mode == original.interrupt_mode
    stanza = written["metadata"].pop("kernel_provisioner")
    assert stanza == {"provisioner_name": "sandbox-provisioner", "config": {}}
    assert written["metadata"] == original.metadata
    logos = {path.name for path in Path(original.resource_dir).glob("logo*")}
    assert logos
    assert {path.name for path in (jupyter.kernels / "python3-sandbox").iterdir()} == {"kernel.json", *logos}


def test_install_prints_the_place_and_the_next_command(jupyter: Jupyter) -> None:
    code, out, err = jupyter(*INSTALL, "--name", "Safe", "--display-name", "Safe Python")
    assert (code, out) == (0, f"{jupyter.kernels}/safe\n")
    assert "in JupyterLab's launcher: Safe Python" in err
    assert "jupyter exec run --kernel safe FILE" in err


def test_a_kernel_in_another_language_keeps_what_its_kernelspec_says(jupyter: Jupyter) -> None:
    original = jupyter.add("shell", interrupt_mode="signal", env={"A": "1"}, metadata={"mine": 1}, mimetype="text/x-sh")
    written = jupyter.install("--from", "shell")
    assert written == {
        # The script is in the kernelspec's directory, the only one of them that is seen.
        "argv": ["/bin/sh", "{resource_dir}/start.sh", "{connection_file}"],
        "display_name": "Shell (sandboxed)",
        "language": "bash",
        "interrupt_mode": "signal",
        "env": {"A": "1"},
        "metadata": {"mine": 1, "kernel_provisioner": {"provisioner_name": "sandbox-provisioner", "config": {}}},
        "mimetype": "text/x-sh",
    }
    copied = jupyter.kernels / "shell-sandbox"
    assert (copied / "logo-64x64.png").read_bytes() == b"a logo"
    assert os.access(copied / "start.sh", os.X_OK)
    assert json.loads((original / "kernel.json").read_text())["display_name"] == "Shell"
    assert KernelSpecManager().get_kernel_spec("shell-sandbox").interrupt_mode == "signal"


def test_only_given_options_are_configured(jupyter: Jupyter, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("data", "more", "out"):
        (jupyter.home / name).mkdir()
    monkeypatch.chdir(jupyter.home)
    monkeypatch.setenv("HOME", str(jupyter.home))
    options = ["--read-only", "data", "~/more", "--writable", "out", "--env", "AWS_*", "--env", "LANG"]
    written = jupyter.install(*options, "--working-directory", "out", "--network", "none")
    assert written["metadata"]["kernel_provisioner"]["config"] == {
        "read_only": [f"{jupyter.home}/data", f"{jupyter.home}/more"],
        "writable": [f"{jupyter.home}/out"],
        "env": ["AWS_*", "LANG"],
        "working_directory": f"{jupyter.home}/out",
        "network": "none",
    }
    written = jupyter.install("--working-directory", "private", "--name", "other")
    assert written["metadata"]["kernel_provisioner"]["config"] == {"working_directory": "private"}


def test_the_provisioner_takes_every_option(jupyter: Jupyter) -> None:
    """As Jupyter does it: what a kernelspec says becomes arguments of the class."""
    options = ["--read-only", sys.prefix, "--env", "A", "--working-directory", "private", "--network", "none"]
    jupyter.install(*options)
    spec = KernelSpecManager().get_kernel_spec("python3-sandbox")
    made = KernelProvisionerFactory.instance().create_provisioner_instance("id", spec, None)
    assert isinstance(made, SandboxProvisioner)
    assert (made.read_only, made.env, made.working_directory) == ([sys.prefix], ["A"], "private")


def test_install_with_prefix_writes_into_the_installation(jupyter: Jupyter, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = jupyter.home / "prefix"
    code, out, err = jupyter(*INSTALL, "--prefix", str(prefix))
    assert (code, out) == (0, f"{prefix}/share/jupyter/kernels/python3-sandbox\n")
    assert f"JUPYTER_PATH has {prefix}/share/jupyter" in err
    monkeypatch.setenv("JUPYTER_PATH", str(prefix / "share" / "jupyter"))
    assert "JUPYTER_PATH" not in jupyter(*INSTALL, "--prefix", str(prefix), "--replace")[2]
    monkeypatch.setattr(sys, "prefix", str(jupyter.home / "environment"))
    out = jupyter(*INSTALL, "--from", "python3", "--name", "x", "--sys-prefix")[1]
    assert out == f"{jupyter.home}/environment/share/jupyter/kernels/x\n"


def test_a_name_that_is_taken_is_replaced_only_on_request(jupyter: Jupyter) -> None:
    jupyter.install("--env", "FIRST")
    why = jupyter.refusal()
    assert f"'python3-sandbox' already ({jupyter.kernels}/python3-sandbox)" in why
    assert "--replace" in why and "--name" in why
    written = jupyter.install("--replace")
    assert written["metadata"]["kernel_provisioner"]["config"] == {}


def test_a_plain_kernelspec_can_be_replaced_by_its_isolated_like(jupyter: Jupyter) -> None:
    jupyter.add("shell")
    assert "'shell' already" in jupyter.refusal("--from", "shell", "--name", "shell")
    assert jupyter.install("--from", "shell", "--name", "shell", "--replace")["language"] == "bash"
    assert (jupyter.kernels / "shell" / "start.sh").exists()


def test_a_kernelspec_that_hides_the_new_one_is_named(jupyter: Jupyter, monkeypatch: pytest.MonkeyPatch) -> None:
    jupyter.install()
    prefix = jupyter.home / "prefix"
    monkeypatch.setenv("JUPYTER_PATH", "")
    monkeypatch.setattr("jupyter_core.paths.ENV_JUPYTER_PATH", [str(prefix / "share" / "jupyter")])
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    code, _, err = jupyter(*INSTALL, "--prefix", str(prefix), "--replace")
    assert code == 0
    assert f"comes before it ({jupyter.kernels}/python3-sandbox)" in err


def test_origin_must_be_a_plain_kernelspec(jupyter: Jupyter) -> None:
    jupyter.install()
    assert "'python3-sandbox' is one with isolation already" in jupyter.refusal("--from", "python3-sandbox")
    add_kernelspec(jupyter.home, "cluster", "cluster-provisioner")
    assert "started by 'cluster-provisioner'" in jupyter.refusal("--from", "cluster")
    why = jupyter.refusal("--from", "nope")
    assert "no kernelspec 'nope' is installed here; --from can be: python3\n" in why
    broken = jupyter.add("broken")
    (broken / "kernel.json").write_text("{")
    assert f"{broken} cannot be read" in jupyter.refusal("--from", "broken")
    jupyter.add("empty", argv=[])
    assert "names no command" in jupyter.refusal("--from", "empty")
    jupyter.add("gone", argv=["no-such-program", "{connection_file}"])
    assert "'no-such-program' is not there; install it" in jupyter.refusal("--from", "gone")


@pytest.mark.parametrize("option", ["--read-only", "--writable", "--working-directory"])
def test_visible_paths_must_exist_and_be_narrow(jupyter: Jupyter, option: str) -> None:
    why = jupyter.refusal(option, str(jupyter.home / "nope"))
    assert f"{option} cannot be used: there is no {jupyter.home}/nope" in why
    assert "is too much" in jupyter.refusal(option, "/")
    assert "is too much" in jupyter.refusal(option, str(jupyter.home / "jupyter_data_dir" / ".."), option, "/etc")


def test_other_invalid_options_are_rejected(jupyter: Jupyter) -> None:
    (jupyter.home / "file").touch()
    assert "is not a directory" in jupyter.refusal("--working-directory", str(jupyter.home / "file"))
    assert "--env 'A=1' cannot be used: it takes names" in jupyter.refusal("--env", "A=1")
    for name in ("..", "a/b", "-x", "a b", "python3+sandbox"):
        assert "--name" in jupyter.refusal(f"--name={name}", "--replace")
    assert "cannot be written" in jupyter.refusal("--prefix", str(jupyter.home / "file"))


def test_one_level_has_to_be_chosen(jupyter: Jupyter, capsys: pytest.CaptureFixture[str]) -> None:
    for levels in ([], ["--sandbox", "--landlock"]):
        with pytest.raises(SystemExit) as caught:
            jupyter("kernelspec", "install", *levels)
        assert caught.value.code == 2
    assert "--landlock" in capsys.readouterr().err


def test_host_network_is_configured_with_a_warning(jupyter: Jupyter) -> None:
    code, out, err = jupyter(*INSTALL, "--network", "host")
    assert code == 0
    assert "SandboxProvisioner.allow_host_network" in err and "without isolation" in err
    document = json.loads(Path(out.strip(), "kernel.json").read_text())
    assert document["metadata"]["kernel_provisioner"]["config"] == {"network": "host"}


def test_a_script_that_a_kernel_would_not_see_is_named(jupyter: Jupyter, tmp_path: Path) -> None:
    script = tmp_path / "elsewhere" / "kernel.sh"
    script.parent.mkdir()
    script.touch()
    jupyter.add("far", argv=["/bin/sh", str(script)])
    assert f"--read-only {script}" in jupyter(*INSTALL, "--from", "far")[2]
    assert str(script) not in jupyter(*INSTALL, "--from", "far", "--replace", "--read-only", str(script.parent))[2]


def test_install_without_sandbox_support_writes_with_a_warning(
    jupyter: Jupyter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SandboxProvisioner, "unavailable", lambda: "bubblewrap is missing; install it")
    code, out, err = jupyter(*INSTALL)
    assert (code, Path(out.strip()).is_dir()) == (0, True)
    assert "the kernel will not start: bubblewrap is missing; install it" in err


def test_landlock_is_a_level_like_the_other(
    jupyter: Jupyter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Landlock:
        level = "landlock"

        @staticmethod
        def unavailable() -> None:
            return None

    class Entry:
        def load(self) -> type[Landlock]:
            return Landlock

    provisioners = KernelProvisionerFactory.instance().provisioners
    monkeypatch.setitem(provisioners, "landlock-provisioner", Entry())
    code, out, _ = jupyter("kernelspec", "install", "--landlock", "--env", "A")
    assert (code, out) == (0, f"{jupyter.kernels}/python3-landlock\n")
    document = json.loads((jupyter.kernels / "python3-landlock" / "kernel.json").read_text())
    assert document["display_name"].endswith("(Landlock)")
    expected = {"provisioner_name": "landlock-provisioner", "config": {"env": ["A"]}}
    assert document["metadata"]["kernel_provisioner"] == expected
    code, _, err = jupyter("kernelspec", "install", "--landlock", "--network", "none", "--name", "x")
    assert (code, "--network is for --sandbox" in err) == (2, True)
    monkeypatch.delitem(provisioners, "landlock-provisioner")
    code, _, err = jupyter("kernelspec", "install", "--landlock", "--name", "x")
    assert (code, "'landlock-provisioner' is not installed here" in err) == (2, True)


# --- list, help ---


def test_the_list_has_provisioner_and_isolation(jupyter: Jupyter) -> None:
    jupyter.install()
    jupyter.install("--network", "host", "--name", "open")
    add_kernelspec(jupyter.home, "cluster", "cluster-provisioner")
    (jupyter.add("broken") / "kernel.json").write_text("{")
    code, out, _ = jupyter("kernelspec", "list")
    rows = {line.split()[0]: line.split()[1:-1] for line in out.splitlines()}
    assert code == 0
    assert rows == {
        "NAME": ["ISOLATION", "PROVISIONER"],
        "broken": ["-", "cannot", "be", "read"],
        "cluster": ["-", "cluster-provisioner", "(not", "installed)"],
        "open": ["none", "sandbox-provisioner", "(host", "network)"],
        "python3": ["none", "local-provisioner"],
        "python3-sandbox": ["sandbox", "sandbox-provisioner"],
    }
    assert f"{jupyter.kernels}/python3-sandbox" in out


def test_without_an_action_the_help_is_shown(tmp_path: Path) -> None:
    for args in (["kernelspec"], ["kernelspec", "--help"], ["kernelspec", "install", "--help"]):
        done = jupyter_exec(tmp_path, *args)
        assert (done.returncode, done.stdout.startswith("usage: jupyter exec kernelspec")) == (0, True), done.stderr


# --- a kernel that runs ---


@needs_sandbox
def test_an_installed_kernelspec_runs_in_a_sandbox(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "given.txt").write_text("given")
    (tmp_path / "out").mkdir()
    seen = ["--read-only", str(tmp_path / "data"), "--writable", str(tmp_path / "out")]
    done = jupyter_exec(tmp_path, *INSTALL, *seen)
    assert done.returncode == 0, done.stderr
    code = (
        "import os\n"
        "print(os.getcwd(), 'sys' in os.listdir('/'))\n"
        f"print(open({str(tmp_path / 'data' / 'given.txt')!r}).read(), os.listdir({str(tmp_path)!r}))\n"
        f"open({str(tmp_path / 'out' / 'made.txt')!r}, 'w').write('made')\n"
    )
    with running_host("server", tmp_path, "--ExecEngine.default_isolation=none") as host:
        at = {"JUPYTER_TOKEN": str(host.info.token)}
        where = ["--server", host.info.url]
        done = jupyter_exec(tmp_path, "run", "--kernel", "python3-sandbox", "-c", code, *where, env=at)
        plain = jupyter_exec(tmp_path, "run", "-c", "import os; print(os.getcwd())", *where, env=at)
    assert done.returncode == 0, done.stderr
    # Of the home directory: what was named, and on the way to the kernelspec's own directory and the sockets.
    assert done.stdout.splitlines()[0] == f"{WORK} False"
    assert done.stdout.splitlines()[1].startswith("given ")
    assert "'root'" not in done.stdout
    assert (tmp_path / "out" / "made.txt").read_text() == "made"
    assert plain.stdout != f"{WORK}\n"
