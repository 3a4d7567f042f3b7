"""Outside parts: programs and kernel features that tests need and pip cannot install.

A test names its parts with ``@pytest.mark.needs("bubblewrap")``. A fixture or helper calls `require_part`. Where a part
is missing the test is skipped, and the end of the run lists the skips by part with the way to install each. With
`VARIABLE` set, as ``.ci/run`` does, a missing part that a command installs fails the test instead.

`outside_parts_plugin` is the pytest plugin with the marker and the list.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

#: Environment variable that turns each skip for a missing part into a failure.
VARIABLE = "EXEC_TEST_REQUIRE_PARTS"
#: Environment variable with the Python of an environment that has ``jupyter_enterprise_gateway``, which cannot be
#: installed beside a Jupyter Server of today.
ENTERPRISE_GATEWAY_VARIABLE = "EXEC_TEST_ENTERPRISE_GATEWAY"
#: Library that gives a process a wall clock of its own.
FAKETIME = Path("/usr/lib") / str(sysconfig.get_config_var("MULTIARCH")) / "faketime" / "libfaketimeMT.so.1"
#: JupyterHub's proxy, as npm installs it.
HUB_PROXY = Path(__file__).parent.parent / "hub" / "node_modules" / ".bin" / "configurable-http-proxy"
_DOCKER_SOCKET = Path("/var/run/docker.sock")
_PROBE_SECONDS = 10.0


@dataclass(frozen=True)
class OutsidePart:
    """One part, how to find it, and how to install it.

    Parameters
    ----------
    find_problem : callable
        Return why the part cannot be used here, or None if it can. It runs once a process.
    install : str
        A command, or the setting of the machine where no command installs it.
    requires : tuple of str
        Names of parts to look for first. A missing one is reported instead of this part.
    is_of_machine : bool
        Whether it is a feature of the machine that no command installs. Its tests are skipped where it is missing,
        whatever is set.
    """

    find_problem: Callable[[], str | None]
    install: str
    requires: tuple[str, ...] = ()
    is_of_machine: bool = False


@dataclass(frozen=True)
class MissingPart:
    """A part that is not here."""

    name: str
    problem: str
    install: str
    is_of_machine: bool = False

    def __str__(self) -> str:
        return f"needs {self.name}: {self.problem}; to install it: {self.install}"


def _program(*names: str) -> Callable[[], str | None]:
    """Return a probe for programs on the PATH."""

    def find_problem() -> str | None:
        missing = [name for name in names if shutil.which(name) is None]
        return f"{' and '.join(missing)} not found on the PATH" if missing else None

    return find_problem


def _module(name: str) -> Callable[[], str | None]:
    """Return a probe for a Python package."""
    return lambda: None if importlib.util.find_spec(name) else f"{name} is not installed"


def _file(path: Path) -> Callable[[], str | None]:
    """Return a probe for a file."""
    return lambda: None if path.exists() else f"there is no {path}"


def _find_engine_problem() -> str | None:
    # An engine that is named but does not answer is a fault of the machine; the tests then fail.
    if "DOCKER_HOST" in os.environ or _DOCKER_SOCKET.exists():
        return None
    return _program("podman", "runc")()


def _find_user_namespace_problem() -> str | None:
    command = ["unshare", "--user", "--map-current-user", "--keep-caps", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    return done.stderr.strip() or f"unshare exited with {done.returncode}" if done.returncode else None


def _find_mount_problem() -> str | None:
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]  # in mounts of its own, which end with it
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    return done.stderr.strip() or f"mount exited with {done.returncode}" if done.returncode else None


def _find_loop_problem() -> str | None:
    if problem := _program("mkfs.xfs")():
        return problem
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    return _find_mount_problem()


def _find_network_namespace_problem() -> str | None:
    if problem := _program("ip", "nsenter")():
        return problem
    command = ["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "ip", "link", "add", "br0", "type", "bridge"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    return done.stderr.strip() or f"ip exited with {done.returncode}" if done.returncode else None


def _find_slurm_problem() -> str | None:
    if importlib.util.find_spec("batchspawner") is None:
        return "batchspawner is not installed"
    return _program("slurmctld", "slurmd", "sbatch", "munged")()


def _find_immutable_file_problem() -> str | None:
    if problem := _program("chattr")():
        return problem
    with tempfile.NamedTemporaryFile() as file:
        done = subprocess.run(["chattr", "+i", file.name], capture_output=True, text=True, check=False)
        subprocess.run(["chattr", "-i", file.name], capture_output=True, check=False)
    return done.stderr.strip() if done.returncode else None


def _find_sandbox_problem() -> str | None:
    # Imported here: environments of agent frameworks load this module without the server's dependencies.
    from jupyter_exec_ext.isolation.sandbox import SandboxProvisioner

    return SandboxProvisioner.unavailable()


def _find_landlock_problem() -> str | None:
    from jupyter_exec_ext.isolation.landlock import ruleset  # as above

    try:
        abi = ruleset.abi()
    except OSError as error:
        return f"the kernel has no Landlock ({os.strerror(error.errno or 0)})"
    if abi >= ruleset.MIN_ABI:
        return None
    return f"the kernel has version {abi} of Landlock, and {ruleset.MIN_ABI} is needed"


def _find_control_group_problem() -> str | None:
    from jupyter_exec_ext.isolation.common.cgroup import new_group  # as above

    group = new_group(None, 10)
    if group is None:
        return "this user cannot create control groups"
    limits = group.limits
    group.remove()
    return None if "processes" in limits else "control groups do not count processes here"


def _find_enterprise_gateway_problem() -> str | None:
    python = os.environ.get(ENTERPRISE_GATEWAY_VARIABLE, "")
    if not python:
        return f"{ENTERPRISE_GATEWAY_VARIABLE} names no Python"
    return _program(python)()


PARTS: dict[str, OutsidePart] = {
    "bubblewrap": OutsidePart(_program("bwrap"), "apt-get install bubblewrap"),
    "user namespaces": OutsidePart(
        _find_user_namespace_problem,
        "sysctl -w user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1; "
        "in a container also --security-opt seccomp=unconfined; a chroot has none",
    ),
    "sandbox": OutsidePart(
        _find_sandbox_problem, "see docs/howto/isolate-kernels.md", ("bubblewrap", "user namespaces")
    ),
    "Landlock": OutsidePart(
        _find_landlock_problem, "Linux 6.12 or newer with landlock in the boot parameter lsm=", is_of_machine=True
    ),
    "control groups": OutsidePart(
        _find_control_group_problem,
        "mount /sys/fs/cgroup writable; in a container --cgroupns=private --privileged",
        is_of_machine=True,
    ),
    "file system that shares blocks": OutsidePart(
        _find_loop_problem, "apt-get install xfsprogs; loop devices are of the machine", is_of_machine=True
    ),
    "mounts": OutsidePart(
        _find_mount_problem,
        "run the tests as root; in a container with --cap-add=SYS_ADMIN; in a chroot, mount its root on itself",
        is_of_machine=True,
    ),
    "network namespaces": OutsidePart(
        _find_network_namespace_problem,
        "apt-get install iproute2, and run the tests as root; in a container with --privileged",
        is_of_machine=True,
    ),
    "Slurm": OutsidePart(
        _find_slurm_problem,
        "apt-get install slurmctld slurmd slurm-client munge && pip install batchspawner",
        ("network namespaces",),
        is_of_machine=True,
    ),
    "immutable files": OutsidePart(
        _find_immutable_file_problem,
        "apt-get install e2fsprogs, and run the tests as root with a /tmp on ext4, XFS or Btrfs; "
        "in a container with --cap-add=LINUX_IMMUTABLE",
        is_of_machine=True,
    ),
    "container engine": OutsidePart(
        _find_engine_problem, "apt-get install podman runc catatonit netavark iptables, or start Docker"
    ),
    "debootstrap": OutsidePart(_program("debootstrap"), "apt-get install debootstrap"),
    "node and npm": OutsidePart(_program("node", "npm"), "install Node.js 20 with npm (apt-get install nodejs npm)"),
    "configurable-http-proxy": OutsidePart(
        _file(HUB_PROXY), "install Node.js 20 with npm (apt-get install nodejs npm), then npm ci --prefix tests/hub"
    ),
    "kernel headers": OutsidePart(_file(Path("/usr/include/asm-generic/unistd.h")), "apt-get install linux-libc-dev"),
    "libfaketime": OutsidePart(_file(FAKETIME), "apt-get install libfaketime"),
    "tmux": OutsidePart(_program("tmux", "bash"), "apt-get install tmux"),
    "zsh": OutsidePart(_program("zsh"), "apt-get install zsh", ("tmux",)),
    "fish": OutsidePart(_program("fish"), "apt-get install fish", ("tmux",)),
    "curl": OutsidePart(_program("curl"), "apt-get install curl"),
    "nginx": OutsidePart(_program("nginx"), "apt-get install nginx"),
    "caddy": OutsidePart(_program("caddy"), "apt-get install caddy"),
    "prometheus": OutsidePart(_program("prometheus", "promtool"), "apt-get install prometheus"),
    "docker-compose": OutsidePart(_program("docker-compose"), "apt-get install docker-compose", ("container engine",)),
    "chromium": OutsidePart(
        _program(os.environ.get("CHROMIUM") or "chromium"), "apt-get install chromium, or set CHROMIUM to its path"
    ),
    "scikit-learn": OutsidePart(_module("sklearn"), "pip install scikit-learn"),
    "Enterprise Gateway": OutsidePart(
        _find_enterprise_gateway_problem,
        "python3 -m venv .bench/gateway && .bench/gateway/bin/pip install jupyter_enterprise_gateway ipykernel && "
        f"export {ENTERPRISE_GATEWAY_VARIABLE}=$PWD/.bench/gateway/bin/python",
    ),
}


@cache
def find_missing(name: str) -> MissingPart | None:
    """Return why a part, or one that it requires, is missing; None if it is here. The answer is cached.

    Raises
    ------
    KeyError
        If no part has this name.
    """
    part = PARTS[name]
    for required in part.requires:
        if missing := find_missing(required):
            return missing
    problem = part.find_problem()
    return MissingPart(name, problem, part.install, part.is_of_machine) if problem else None


def require_part(*names: str) -> None:
    """Skip the test that runs where one of these parts is missing.

    Where `VARIABLE` is set, and a command installs the part, the test fails.

    Raises
    ------
    KeyError
        If no part has one of the names.
    """
    for name in names:
        if missing := find_missing(name):
            if os.environ.get(VARIABLE) and not missing.is_of_machine:
                pytest.fail(f"{missing} ({VARIABLE} is set)", pytrace=False)
            pytest.skip(str(missing))
