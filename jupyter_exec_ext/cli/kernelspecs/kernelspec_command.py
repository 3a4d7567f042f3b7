"""``jupyter exec kernelspec``: installs kernelspecs that isolate, fork or use Azure, and lists the installed ones."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..common_options import add_command, add_command_group, add_json_option, print_json
from ..messages import UsageError, print_message
from ..terminal_text import print_table, printable

if TYPE_CHECKING:
    from .local_kernels import LocalKernel

_KERNELSPEC = """\
A kernelspec says how a kernel is started. One that is isolated keeps code from your files, secrets and network in every
Jupyter application, in JupyterLab's launcher, too.

  jupyter exec kernelspec install --sandbox
  jupyter exec kernelspec install --sandbox --from ir
  jupyter exec kernelspec install --sandbox --read-only ~/data
  jupyter exec kernelspec install --fork --preload numpy pandas
  jupyter exec run --kernel python3-sandbox -c 'print(1)'
"""
_INSTALL = """\
Write a kernelspec whose kernels are isolated or forked: one that is like an installed one, or one of sessions on Azure.

A sandboxed kernel sees the system's programs, its own installation and the directory that it is started in, as /work.
It can write nothing but that one and its memory, and has no network. Of the server's environment it gets harmless
variables. Options give it more. 'jupyter exec doctor' says whether this machine can do that.

With --fork, IPython kernels are forked from a process that has imported everything already, --preload's modules
included. They are not isolated.

With --aca, each kernel is a session of an Azure Container Apps pool, and needs nothing of this machine's. ENDPOINT is
the pool's management endpoint, as 'az containerapp sessionpool show --query properties.poolManagementEndpoint' prints
it. The user who runs Jupyter needs the role 'Azure ContainerApps Session Executor' on the pool.

  jupyter exec kernelspec install --aca ENDPOINT
  jupyter exec kernelspec install --aca http://localhost:8888/exec/aca \\
      --credential env:POOL_TOKEN --name pool
"""


def add_kernelspec_command(commands: Any) -> None:
    """Add ``jupyter exec kernelspec``."""
    actions = add_command_group(
        commands, "kernelspec", "list kernelspecs, and install ones whose kernels are isolated or forked", _KERNELSPEC
    )
    install = add_command(
        actions, "install", "write a kernelspec whose kernels are isolated or forked", install_kernelspec
    )
    install.description = _INSTALL
    # argparse would break the line beyond 80 columns.
    install.usage = "%(prog)s\n       (--sandbox | --landlock | --fork | --aca ENDPOINT) [OPTION ...]"
    _install_options(install)
    listing = add_command(
        actions, "list", "list the kernelspecs of this machine with their isolation", list_kernelspecs
    )
    add_json_option(listing)


def _install_options(install: argparse.ArgumentParser) -> None:
    level = install.add_mutually_exclusive_group(required=True)
    for name, help_ in (
        ("sandbox", "isolate by a sandbox: namespaces, made by bubblewrap"),
        ("landlock", "isolate by Landlock, which keeps less away: for containers in which there can be no sandbox"),
        ("fork", "fork kernels from a process that has imported everything already; no isolation"),
    ):
        level.add_argument(f"--{name}", dest="level", action="store_const", const=name, help=help_)
    level.add_argument("--aca", metavar="ENDPOINT", help="use sessions of this Azure Container Apps pool")
    install.add_argument(
        "--from",
        dest="origin",
        metavar="NAME",
        help="the installed kernelspec to make it like, of any language (default: python3)",
    )
    install.add_argument(
        "--name", metavar="NAME", help="its name (default: the other's, with -sandbox, -landlock or -fork; aca)"
    )
    install.add_argument("--display-name", metavar="TEXT", help="its name for people, in JupyterLab's launcher")
    install.add_argument("--replace", action="store_true", help="replace a kernelspec of that name")
    _seen_options(install.add_argument_group("what kernels can see and use"))
    install.add_argument_group("forked kernels, with --fork").add_argument(
        "--preload",
        action="extend",
        nargs="+",
        default=[],
        metavar="MODULE",
        help="modules that are imported once, such as numpy, pandas and matplotlib.pyplot",
    )
    sessions = install.add_argument_group("sessions on Azure, with --aca")
    sessions.add_argument("--api-version", metavar="VERSION", help="of the protocol (default: 2025-10-02-preview)")
    sessions.add_argument(
        "--credential",
        metavar="SOURCE",
        help="where Jupyter gets access tokens: azure (azure-identity's DefaultAzureCredential), token-file:PATH, or "
        "env:NAME for a variable of its own environment; never a token itself (default: azure)",
    )
    where = install.add_argument_group("where it is written").add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for you, in Jupyter's data directory (default)")
    where.add_argument("--sys-prefix", action="store_true", help="for everybody who uses this Python environment")
    where.add_argument("--prefix", metavar="DIR", help="in DIR/share/jupyter/kernels, such as with /usr/local")


def _seen_options(group: Any) -> None:
    for option, metavar, help_ in (
        ("read-only", "PATH", "further directories and files that they can read, under the same paths"),
        ("writable", "PATH", "further directories that they can write, under the same paths"),
        ("env", "NAME", "environment variables that they get from the server's; * is a wildcard"),
    ):
        group.add_argument(f"--{option}", action="extend", nargs="+", default=[], metavar=metavar, help=help_)
    group.add_argument(
        "--working-directory",
        metavar="launched|private|PATH",
        help="where they work: the directory that they are started in, such as a notebook's; an empty one, gone with "
        "the kernel; or always the same (default: launched)",
    )
    group.add_argument(
        "--network",
        choices=["none", "host"],
        help="this machine's network or none (default: none). 'host' counts as no isolation, and has to be allowed in "
        "the application's configuration: SandboxProvisioner.allow_host_network",
    )


def install_kernelspec(args: argparse.Namespace) -> int:
    """Write a kernelspec; print its directory and, to standard error, how to use it."""
    level = "aca" if args.aca is not None else args.level
    _check_options(args, level)
    # Imported now: other commands must not wait for jupyter_client.
    from .kernelspec_writer import WantedKernelspec, write_kernelspec

    config = {"aca": _pool_config, "fork": _fork_config}.get(level, _isolation_config)(args)
    prefix = sys.prefix if args.sys_prefix else args.prefix
    names = args.origin or "python3", args.name or "", args.display_name or ""
    written = write_kernelspec(WantedKernelspec(level, config, *names, prefix, args.replace))
    for warning in written.warnings:
        print_message(printable(warning))
    print(f"Kernelspec {written.name}, in JupyterLab's launcher: {printable(written.display_name)}", file=sys.stderr)
    print(f"Try:   jupyter exec run --kernel {written.name} FILE", file=sys.stderr, flush=True)
    print(printable(written.directory))
    return 0


def list_kernelspecs(args: argparse.Namespace) -> int:
    """Print the kernelspecs, one a line."""
    from .local_kernels import installed

    if args.json:
        print_json({"kernelspecs": [_as_json(kernel) for kernel in installed()]})
        return 0

    def row(kernel: LocalKernel) -> tuple[str, str, str, str]:
        if kernel.spec is None:
            return kernel.name, "-", "cannot be read", kernel.directory
        if not kernel.is_startable:
            return kernel.name, "-", f"{kernel.provisioner} (not installed)", kernel.directory
        network = " (host network)" if kernel.has_host_network else ""
        return kernel.name, kernel.level, f"{kernel.provisioner}{network}", kernel.directory

    print_table([("NAME", "ISOLATION", "PROVISIONER", "DIRECTORY"), *map(row, installed())])
    return 0


def _as_json(kernel: LocalKernel) -> dict[str, Any]:
    is_readable = kernel.spec is not None
    is_startable = is_readable and kernel.is_startable
    return {
        "name": kernel.name,
        "isolation": kernel.level if is_startable else None,
        "provisioner": kernel.provisioner if is_readable else None,
        "is_readable": is_readable,
        "is_startable": is_startable,
        "host_network": kernel.has_host_network,
        "directory": kernel.directory,
    }


def _check_options(args: argparse.Namespace, level: str) -> None:
    """Raise `UsageError` for an option that would have no effect."""
    of_isolation = ("read_only", "writable", "working_directory", "network")
    others = {"api_version": "--aca", "credential": "--aca", "preload": "--fork"}
    if level == "aca":
        others = dict.fromkeys(("origin", *of_isolation), "kernels of this machine") | {"preload": "--fork"}
    elif level == "fork":
        del others["preload"]
        others |= dict.fromkeys((*of_isolation, "env"), "kernels that are isolated")
    for name, whose in others.items():
        if getattr(args, name):
            option = "--from" if name == "origin" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is for {whose}")


def _pool_config(args: argparse.Namespace) -> dict[str, Any]:
    from ...aca.protocol.addresses import DEFAULT_API_VERSION
    from ...aca.provisioner.credential_sources import AZURE

    config = {
        "endpoint": args.aca,
        "api_version": args.api_version or DEFAULT_API_VERSION,
        "credential": args.credential or AZURE,
        "env": _check_variables(args.env),
    }
    # An empty endpoint stays, so that its check can name it.
    return {name: value for name, value in config.items() if value or name == "endpoint"}


def _fork_config(args: argparse.Namespace) -> dict[str, Any]:
    return {"preload": args.preload} if args.preload else {}


def _isolation_config(args: argparse.Namespace) -> dict[str, Any]:
    """Return the given options only, so that the provisioner's own configuration decides the rest."""
    if args.network is not None and args.level != "sandbox":
        raise UsageError(f"--network is for --sandbox; --{args.level} has no such choice")
    working_directory = args.working_directory
    if working_directory not in (None, "launched", "private"):
        (working_directory,) = _check_paths("--working-directory", [working_directory])
        if not os.path.isdir(working_directory):
            raise UsageError(f"--working-directory cannot be used: {working_directory} is not a directory")
    config = {
        "read_only": _check_paths("--read-only", args.read_only),
        "writable": _check_paths("--writable", args.writable),
        "env": _check_variables(args.env),
        "working_directory": working_directory,
        "network": args.network,
    }
    return {name: value for name, value in config.items() if value}


def _check_variables(names: Sequence[str]) -> Sequence[str]:
    for name in names:
        if "=" in name or not name:
            raise UsageError(f"--env {name!r} cannot be used: it takes names, whose values come from the server's own")
    return names


def _check_paths(option: str, paths: Iterable[str]) -> list[str]:
    """Return absolute paths, since a kernel may be started in any directory; raise `UsageError` for a missing one."""
    found = [os.path.abspath(os.path.expanduser(path)) for path in paths]
    for path in found:
        if not os.path.exists(path):
            raise UsageError(f"{option} cannot be used: there is no {path}; create it, or correct the path")
    return found
