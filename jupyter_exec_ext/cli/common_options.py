"""Parts of the grammar that commands share: adding a command, isolation, and types of values."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from ..models import ISOLATION_LEVELS
from ..protocol.strict_json import loads_strict
from .command_parser import set_help_action


def add_command(
    commands: Any, name: str, help_: str, action: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a command that calls `action` with its arguments."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_, description=help_)
    parser.set_defaults(action=action)
    return parser


def add_command_group(commands: Any, name: str, help_: str, description: str) -> Any:
    """Add a command that has actions, and return the group that they are added to; alone it prints its help."""
    parser = commands.add_parser(name, help=help_, description=description)
    set_help_action(parser)
    return parser.add_subparsers(title="actions", metavar="ACTION")


def add_isolation_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--isolation``."""
    parser.add_argument(
        "--isolation",
        choices=ISOLATION_LEVELS,
        help="the least isolation that the kernel must have; refused where it cannot have it (default: what the server "
        "and the token's policy say)",
    )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def print_json(value: Any) -> None:
    """Print a value as JSON, for programs to read."""
    print(json.dumps(value, indent=2), flush=True)


def named_value(text: str) -> tuple[str, Any]:
    """Parse ``NAME=VALUE``, where VALUE is JSON, or else a text without quotation marks."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError
    try:
        return name, loads_strict(value.encode())
    except ValueError:
        return name, value


# argparse's messages use this name.
named_value.__name__ = "NAME=VALUE"
