"""``jupyter exec profile``: adds, lists and removes named servers for ``--server NAME``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from .common_options import add_command, add_command_group, add_json_option, print_json
from .messages import UsageError
from .terminal_text import print_table

_PROFILE = """\
Names for servers, so that --server NAME stands for a URL, its token file and
its certificates. They are kept in jupyter_exec_config.toml in Jupyter's
configuration directory. The file holds no token, only the path of its file.

JUPYTER_EXEC_SERVER may be a profile's name, too.
"""


def add_profile_command(commands: Any) -> None:
    """Add ``jupyter exec profile``."""
    actions = add_command_group(commands, "profile", "name servers for --server NAME", _PROFILE)
    add = add_command(actions, "add", "add a profile", add_profile)
    listing = add_command(actions, "list", "list the profiles", list_profiles)
    remove = add_command(actions, "remove", "remove a profile; its token file stays", remove_profile)
    for action in (add, remove):
        action.add_argument("name", metavar="NAME", help="the profile: letters, digits, - and _")
    add.add_argument("--server", metavar="URL", required=True, help="URL of the server, without a token")
    add.add_argument("--token-file", metavar="FILE", help="file that holds the server's token, read at each use")
    add.add_argument("--ca-bundle", metavar="FILE", help="certificates to check an https server with")
    add_json_option(listing)


def add_profile(args: argparse.Namespace) -> int:
    """Add a profile, and print to standard error where it is kept."""
    from ..client.server_profiles import ServerProfile, add_profile

    with _problems_as_usage_errors():
        file = add_profile(ServerProfile(args.name, args.server, _absolute(args.token_file), _absolute(args.ca_bundle)))
    print(f"Added {args.name} to {file}. Try: jupyter exec session list --server {args.name}", file=sys.stderr)
    return 0


def list_profiles(args: argparse.Namespace) -> int:
    """Print the profiles, one a line."""
    from ..client.server_profiles import read_profiles

    with _problems_as_usage_errors():
        profiles = read_profiles().values()
    if args.json:
        print_json({"profiles": [asdict(profile) for profile in profiles]})
        return 0
    rows = [("NAME", "SERVER", "TOKEN FILE", "CERTIFICATES")]
    rows += [(p.name, p.server, p.token_file or "-", p.ca_bundle or "-") for p in profiles]
    print_table(rows)
    return 0


def remove_profile(args: argparse.Namespace) -> int:
    """Remove a profile."""
    from ..client.server_profiles import remove_profile

    with _problems_as_usage_errors():
        remove_profile(args.name)
    return 0


@contextmanager
def _problems_as_usage_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:  # `ProfileError` is one, and a wrong URL raises another
        raise UsageError(str(error)) from error


def _absolute(path: str | None) -> str | None:
    """Return an absolute path, since a profile is used from any directory."""
    return None if path is None else os.path.abspath(os.path.expanduser(path))
