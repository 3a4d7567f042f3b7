"""What commands have in common: where the server is, and how values are written."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from ..executors.binder_launch import build_path
from ..models import ISOLATION_LEVELS
from ..protocol.strict_json import loads_strict

_SERVER_HELP = (
    "URL of a Jupyter server, as its log or a browser shows it; or 'auto' for one of yours that runs on this machine"
)
BINDER_URL = "https://mybinder.org"
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def add_command(
    commands: Any, name: str, help_: str, action: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a command that carries out `action`."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_, description=help_)
    parser.set_defaults(action=action)
    return parser


def server_options(parser: argparse.ArgumentParser, default: str | None, without: str) -> None:
    """Add the options that say where the server is; `without` them, it is said what is used.

    A command without a `default` needs a server for its own time alone: it stops what it has started at a JupyterHub,
    and may launch a Binder or a container.
    """
    passing = default is None
    parser.set_defaults(stop_server=passing, binder=None, binder_url=None, docker=None)
    group = parser.add_argument_group("server")
    where = group.add_mutually_exclusive_group()
    where.add_argument("--server", metavar="URL|auto", default=default, help=f"{_SERVER_HELP} (default: {without})")
    where.add_argument(
        "--hub",
        metavar="URL",
        help="a JupyterHub: your server there, started if it does not run"
        + (", and then stopped again" if passing else ", and left running"),
    )
    group.add_argument("--hub-user", metavar="NAME", help="with --hub: whose server (default: the token's user's)")
    group.add_argument("--hub-server", metavar="NAME", help="with --hub: one of the user's named servers")
    if passing:
        where.add_argument(
            "--binder",
            type=binder_spec,
            metavar="SPEC",
            help="a server made from a repository, such as gh/org/repo/HEAD, launched for this at a BinderHub",
        )
        where.add_argument(
            "--docker",
            nargs="?",
            const="",
            metavar="IMAGE",
            help="a server in a container, which is removed afterwards; FILE stands before this option. IMAGE runs a "
            "gateway on port 8888 with the token in TOKEN (default: this package's own, built when first needed)",
        )
        group.add_argument(
            "--binder-url",
            metavar="URL",
            help=f"with --binder: the BinderHub (default: {BINDER_URL})",
        )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help="file that holds the server's or the Hub's token; without it the token in the URL, then JUPYTER_TOKEN, is "
        "used",
    )
    group.add_argument("--ca-bundle", metavar="FILE", help="certificates to check an https server with")


def isolation_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that asks for isolation."""
    parser.add_argument(
        "--isolation",
        choices=ISOLATION_LEVELS,
        help="the least isolation that the kernel must have; refused where it cannot have it (default: what the server "
        "and the token's policy say)",
    )


def seconds(text: str) -> float:
    """Read a number of seconds."""
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise ValueError
    return value


def duration(text: str) -> float:
    """Read a duration, such as ``90``, ``30m``, ``8h`` or ``30d``, as seconds."""
    unit = _UNITS.get(text[-1:])
    return seconds(text) if unit is None else seconds(text[:-1]) * unit


def binder_spec(text: str) -> str:
    """Check what is to be launched as a Binder."""
    build_path(text)
    return text


def named_value(text: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``, where VALUE is JSON, or a text that needs no quotation marks."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError
    try:
        return name, loads_strict(value.encode())
    except ValueError:
        return name, value


# argparse's messages name the type so.
binder_spec.__name__ = "spec (such as gh/org/repo/HEAD)"
seconds.__name__ = "number of seconds"
duration.__name__ = "duration (such as 90, 30m, 8h or 30d)"
named_value.__name__ = "NAME=VALUE"
