"""``jupyter exec doctor``: checks the installation or a server, and prints remedies."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from ..client.sync.client import ExecClient
from ..errors import ApiNotFound, ConnectionFailed, ExecError, OwnerOnly
from ..models import ISOLATION_LEVELS
from .common_options import add_command
from .doctor_checks import Finding, front_end, isolation_here, level_on_request, problems_here, unprotected
from .server_choice import add_server_options, client_for

_DISTRIBUTION = "jupyter-exec-ext"


def add_doctor_command(commands: Any) -> None:
    """Add ``jupyter exec doctor``."""
    parser = add_command(commands, "doctor", "check the installation, and say what to do about what is wrong", doctor)
    add_server_options(parser, None, "only this machine is checked")


def doctor(args: argparse.Namespace) -> int:
    """Print the findings; return 1 if any check has failed."""
    checks: list[Callable[[], Iterator[Finding]]] = [_packages, _extension, front_end, _kernelspecs, _gateway]
    if any(where is not None for where in (args.server, args.hub, args.binder, args.docker)):
        checks = [lambda: _server(args)]
    healthy = True
    for check in checks:
        for finding in check():
            healthy = healthy and finding.mark != "FAIL"
            print(f"{finding.mark:4}  {finding.what}", flush=True)
            if finding.remedy:
                print(f"      -> {finding.remedy}", flush=True)
    return 0 if healthy else 1


def _packages() -> Iterator[Finding]:
    """Compare installed packages with the requirements of this one."""
    from packaging.requirements import Requirement

    yield Finding(f"Python {sys.version.split()[0]}, {_DISTRIBUTION} {version(_DISTRIBUTION)}")
    for line in requires(_DISTRIBUTION) or []:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            yield Finding(f"{requirement.name} is not installed", f"pip install '{requirement}'")
            continue
        fits = requirement.specifier.contains(found, prereleases=True)
        remedy = "" if fits else f"pip install '{requirement}'"
        yield Finding(f"{requirement.name} {found}{'' if fits else f', but {requirement.specifier} is needed'}", remedy)


def _extension() -> Iterator[Finding]:
    """Check whether Jupyter Server has the extension enabled."""
    from jupyter_core.paths import jupyter_config_path
    from jupyter_server.extension.config import ExtensionConfigManager

    paths = jupyter_config_path()
    manager = ExtensionConfigManager(read_config_path=paths)
    enabled = manager.get_jpserver_extensions().get("jupyter_exec_ext")  # type: ignore[no-untyped-call]
    if enabled:
        yield Finding("the server extension is enabled")
    else:
        state = "disabled" if enabled is False else "not enabled"
        yield Finding(f"the server extension is {state}", "jupyter server extension enable jupyter_exec_ext")


def _kernelspecs() -> Iterator[Finding]:
    from .kernelspecs.local_kernels import ISOLATABLE, LocalKernel, installed

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
    # The host network undoes the isolation of their provisioner.
    yield from unprotected([kernel.name for kernel in usable if kernel.has_host_network], None)


def _gateway() -> Iterator[Finding]:
    """Start a gateway and run code on it, as an executor would."""
    from ..executors.local import LocalJupyterServer

    try:
        with (
            tempfile.TemporaryDirectory() as logs,
            LocalJupyterServer(log_file=str(Path(logs) / "gateway.log")) as server,
            ExecClient(server) as client,
        ):
            yield from _run_something(client)
    except (ExecError, ValueError, OSError) as error:
        yield Finding(f"a gateway cannot be started: {error}", "read the lines above; the last one names the cause")


def _server(args: argparse.Namespace) -> Iterator[Finding]:
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
        except ExecError as error:
            yield Finding(f"{client.connection_info.url} does not let us in", error.message)
            return
        yield Finding(f"{client.connection_info.url}: {info['host']} {info['host_version']}, exec/v1 {info['version']}")
        yield from _isolation(client, info)
        yield from _run_something(client)


def _isolation(client: ExecClient, info: dict[str, Any]) -> Iterator[Finding]:
    """Report the isolation of the kernels that the caller may use, and its consequences."""
    from .kernelspecs.local_kernels import ISOLATABLE

    specs = client.kernelspecs()
    for spec in specs:
        if spec.isolation != "none":
            yield Finding(f"kernelspec {spec.name} is isolated: {spec.isolation}")
    open_ = [spec for spec in specs if spec.isolation == "none"]
    if not open_:
        return
    plain = [spec.name for spec in open_ if spec.provisioner in ISOLATABLE]
    level = level_on_request(client, plain[0]) if plain else None
    if level is not None:
        yield Finding(f"kernels get the isolation {level!r} there where it is asked for or required")
    allowed = bool(info.get("unprotected_tokens"))
    yield from unprotected(plain, level, allowed=allowed)
    yield from unprotected([spec.name for spec in open_ if spec.provisioner not in ISOLATABLE], None, allowed=allowed)
    levels = [level or "none", *(spec.isolation for spec in specs)]
    most = max(map(ISOLATION_LEVELS.index, levels))
    wanting = [str(p["name"]) for p in _policies(client, info) if ISOLATION_LEVELS.index(p["isolation"]) > most]
    if wanting:
        yield Finding(
            f"no kernel is isolated as these policies require: {', '.join(wanting)}",
            "so their tokens can start no session; use a provisioner that isolates, and name it in "
            "ExecEngine.isolation_levels",
            fails=False,
        )


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
