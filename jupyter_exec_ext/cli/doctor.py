"""``jupyter exec doctor``: is everything in place, and if not, what to do."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from ..client.sync import ExecClient
from ..errors import ApiNotFound, ConnectionFailed, ExecError
from .servers import named_server

_DISTRIBUTION = "jupyter-exec-ext"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Parameters
    ----------
    remedy : str
        What to do about it; empty if it is in order.
    """

    what: str
    remedy: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is in order."""
        return not self.remedy


def doctor(args: argparse.Namespace) -> int:
    """Print what was found; the exit code is 1 if anything needs doing."""
    checks: list[Callable[[], Iterator[Finding]]] = [_packages, _extension, _kernelspecs, _gateway]
    if args.server is not None:
        checks = [lambda: _server(args)]
    healthy = True
    for check in checks:
        for finding in check():
            healthy = healthy and finding.ok
            print(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.what}", flush=True)
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

    specs = KernelSpecManager().find_kernel_specs()
    for name, path in sorted(specs.items()):
        yield Finding(f"kernelspec {name} ({path})")
    if not specs:
        yield Finding("no kernelspec is installed", "pip install ipykernel")


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
        yield from _run_something(client)


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
