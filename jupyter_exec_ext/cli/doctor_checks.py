"""Checks of ``jupyter exec doctor``: the extension, the front end, kernelspecs, isolation, and servers."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_config_path, jupyter_path
from jupyter_server.extension.config import ExtensionConfigManager

from .. import __version__
from ..auth.built_in_policies import BUILT_IN
from ..client.sync.client import ExecClient
from ..errors import ApiNotFound, ConnectionFailed, ExecError, IsolationRequired, OwnerOnly, PoliciesInvalid
from ..executors.local import LocalJupyterServer
from ..isolation.common import cgroup
from ..isolation.common.isolation_support import IsolationUnavailableError
from ..isolation.sandbox.bubblewrap import find_tools, run_for_version
from ..models import ISOLATION_LEVELS
from .doctor_command import Finding
from .doctor_policies import check_policies_here, check_secrets, mistake_at
from .kernelspecs.local_kernels import (
    ISOLATABLE,
    PROVISIONERS,
    LocalKernel,
    installed,
    provisioner_class,
    why_unavailable,
)
from .server_choice import client_for

#: Levels of isolation on the server's machine, the strongest first.
LOCAL_LEVELS = ("sandbox", "landlock")
_WORDS = {"sandbox": "sandboxed", "landlock": "isolated by Landlock"}
# Arbitrary limits for a trial control group.
_TRIAL_MEMORY_BYTES, _TRIAL_PROCESSES = 1024**3, 512

NAME = "@jupyter-exec-ext/labextension"
_INSTALL = (
    "install a wheel of this package, which carries it (pip install --force-reinstall --no-deps jupyter-exec-ext), or "
    "from a checkout with Node.js: REQUIRE_LABEXTENSION=1 pip install . ; the server works without it"
)
_REFUSED = "so scoped tokens may not run code there, unless ExecEngine.allow_unprotected_tokens is set"
_ALLOWED = (
    "scoped tokens may run code there all the same (ExecEngine.allow_unprotected_tokens), so their scopes and policies "
    "bind well-behaved code only"
)
_MORE_ISOLATION = (
    "install bubblewrap 0.7 or newer on the server's machine (apt install bubblewrap) and allow user namespaces there; "
    "or use a provisioner that isolates, and name it in ExecEngine.isolation_levels"
)
_CONTROL_GROUPS = (
    "let servers make control groups with the controllers 'memory' and 'pids' (systemd: Delegate=yes in their unit; a "
    "container: /sys/fs/cgroup mounted so that it can be written)"
)


def unprotected(names: Sequence[str], level: str | None, *, allowed: bool = False) -> Iterator[Finding]:
    """Report kernels without isolation, and the consequences.

    Parameters
    ----------
    names : sequence of str
        Their kernelspecs.
    level : str or None
        The strongest isolation that these kernels can get on request; None for none.
    allowed : bool
        Whether scoped tokens may use them without isolation.
    """
    if names:
        given = (
            f"scoped tokens get the isolation {level!r} for them, if their policy requires no more; for yourself, ask "
            f"for it (jupyter exec run --isolation {level}), or set ExecEngine.default_isolation"
        )
        yield Finding(
            f"without isolation: {', '.join(names)}; code in these kernels has all rights of the server's user",
            _ALLOWED if allowed else _REFUSED if level is None else given,
            fails=False,
        )


def refused_policies(required: Mapping[str, str], levels: Sequence[str], remedy: str) -> Iterator[Finding]:
    """Report policies that require more isolation than any kernel has.

    Parameters
    ----------
    required : mapping
        The isolation that each policy requires, by the policy's name.
    levels : sequence of str
        The isolation that kernels can have.
    remedy : str
        How kernels get more.
    """
    most = max(map(ISOLATION_LEVELS.index, levels), default=0)
    wanting = [f"{name} ({level})" for name, level in required.items() if ISOLATION_LEVELS.index(level) > most]
    if wanting:
        yield Finding(
            f"no kernel is isolated as these policies require: {', '.join(wanting)}; their tokens are refused, since "
            f"kernels get {ISOLATION_LEVELS[most]!r} at most",
            remedy,
            fails=False,
        )


def level_on_request(client: ExecClient, kernel_name: str) -> str | None:
    """Return the strongest isolation that a server gives a kernel on request, found by starting it."""
    for level in LOCAL_LEVELS:
        try:
            client.session(kernel_name, isolation=level).close()
        except IsolationRequired:
            continue
        except ExecError:  # the server failed for another reason, which the next check reports
            return None
        return level
    return None


def problems_here() -> dict[str, str | None]:
    """Return, for each level of isolation, the problem that it has on this machine, or None."""
    # If no provisioner is installed, the sandbox alone is reported, with that as its problem.
    present = [level for level in LOCAL_LEVELS if provisioner_class(PROVISIONERS[level]) is not None]
    return {level: why_unavailable(level) for level in present or LOCAL_LEVELS[:1]}


def isolation_here(kernels: Sequence[LocalKernel], problems: Mapping[str, str | None]) -> Iterator[Finding]:
    """Report the isolation that kernels of this machine can have, and its limits.

    Parameters
    ----------
    kernels : sequence of LocalKernel
        The installed kernelspecs.
    problems : mapping
        The result of `problems_here`.
    """
    if not sys.platform.startswith("linux"):
        yield Finding(
            f"kernels can be isolated on Linux only, and this is {sys.platform}",
            "for code that is not yours, use a server on Linux or a remote kernel",
            fails=False,
        )
        return
    for level, problem in problems.items():
        if problem is None:
            by = f" ({_bubblewrap()})" if level == "sandbox" else ""
            yield Finding(f"kernels can be {_WORDS[level]} here{by}")
            continue
        # Isolation is optional, so only a kernelspec that asks for it fails.
        broken = [kernel.name for kernel in kernels if kernel.level == level]
        which = f", so these do not start: {', '.join(broken)}" if broken else ""
        yield Finding(f"kernels cannot be {_WORDS[level]} here{which}", problem, fails=bool(broken))
    if problems.get("sandbox", "") is None:
        yield from _limits()


def _bubblewrap() -> str:
    try:
        done = run_for_version(find_tools().bwrap)
    except IsolationUnavailableError:  # it worked a moment before
        return "bubblewrap"
    return done.stdout.decode("utf-8", "replace").strip() or "bubblewrap"


def _limits() -> Iterator[Finding]:
    """Report the limits that hold for all processes of a sandbox together."""
    group = cgroup.new_group(_TRIAL_MEMORY_BYTES, _TRIAL_PROCESSES)
    limits = [] if group is None else group.limits
    if group is not None:  # a server makes its own; this one was a trial
        group.remove()
    if "memory" in limits:
        yield Finding("the memory of a sandbox is limited as a whole (control group)")
    else:
        yield Finding(
            "the memory of a sandbox is not limited as a whole, but that of each of its processes",
            _CONTROL_GROUPS,
            fails=False,
        )
    if "processes" in limits:
        yield Finding("the number of processes of a sandbox is limited (control group)")
    elif os.geteuid() == 0:  # RLIMIT_NPROC does not bind root
        yield Finding(
            "the number of processes of a sandbox is not limited where the server runs as root: code can start "
            "processes until the machine has no more (a fork bomb)",
            f"run servers as another user, or {_CONTROL_GROUPS}",
            fails=False,
        )
    else:
        yield Finding("the number of processes of a sandbox is limited (RLIMIT_NPROC)")


def front_end() -> Iterator[Finding]:
    """Check the front end in the directories that JupyterLab and Notebook load, if one of them is installed."""
    if find_spec("jupyterlab_server") is None:
        return
    from jupyterlab_server.config import get_page_config

    paths = jupyter_path("labextensions")
    found = next((path for path in (Path(place, NAME, "package.json") for place in paths) if path.is_file()), None)
    if found is None:
        yield Finding("the JupyterLab front end is not installed", _INSTALL, fails=False)
        return
    page = get_page_config(paths)
    loaded = [extension["name"] for extension in page["federated_extensions"]]
    theirs = str(json.loads(found.read_text()).get("version"))
    if NAME not in loaded:
        yield Finding(f"the JupyterLab front end is not whole ({found.parent})", _INSTALL)
    elif NAME in page["disabledExtensions"]:
        yield Finding("the JupyterLab front end is disabled", f"jupyter labextension enable {NAME}", fails=False)
    elif theirs != __version__:
        what = f"the JupyterLab front end is of version {theirs}, and this package is {__version__} ({found.parent})"
        yield Finding(what, _INSTALL)
    else:
        yield Finding("the JupyterLab front end is enabled")


def check_installation() -> Iterator[Finding]:
    """Check the extension, the front end and the kernelspecs of this machine, then run code on a gateway."""
    for check in (_extension, check_policies_here, front_end, _kernelspecs, _gateway):
        yield from check()


def _extension() -> Iterator[Finding]:
    """Check whether Jupyter Server has the extension enabled."""
    paths = jupyter_config_path()
    manager: Any = ExtensionConfigManager(read_config_path=paths)  # without types
    enabled = manager.get_jpserver_extensions().get("jupyter_exec_ext")
    if enabled:
        yield Finding("the server extension is enabled")
    else:
        state = "disabled" if enabled is False else "not enabled"
        yield Finding(f"the server extension is {state}", "jupyter server extension enable jupyter_exec_ext")


def _kernelspecs() -> Iterator[Finding]:
    def described(kernel: LocalKernel) -> Finding:
        what = f"kernelspec {kernel.name} ({kernel.directory})"
        if kernel.spec is None:
            return Finding(f"{what} cannot be read: {kernel.problem}", "correct or remove it", fails=False)
        if not kernel.is_startable:
            return Finding(f"{what} is not usable", f"install what provides {kernel.provisioner!r}", fails=False)
        return Finding(what if kernel.level == "none" else f"{what} is isolated: {kernel.level}")

    kernels = installed()
    yield from map(described, kernels)
    usable = [kernel for kernel in kernels if kernel.spec is not None and kernel.is_startable]
    if not usable:
        yield Finding("no kernelspec is installed", "pip install ipykernel")
    problems = problems_here()
    yield from isolation_here(usable, problems)
    level = next((level for level, problem in problems.items() if problem is None), None)
    yield from unprotected([kernel.name for kernel in usable if kernel.provisioner in ISOLATABLE], level)
    levels = [level or "none" for kernel in usable if kernel.provisioner in ISOLATABLE]
    levels += [kernel.level for kernel in usable if kernel.level not in LOCAL_LEVELS or kernel.level == level]
    sandbox = problems.get("sandbox")
    how = f"for the isolation 'sandbox': {sandbox}" if sandbox else _MORE_ISOLATION
    yield from refused_policies({policy.name: policy.isolation for policy in BUILT_IN.values()}, levels, how)
    # The host network undoes the isolation of their provisioner.
    yield from unprotected([kernel.name for kernel in usable if kernel.has_host_network], None)


def _gateway() -> Iterator[Finding]:
    """Start a gateway and run code on it, as an executor would."""
    try:
        # A log file of its own: the default one would be left in the current directory.
        with (
            tempfile.TemporaryDirectory() as logs,
            LocalJupyterServer(log_file=str(Path(logs) / "gateway.log")) as server,
            ExecClient(server) as client,
        ):
            yield from _run_something(client)
    except PoliciesInvalid as error:
        yield mistake_at("a gateway with your configuration", error)
    except (ExecError, ValueError, OSError) as error:
        yield Finding(f"a gateway cannot be started: {error}", "read the lines above; the last one names the cause")


def check_server(args: argparse.Namespace) -> Iterator[Finding]:
    """Check a server through its API."""
    with client_for(args) as client:
        try:
            info = client.info()
        except ApiNotFound as error:
            yield Finding(f"{client.connection_info.url} is a Jupyter server without exec/v1", error.message)
            return
        except ConnectionFailed as error:
            yield Finding(f"{client.connection_info.url}: {error.message}", "start the server, or check the address")
            return
        except PoliciesInvalid as error:
            yield mistake_at(client.connection_info.url, error)
            return
        except ExecError as error:
            yield Finding(f"{client.connection_info.url} does not let us in", error.message)
            return
        yield Finding(f"{client.connection_info.url}: {info['host']} {info['host_version']}, exec/v1 {info['version']}")
        policies = _policies(client, info)
        yield from _isolation(client, info, policies)
        yield from check_secrets(client, policies)
        yield from _run_something(client)


def _isolation(client: ExecClient, info: dict[str, Any], policies: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    """Report the isolation of the kernels that the caller may use, and its consequences."""
    specs = client.kernelspecs()
    for spec in specs:
        if spec.isolation != "none":
            yield Finding(f"kernelspec {spec.name} is isolated: {spec.isolation}")
    open_ = [spec for spec in specs if spec.isolation == "none"]
    if not open_:
        return
    plain = [spec.name for spec in open_ if spec.provisioner in ISOLATABLE]
    # Only the server knows what its configuration and machine allow, so one kernel is started to find out.
    level = level_on_request(client, plain[0]) if plain else None
    if level is not None:
        yield Finding(f"kernels get the isolation {level!r} there where it is asked for or required")
    allowed = bool(info.get("unprotected_tokens"))
    yield from unprotected(plain, level, allowed=allowed)
    yield from unprotected([spec.name for spec in open_ if spec.provisioner not in ISOLATABLE], None, allowed=allowed)
    levels = [level or "none", *(spec.isolation for spec in specs)]
    required = {str(policy["name"]): str(policy["isolation"]) for policy in policies}
    yield from refused_policies(required, levels, _MORE_ISOLATION)


def _policies(client: ExecClient, info: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the server's policies or, for the bearer of a scoped token, those that hold for it."""
    if "tokens" not in info["features"]:  # a server of an earlier version
        return ()
    try:
        return client.tokens.policies()
    except OwnerOnly:
        return [*info["policies"]]


def _run_something(client: ExecClient) -> Iterator[Finding]:
    try:
        with client.session() as session:
            result = session.run("print(6 * 7)", timeout_seconds=30.0)
    except ExecError as error:
        yield Finding("no code can be run", error.message)
        return
    if result.ok and result.stdout == "42\n":
        yield Finding(f"code runs in kernel {session.record.kernel_name}")
    else:
        yield Finding(f"code does not run as it should: {result.state.value}", result.reason or result.stderr or "-")
