"""The grammar of the commands about tokens and approvals."""

from __future__ import annotations

import argparse
from typing import Any

from . import approval_watch, approve_command, token_command
from .common_options import add_command, duration, named_value, server_options

_TOKEN = """\
Tokens for agents. A token may do what its scopes say, within its policy, until it expires or is revoked, and never more
than whoever created it. It is of use with exec/v1 alone, not with the rest of the Jupyter server.

  TOKEN=$(jupyter exec token create claude --expires 8h)
  jupyter exec token create claude --policy restricted --limit max_sessions=1 --output token
"""
_APPROVE = """\
Code that waits for a person's approval, since the policy of its token wants that. To decide is for the server's owner:
use the server's own token, not one of an agent.

What a policy finds in code is a hint for you. It does not find what is hidden well: against that helps the isolation of
the kernel.
"""


def add_token(commands: Any) -> None:
    """Add ``jupyter exec token``."""
    actions = _group(commands, "token", "create, list, rotate and revoke tokens for agents", _TOKEN)
    create = add_command(actions, "create", "create a token and print it, this once", token_command.create)
    listing = add_command(actions, "list", "list tokens, without their secrets", token_command.list_)
    show = add_command(actions, "show", "show a token, without its secret", token_command.show)
    rotate = add_command(actions, "rotate", "give a token another secret and print it, this once", token_command.rotate)
    revoke = add_command(
        actions, "revoke", "revoke tokens and those below them; what they run ends", token_command.revoke
    )
    policies = add_command(actions, "policies", "list the policies there are", token_command.policies)
    _create_options(create)
    listing.add_argument("--ended", action="store_true", help="those that were revoked or have expired, too")
    for action in (show, rotate):
        action.add_argument("id", metavar="ID")
    rotate.add_argument(
        "--overlap",
        type=duration,
        default=0.0,
        metavar="TIME",
        help="for how long the secret before it is still good, such as 1h (default: not at all)",
    )
    revoke.add_argument("ids", nargs="+", metavar="ID")
    for action in (create, rotate):
        action.add_argument(
            "--output", metavar="FILE", help="write it to this file, for you alone, and do not print it"
        )
    for action in (create, listing, show, rotate, policies):
        action.add_argument("--json", action="store_true", help="print JSON")
    for action in (create, listing, show, rotate, revoke, policies):
        server_options(action, "auto", "auto")


def _create_options(create: argparse.ArgumentParser) -> None:
    presets = "; ".join(f"'{name}' is {', '.join(scopes)}" for name, scopes in token_command.PRESETS.items())
    create.add_argument("name", metavar="NAME", help="what it is for, so that you recognise it in the list")
    create.add_argument(
        "--scope",
        action="append",
        default=[],
        dest="scopes",
        metavar="SCOPE[,SCOPE]",
        help=f"what it may do; may be repeated. {presets} (default: {token_command.DEFAULT_PRESET})",
    )
    create.add_argument("--policy", metavar="NAME", help="policy that holds for it (default: the server's 'default')")
    create.add_argument(
        "--expires",
        type=duration,
        metavar="TIME",
        help="how long it is good: 90, 30m, 8h, 30d (default: the server's)",
    )
    create.add_argument(
        "--limit",
        type=named_value,
        action="append",
        default=[],
        dest="limits",
        metavar="NAME=VALUE",
        help="narrow a field of the policy for it, such as max_sessions=1, approval=always or "
        "'kernelspecs=[\"python3\"]'; may be repeated. 'token policies' shows the fields",
    )


def add_approve(commands: Any) -> None:
    """Add ``jupyter exec approve``."""
    actions = _group(commands, "approve", "decide about code that waits for a person's approval", _APPROVE)
    listing = add_command(actions, "list", "list what waits", approve_command.list_)
    show = add_command(actions, "show", "show one that waits, with its code", approve_command.show)
    accept = add_command(actions, "accept", "let code run, as it is or edited", approve_command.accept)
    reject = add_command(actions, "reject", "do not let code run", approve_command.reject)
    watch = add_command(actions, "watch", "show code as it comes, and ask about it", approval_watch.watch)
    listing.add_argument("--json", action="store_true", help="print JSON")
    show.add_argument("id", metavar="ID")
    for action in (accept, reject):
        action.add_argument("ids", nargs="+", metavar="ID", help="the execution")
        action.add_argument("--reason", default="", metavar="TEXT", help="for the agent to read")
    replacement = accept.add_mutually_exclusive_group()
    replacement.add_argument("--edit", action="store_true", help="edit the code first, in $VISUAL or $EDITOR")
    replacement.add_argument("--code", metavar="FILE", help="run this file's code in its place")
    for action in (listing, show, accept, reject, watch):
        server_options(action, "auto", "auto")


def _group(commands: Any, name: str, help_: str, description: str) -> Any:
    parser = commands.add_parser(
        name, help=help_, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    return parser.add_subparsers(title="actions", metavar="ACTION", required=True)
