"""``jupyter exec doctor``: is everything in place, and if not, what to do."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from ..client.sync import ExecClient
from ..errors import ApiNotFound, ConnectionFailed, ExecError, OwnerOnly
from .servers import named_server

_DISTRIBUTION = "jupyter-exec-ext"
_LOCAL_PROVISIONER = "local-provisioner"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Parameters
    ----------
    remedy : str
        What to do about it, or what follows from it; empty if it is in order.
    fails : bool
        False for what works as it is meant to, and is yet good to know.
    """

    what: str
    remedy: str = ""
    fails: bool = True

    @property
    def mark(self) -> str:
        """``ok``, ``note`` or ``FAIL``."""
        if not self.remedy:
            return "ok"
        return "FAIL" if self.fails else "note"


def doctor(args: argparse.Namespace) -> int:
    """Print what was found; the exit code is 1 if anything has failed."""
    checks: list[Callable[[], Iterator[Finding]]] = [_packages, _extension, _kernelspecs, _gateway]
    if args.server is not None:
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
    """Compare what is installed with what this package asks for."""
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
    """Look where Jupyter Server looks for enabled extensions."""
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
    from jupyter_client.kernelspec import KernelSpecManager

    specs = KernelSpecManager().get_all_specs()
    for name, spec in sorted(specs.items()):
        yield Finding(f"kernelspec {name} ({spec['resource_dir']})")
    if not specs:
        yield Finding("no kernelspec is installed", "pip install ipykernel")
    yield from _unprotected([name for name, spec in sorted(specs.items()) if _is_local(spec["spec"])])


def _is_local(spec: dict[str, Any]) -> bool:
    """Whether a kernelspec leaves it to Jupyter to start its kernels: as processes like any other."""
    provisioner = spec.get("metadata", {}).get("kernel_provisioner", {})
    return bool(provisioner.get("provisioner_name", _LOCAL_PROVISIONER) == _LOCAL_PROVISIONER)


_REFUSED = "so scoped tokens may not run code there, unless ExecEngine.allow_unprotected_tokens is set"
_ALLOWED = (
    "scoped tokens may run code there all the same (ExecEngine.allow_unprotected_tokens), so their scopes and policies "
    "bind well-behaved code only"
)


def _unprotected(names: Sequence[str], *, allowed: bool = False) -> Iterator[Finding]:
    """Say what it means that kernels are not isolated."""
    if names:
        yield Finding(
            f"without isolation: {', '.join(names)}; code in these kernels has all rights of the server's user",
            _ALLOWED if allowed else _REFUSED,
            fails=False,
        )


def _gateway() -> Iterator[Finding]:
    """Start a gateway and run something on it, as an executor would."""
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
    """Look at a server from outside."""
    with ExecClient(named_server(args)) as client:
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
    """Say what kernels are kept from, as far as the caller may use them, and whom that concerns."""
    specs = client.kernelspecs()
    unprotected = [spec.name for spec in specs if spec.isolation == "none"]
    for spec in specs:
        if spec.isolation != "none":
            yield Finding(f"kernelspec {spec.name} is isolated: {spec.isolation}")
    yield from _unprotected(unprotected, allowed=bool(info.get("unprotected_tokens")))
    wanting = [str(p["name"]) for p in _policies(client, info) if p["isolation"] != "none"]
    if wanting and len(unprotected) == len(specs):
        yield Finding(
            f"no kernel is isolated as these policies require: {', '.join(wanting)}",
            "so their tokens can start no session; use a provisioner that isolates, and name it in "
            "ExecEngine.isolation_levels",
            fails=False,
        )


def _policies(client: ExecClient, info: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the server's policies or, for the bearer of a scoped token, those that hold for it."""
    if "tokens" not in info["features"]:  # an earlier version
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
