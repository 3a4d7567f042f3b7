"""``jupyter exec kernelspec``: kernels that are isolated, forked or elsewhere, and which kernels there are."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..printable_text import print_table, printable
from ..server_choice import UsageError

if TYPE_CHECKING:
    from .kernelspec_place import Written

_HOST_NETWORK = (
    "with --network host it starts only where the configuration of the Jupyter application sets "
    "SandboxProvisioner.allow_host_network, and it counts as a kernel without isolation: it reaches the server itself"
)


def install(args: argparse.Namespace) -> int:
    """Write a kernelspec; print where it is and, to standard error, how to use it."""
    _refuse_what_is_for_others(args)
    if args.aca is not None:
        return _install_aca(args)
    return _install_forked(args) if args.level == "fork" else _install_isolated(args)


def _install_isolated(args: argparse.Namespace) -> int:
    from .isolated_kernelspec import Wanted, write
    from .local_kernels import PROVISIONERS, provisioner_class

    provisioner = provisioner_class(PROVISIONERS[args.level])
    if provisioner is None:
        raise UsageError(
            f"the provisioner {PROVISIONERS[args.level]!r} is not installed here, so Jupyter could not start such "
            "kernels; install jupyter_exec_ext again"
        )
    wanted = Wanted(
        level=args.level,
        origin=args.origin or "python3",
        name=args.name or "",
        display_name=args.display_name or "",
        config=_config(args),
        prefix=sys.prefix if args.sys_prefix else args.prefix,
        replace=args.replace,
    )
    written = write(wanted)
    problem = provisioner.unavailable()
    warnings = [*written.doubts, *([_HOST_NETWORK] if args.network == "host" else [])]
    if problem is not None:
        warnings.append(f"as this machine is, the kernel will not start: {problem}")
    return _tell(written, warnings)


def _install_forked(args: argparse.Namespace) -> int:
    from ...forkserver import ForkServerProvisioner
    from .forked_kernelspec import WantedForks, write

    written = write(
        WantedForks(
            origin=args.origin or "python3",
            preload=args.preload,
            name=args.name or "",
            display_name=args.display_name or "",
            prefix=sys.prefix if args.sys_prefix else args.prefix,
            replace=args.replace,
        )
    )
    problem = ForkServerProvisioner.unavailable()
    why = [] if problem is None else [f"as this machine is, the kernel will be started as usual: {problem}"]
    return _tell(written, [*written.doubts, *why])


def _install_aca(args: argparse.Namespace) -> int:
    from ...aca.protocol.addresses import DEFAULT_API_VERSION
    from ...aca.provisioner.credential_sources import AZURE
    from .aca_kernelspec import WantedSessions, write

    written = write(
        WantedSessions(
            endpoint=args.aca,
            api_version=args.api_version or DEFAULT_API_VERSION,
            credential=args.credential or AZURE,
            name=args.name or "",
            display_name=args.display_name or "",
            env=_names(args.env),
            prefix=sys.prefix if args.sys_prefix else args.prefix,
            replace=args.replace,
        )
    )
    return _tell(written, written.doubts)


def _refuse_what_is_for_others(args: argparse.Namespace) -> None:
    seen = ("read_only", "writable", "working_directory", "network")
    if args.aca is not None:
        others = dict.fromkeys(("origin", *seen), "kernels of this machine") | {"preload": "--fork"}
    elif args.level == "fork":
        others = dict.fromkeys((*seen, "env"), "kernels that are isolated")
        others |= {"api_version": "--aca", "credential": "--aca"}
    else:
        others = {"api_version": "--aca", "credential": "--aca", "preload": "--fork"}
    for name, whose in others.items():
        if getattr(args, name):
            option = "--from" if name == "origin" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is for {whose}")


def _tell(written: Written, warnings: Iterable[str]) -> int:
    for warning in warnings:
        print(f"jupyter exec: {printable(warning)}", file=sys.stderr)
    print(f"Kernelspec {written.name}, in JupyterLab's launcher: {printable(written.display_name)}", file=sys.stderr)
    print(f"Try:   jupyter exec run --kernel {written.name} FILE", file=sys.stderr, flush=True)
    print(printable(written.directory))
    return 0


def list_(_: argparse.Namespace) -> int:
    """Print the kernelspecs, one a line."""
    from .local_kernels import LocalKernel, installed

    def row(kernel: LocalKernel) -> tuple[str, str, str, str]:
        if kernel.spec is None:
            return kernel.name, "-", "cannot be read", kernel.directory
        if not kernel.is_startable:
            return kernel.name, "-", f"{kernel.provisioner} (not installed)", kernel.directory
        network = " (host network)" if kernel.host_network else ""
        return kernel.name, kernel.level, f"{kernel.provisioner}{network}", kernel.directory

    print_table([("NAME", "ISOLATION", "PROVISIONER", "DIRECTORY"), *map(row, installed())])
    return 0


def _config(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the provisioner is to be told: only what was said, so that its configuration decides the rest."""
    from .isolated_kernelspec import WORKING_DIRECTORIES

    if args.network is not None and args.level != "sandbox":
        raise UsageError(f"--network is for --sandbox; --{args.level} has no such choice")
    working_directory = args.working_directory
    if working_directory is not None and working_directory not in WORKING_DIRECTORIES:
        (working_directory,) = _existing("--working-directory", [working_directory])
        if not os.path.isdir(working_directory):
            raise UsageError(f"--working-directory cannot be used: {working_directory} is not a directory")
    config = {
        "read_only": _existing("--read-only", args.read_only),
        "writable": _existing("--writable", args.writable),
        "env": _names(args.env),
        "working_directory": working_directory,
        "network": args.network,
    }
    return {name: value for name, value in config.items() if value}


def _names(variables: Sequence[str]) -> Sequence[str]:
    for name in variables:
        if "=" in name or not name:
            raise UsageError(f"--env {name!r} cannot be used: it takes names, whose values come from the server's own")
    return variables


def _existing(option: str, paths: Iterable[str]) -> list[str]:
    """Return paths from the root: a kernel may be started anywhere."""
    found = [os.path.abspath(os.path.expanduser(path)) for path in paths]
    for path in found:
        if not os.path.exists(path):
            raise UsageError(f"{option} cannot be used: there is no {path}; create it, or correct the path")
    return found
