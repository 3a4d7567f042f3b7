"""``jupyter exec secret``: sets, lists and deletes secrets that the egress proxy adds to requests of sessions."""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import Any

from ..protocol.view_json import view_to_json
from .common_options import add_command, add_command_group, add_json_option, print_json
from .messages import UsageError
from .relative_times import relative_time
from .server_choice import add_server_options, api_client_for
from .terminal_text import print_table

_SECRETS = """\
Secrets that code in sessions can use and cannot read. The code sees a placeholder, and the proxy of the server puts the
value into the header of requests to the secret's hosts. A policy names its secrets in the field 'secrets'.

  jupyter exec secret set API_KEY --host api.example.com --header 'X-Key: {}'
"""
_NAME_HELP = "its name in capital letters; code has the placeholder in the environment variable of this name"
_MAX_INPUT_CHARACTERS = 1 << 16


def add_secret_command(commands: Any) -> None:
    """Add ``jupyter exec secret``."""
    actions = add_command_group(commands, "secret", "set, list and delete secrets for requests of sessions", _SECRETS)
    setting = add_command(
        actions, "set", "set a secret, or give it a new value, read from a prompt or standard input", set_secret
    )
    listing = add_command(actions, "list", "list secrets, without their values", list_secrets)
    delete = add_command(actions, "delete", "delete secrets, also for running sessions", delete_secrets)
    rotate = add_command(
        actions, "rotate-key", "encrypt all secrets with a new key, and forget the old one", rotate_key
    )
    setting.add_argument("name", metavar="NAME", help=_NAME_HELP)
    setting.add_argument(
        "--host",
        action="append",
        dest="hosts",
        metavar="HOST[:PORT]",
        help="host that gets it over TLS; may be repeated (needed for a new secret; default: unchanged)",
    )
    setting.add_argument(
        "--header",
        metavar="'NAME: TEXT'",
        help="the header that carries it, with {} for it, such as 'Authorization: Bearer {}' (needed for a new secret; "
        "default: unchanged)",
    )
    delete.add_argument("names", nargs="+", metavar="NAME", help="the name of the secret")
    for action in (setting, listing):
        add_json_option(action)
    for action in (setting, listing, delete, rotate):
        add_server_options(action, "auto", "auto")


def set_secret(args: argparse.Namespace) -> int:
    """Read a value, and set the secret."""
    with api_client_for(args) as client:
        secret = client.secrets.set(args.name, _read_value(args.name), hosts=args.hosts, header=args.header)
    if args.json:
        print_json(view_to_json(secret))
    else:
        print(f"{secret.name} is set for {', '.join(secret.hosts)}, in the header {secret.header!r}")
    return 0


def list_secrets(args: argparse.Namespace) -> int:
    """Print the secrets, one a line."""
    with api_client_for(args) as client:
        found = client.secrets.list()
    if args.json:
        print_json({"secrets": [view_to_json(secret) for secret in found]})
        return 0
    rows = [("NAME", "HOSTS", "HEADER", "CHANGED")]
    print_table([*rows, *((s.name, ", ".join(s.hosts), s.header, relative_time(s.changed_at)) for s in found)])
    return 0


def delete_secrets(args: argparse.Namespace) -> int:
    """Delete secrets."""
    with api_client_for(args) as client:
        for name in args.names:
            client.secrets.delete(name)
    return 0


def rotate_key(args: argparse.Namespace) -> int:
    """Encrypt all secrets with a new key."""
    with api_client_for(args) as client:
        count = client.secrets.rotate_key()
    print(f"Secrets encrypted with a new key: {count}")
    return 0


def _read_value(name: str) -> str:
    """Return the value from a prompt without echo or, where there is no terminal, from standard input."""
    is_terminal = sys.stdin.isatty()
    text = getpass.getpass(f"Value of {name}: ") if is_terminal else sys.stdin.read(_MAX_INPUT_CHARACTERS)
    value = text.rstrip("\r\n")
    if not value:
        raise UsageError(f"the value of {name} is empty; type it at the prompt, or pipe it into the command")
    return value
