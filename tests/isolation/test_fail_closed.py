"""Without something that a sandbox needs there is no kernel: the reason has a name, and the message a remedy."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import zmq.asyncio
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.paths import jupyter_runtime_dir
from traitlets import TraitError

from jupyter_exec_ext.isolation.common.visible_files import VisibleFilesError
from jupyter_exec_ext.isolation.sandbox import IsolationUnavailableError
from tests.support.bearers import mint, owner_of
from tests.support.hosts import Host, running_host
from tests.support.kernelspecs import add_kernelspec, with_provisioner
from tests.support.outside_parts import require_part
from tests.support.sandbox_leftovers import IN_NAMESPACES, WITHOUT_RIGHTS, Watch

ROOT = Path(__file__).parent.parent.parent
# Runs the rest of the command line where no process can take on a filter of system calls.
FORBIDS_SECCOMP = """
import ctypes, platform, struct, sys, os
prctl_number, seccomp_number = {"x86_64": (157, 317), "aarch64": (167, 277)}[platform.machine()]
LOAD, EQUAL, RETURN, ALLOW, EINVAL = 0x20, 0x15, 0x06, 0x7FFF0000, 0x50000 + 22
program = [
    (LOAD, 0, 0, 0),
    (EQUAL, 4, 0, seccomp_number),
    (EQUAL, 0, 2, prctl_number),
    (LOAD, 0, 0, 16),
    (EQUAL, 1, 0, 22),
    (RETURN, 0, 0, ALLOW),
    (RETURN, 0, 0, EINVAL),
]
code = b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
word = ctypes.c_ulong
assert libc.prctl(38, word(1), word(0), word(0), word(0)) == 0
assert libc.prctl(22, word(2), ctypes.byref(Program(len(program), code)), word(0), word(0)) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
NO_NAMESPACES = f'echo 0 > /proc/sys/user/max_user_namespaces && exec {shlex.join(WITHOUT_RIGHTS)} "$@"'
# In a mount namespace of its own, another file is where a program was.
INSTEAD = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
# Runs the rest of the command line as Python does, on what says to be another system.
ELSEWHERE = """
import runpy, sys, types
from jupyter_exec_ext.isolation.common import isolated_provisioner as provisioner
from jupyter_exec_ext.isolation.common import isolation_support as support
support.sys = provisioner.sys = types.SimpleNamespace(platform={platform!r})
_, _, _, module, *arguments = sys.argv
sys.argv = [module, *arguments]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""

# What is missing: the reason that is given, and some of what is said.
MISSING = {
    "bubblewrap": ("no_bubblewrap", "bwrap", "apt install bubblewrap"),
    "new bubblewrap": ("old_bubblewrap", "0.4.1", "0.7", "apt install bubblewrap"),
    "working bubblewrap": ("bubblewrap_failed", "does not work", "apt install bubblewrap"),
    "prlimit": ("no_prlimit", "prlimit", "install util-linux"),
    "setsid": ("no_setsid", "setsid", "install util-linux"),
    "user namespaces": ("no_user_namespaces", "user.max_user_namespaces", "apparmor", "landlock"),
    "seccomp": ("no_seccomp", "CONFIG_SECCOMP_FILTER", "container"),
    "known architecture": ("unknown_architecture", "i686", "x86_64 and aarch64", "remote kernel"),
    "Linux, but macOS": ("not_linux", "darwin", "remote kernel"),
    "Linux, but Windows": ("not_linux", "win32", "remote kernel"),
}


def command_without(what: str, tmp_path: Path) -> list[str]:
    """Return a command that runs another one, for which something is missing."""
    if not what.startswith("Linux"):
        require_part("sandbox")  # all else must be there
    if what == "user namespaces":
        return [*IN_NAMESPACES, "sh", "-c", NO_NAMESPACES, "sh"]
    if what == "seccomp":
        return [sys.executable, "-c", FORBIDS_SECCOMP]
    if what == "known architecture":
        return ["setarch", "i686"]
    if what.startswith("Linux"):
        platform = MISSING[what][1]
        return [sys.executable, "-c", ELSEWHERE.format(platform=platform)]
    says = {"new bubblewrap": "echo bubblewrap 0.4.1", "working bubblewrap": "exit 1"}.get(what)
    other = tmp_path / "other"
    other.write_text("" if says is None else f"#!/bin/sh\n{says}\n")
    other.chmod(0o644 if says is None else 0o755)  # what cannot be executed is no program
    program = shutil.which({"prlimit": "prlimit", "setsid": "setsid"}.get(what, "bwrap"))
    assert program is not None
    return [*IN_NAMESPACES, "--mount", "sh", "-c", INSTEAD, "sh", str(other), os.path.realpath(program)]


def said(message: str, what: str) -> bool:
    return all(words.lower() in message.lower() for words in MISSING[what][1:])


def add_kernelspec_with(home: Path, **config: Any) -> None:
    add_kernelspec(home, "boxed", "sandbox-provisioner")
    path = home / "jupyter_data_dir" / "kernels" / "boxed" / "kernel.json"
    spec = json.loads(path.read_text())
    spec["metadata"]["kernel_provisioner"]["config"] = config
    path.write_text(json.dumps(spec))


def test_each_missing_part_has_a_reason_and_a_message_of_its_own() -> None:
    assert len({reason for reason, *_ in MISSING.values()}) == len(MISSING) - 1  # two systems are not Linux
    assert len({words[1:] for words in MISSING.values()}) == len(MISSING)


@pytest.mark.parametrize("what", MISSING)
def test_a_kernel_is_refused_and_no_process_is_started_without(what: str, tmp_path: Path) -> None:
    """By the provisioner itself, and by a kernel manager."""
    add_kernelspec_with(tmp_path)
    (tmp_path / "work").mkdir()
    command = [sys.executable, "-m", "tests.isolation.refused", str(tmp_path)]
    done = subprocess.run(
        [*command_without(what, tmp_path), *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for refusal in ("provisioner", "manager"):
        assert found[refusal]["error"] == "IsolationUnavailableError", found
        assert found[refusal]["reason"] == MISSING[what][0], found
        assert said(found[refusal]["message"], what), found
    assert found["unavailable"] == found["provisioner"]["message"]
    assert found["left"] == {}
    assert set(found["started"]) <= {"bwrap"}  # to ask for its version and to try it


@pytest.mark.parametrize("what", MISSING)
def test_a_server_refuses_kernels_without(what: str, tmp_path: Path) -> None:
    """To its owner, by its own choice and by a kernelspec's, and to a scoped token."""
    add_kernelspec_with(tmp_path)
    options = ["--ExecEngine.default_isolation=sandbox"]
    with running_host("server", tmp_path, *options, prefix=command_without(what, tmp_path)) as host:
        for bearer in (owner_of(host), mint(host)):
            for request in ({}, {"kernel_name": "python3"}, {"isolation": "sandbox"}, {"kernel_name": "boxed"}):
                answer = bearer.call("POST", "/sessions", json=request)
                assert (answer.status_code, answer.json()["code"]) == (403, "isolation_required"), answer.text
                assert said(answer.json()["message"], what), answer.text
            assert bearer.call("GET", "/sessions").json()["sessions"] == []
        assert kernels_of(host) == []


def kernels_of(host: Host) -> list[str]:
    """Return the kernels that run below a server, and those that it says to have."""
    commands = [" ".join(child.cmdline()) for child in psutil.Process(host.pid).children(recursive=True)]
    running = [command for command in commands if "ipykernel" in command or "bwrap" in command]
    url = f"{host.info.url}api/kernels"
    return running + [kernel["id"] for kernel in requests.get(url, headers=host.info.auth_headers, timeout=30).json()]


@pytest.mark.needs("sandbox")
def test_a_directory_for_sockets_that_others_can_enter_is_no_place_for_them(tmp_path: Path) -> None:
    """Somebody else can have made it before; other kernels are served all the same."""
    runtime = Path(tempfile.mkdtemp(prefix="jex"))  # short, as the path of a socket must be
    (runtime / "jex").mkdir()
    (runtime / "jex").chmod(0o755)
    with running_host("server", tmp_path, env={"XDG_RUNTIME_DIR": str(runtime)}) as host:
        answer = mint(host).call("POST", "/sessions", json={"isolation": "sandbox"})
        assert (answer.status_code, answer.json()["code"]) == (403, "isolation_required"), answer.text
        assert f"{runtime}/jex, for the sockets of kernels" in answer.json()["message"]
        assert "remove it" in answer.json()["message"]
        plain = owner_of(host).session()
        assert owner_of(host).run(plain, "1").json()["state"] == "ok"
    shutil.rmtree(runtime)


# --- what a kernelspec must not ask for ---


def home(tmp_path: Path) -> Path:
    return Path.home()


def runtime(tmp_path: Path) -> Path:
    Path(jupyter_runtime_dir()).mkdir(parents=True, exist_ok=True)
    return tmp_path


def installation(tmp_path: Path) -> Path:
    return Path(sys.prefix)


def part_of_installation(tmp_path: Path) -> Path:
    return Path(sys.prefix, "lib")


PLACES: list[Callable[[Path], Path]] = [home, runtime, installation, part_of_installation]


@pytest.fixture
def watch() -> Watch:
    return Watch()


async def refusal(tmp_path: Path, error: type[Exception], cwd: Path, **config: Any) -> Exception:
    """Return why a kernel manager does not start a kernel."""
    require_part("sandbox")
    add_kernelspec_with(tmp_path, **config)
    with zmq.asyncio.Context() as context:
        file = str(tmp_path / "kernel.json")
        manager = AsyncKernelManager(kernel_name="boxed", connection_file=file, context=context)
        with pytest.raises(error) as refused:
            await manager.start_kernel(cwd=str(cwd))
        assert not manager.has_kernel
        # Whoever cleans up when the process ends finds nothing that takes a thread, which cannot be started any more.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ThreadPoolExecutor, "submit", None)
            await manager.cleanup_resources()
    return refused.value


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("by", ["kernelspec", "caller"])
async def test_a_working_directory_with_too_much_in_it_is_refused(
    tmp_path: Path, watch: Watch, place: Callable[[Path], Path], by: str
) -> None:
    directory = place(tmp_path)
    config = {"working_directory": str(directory)} if by == "kernelspec" else {}
    error = await refusal(
        tmp_path, VisibleFilesError, directory if by == "caller" else tmp_path / "elsewhere", **config
    )
    assert str(directory) in str(error)
    assert "start it" in str(error)
    assert watch.left() == {}


@pytest.mark.parametrize("place", [home, runtime])
@pytest.mark.parametrize("name", ["read_only", "writable"])
async def test_a_kernelspec_cannot_show_secrets(
    tmp_path: Path, watch: Watch, place: Callable[[Path], Path], name: str
) -> None:
    (tmp_path / "work").mkdir()
    error = await refusal(tmp_path, VisibleFilesError, tmp_path / "work", **{name: [str(place(tmp_path))]})
    assert "name the directories below that are needed" in str(error)
    assert watch.left() == {}


@pytest.mark.parametrize("key", ["max_processes", "allow_host_network", "command", "seccomp"])
async def test_a_kernelspec_cannot_set_what_is_the_administrators(tmp_path: Path, watch: Watch, key: str) -> None:
    error = await refusal(tmp_path, ValueError, tmp_path, **{key: 1})
    assert f"cannot set {key}" in str(error)
    assert "it can set read_only" in str(error)
    assert watch.left() == {}


async def test_the_machines_network_is_refused_unless_it_is_allowed(tmp_path: Path, watch: Watch) -> None:
    error = await refusal(tmp_path, IsolationUnavailableError, tmp_path, network="host")
    assert isinstance(error, IsolationUnavailableError)
    assert error.reason == "host_network"
    assert "SandboxProvisioner.allow_host_network" in str(error)
    assert watch.left() == {}


async def test_a_network_that_is_none_of_those_there_are_is_refused(tmp_path: Path) -> None:
    await refusal(tmp_path, TraitError, tmp_path, network="some")


# --- what starts kernels is not what it says to be ---

PRETENDER = """
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

class Pretender(LocalProvisioner):
    level = "sandbox"
    unavailable = classmethod(lambda cls: None)
    sweep = classmethod(lambda cls: None)

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.level = "none"
"""


@pytest.mark.parametrize(
    "kind", ["pretender:Pretender", "jupyter_client.provisioning.local_provisioner:LocalProvisioner"]
)
def test_a_server_refuses_kernels_that_were_started_without_the_isolation_they_should_have(
    tmp_path: Path, kind: str
) -> None:
    """Under the sandbox's name something else is installed, which starts plain kernels."""
    add_kernelspec_with(tmp_path)
    add_kernelspec(tmp_path, "python3", "local-provisioner")  # the other provisioners of the package are not there
    env = with_provisioner(tmp_path, "sandbox-provisioner", kind=kind, package="jupyter-exec-ext")
    (tmp_path / "plugins" / "pretender.py").write_text(PRETENDER)
    with running_host("server", tmp_path, "--ExecEngine.default_isolation=sandbox", env=env) as host:
        for bearer in (owner_of(host), mint(host)):
            for request in ({}, {"isolation": "sandbox"}, {"kernel_name": "boxed"}):
                answer = bearer.call("POST", "/sessions", json=request)
                assert answer.status_code == 403, (answer.text, host.log_text())
                assert answer.json()["code"] == "isolation_required"
        assert kernels_of(host) == []
