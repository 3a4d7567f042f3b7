"""``jupyter exec token``: creates, lists, rotates and revokes scoped tokens for agents, and grants them kernels."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..client.durations import duration, duration_or_never
from ..models import IssuedToken, Token
from ..protocol.records_json import issued_token_to_json, to_json
from .common_options import add_command, add_command_group, add_json_option, named_value, print_json
from .messages import UsageError
from .relative_times import exact_and_relative, relative_time
from .server_choice import add_server_options, api_client_for
from .terminal_text import fields, print_table, printable

#: Names for sets of scopes.
PRESETS: dict[str, tuple[str, ...]] = {
    "agent": (
        "sessions:create",
        "sessions:read",
        "sessions:delete",
        "executions:create",
        "executions:read",
        "executions:control",
        "files:read",
        "files:write",
    ),
    "reader": ("sessions:read", "executions:read", "files:read"),
}
DEFAULT_PRESET = "agent"
#: Rules for approval by name, as the panel in JupyterLab offers them.
ASK_RULES: dict[str, Any] = {
    "never": None,
    "shell": {"when": ["shell", "magics"]},
    "new-imports": {"when": ["new_imports"]},
    "always": "always",
}
_TOKEN = """\
Tokens for agents. A token may do what its scopes say, within its policy, until it expires or is revoked, and never more
than its creator. It works with exec/v1 alone, not with the rest of the Jupyter server.

  TOKEN=$(jupyter exec token create claude --expires 8h)
"""


def add_token_command(commands: Any) -> None:
    """Add ``jupyter exec token``."""
    actions = add_command_group(commands, "token", "create, list, rotate and revoke tokens for agents", _TOKEN)
    create = add_command(actions, "create", "create a token and print it, this once", create_token)
    listing = add_command(actions, "list", "list tokens, without their secrets", list_tokens)
    show = add_command(actions, "show", "show a token, without its secret", show_token)
    rotate = add_command(actions, "rotate", "replace the secret of a token, and print the new one once", rotate_token)
    revoke = add_command(
        actions, "revoke", "revoke tokens and those below them, or grants; their work ends", revoke_tokens
    )
    grant = add_command(actions, "grant", "let a token attach to a running kernel, such as a notebook's", grant_kernel)
    grants = add_command(actions, "grants", "list the kernels that are granted to tokens", list_grants)
    policies = add_command(actions, "policies", "list the policies there are", list_policies)
    _create_options(create)
    listing.add_argument("--ended", action="store_true", help="those that were revoked or have expired, too")
    grants.add_argument("--ended", action="store_true", help="those that have ended, too")
    for action in (show, rotate):
        action.add_argument("id", metavar="ID", help="the id of the token")
    rotate.add_argument(
        "--overlap",
        type=duration_or_never,
        default=0.0,
        metavar="TIME",
        help="for how long the secret before it is still good, such as 1h (default: not at all)",
    )
    rotate.add_argument(
        "--expires",
        type=duration,
        metavar="TIME",
        help="how long it lasts from now on, such as 8h (default: as before)",
    )
    revoke.add_argument("ids", nargs="+", metavar="ID", help="the id of a token, or of a grant")
    grant.add_argument("id", metavar="ID", help="the id of the token")
    grant.add_argument("kernel", metavar="KERNEL_ID", help="the id of the running kernel")
    grant.add_argument("--name", default="", metavar="NAME", help="its name in lists, such as that of the notebook")
    grant.add_argument(
        "--expires",
        type=duration,
        metavar="TIME",
        help="how long it lasts, such as 1h (default: until the token or the kernel ends)",
    )
    for action in (create, rotate):
        action.add_argument(
            "--output", metavar="FILE", help="write it to this file, for you alone, and do not print it"
        )
    create.add_argument("--force", action="store_true", help="with --output: replace a file that exists")
    for action in (create, listing, show, rotate, grant, grants, policies):
        add_json_option(action)
    for action in (create, listing, show, rotate, revoke, grant, grants, policies):
        add_server_options(action, "auto", "auto", leaves_hub_token_valid=action in (create, rotate))


def _create_options(create: argparse.ArgumentParser) -> None:
    presets = "; ".join(f"'{name}' is {', '.join(scopes)}" for name, scopes in PRESETS.items())
    create.add_argument("name", metavar="NAME", help="its purpose, so that you recognise it in the list")
    create.add_argument(
        "--scope",
        action="append",
        default=[],
        dest="scopes",
        metavar="SCOPE[,SCOPE]",
        help=f"scopes, or a name for several; may be repeated. {presets} (default: {DEFAULT_PRESET})",
    )
    create.add_argument("--policy", metavar="NAME", help="policy that holds for it (default: the server's 'default')")
    create.add_argument(
        "--expires",
        type=duration,
        metavar="TIME",
        help="how long it is good: 90, 30m, 8h, 30d (default: the server's)",
    )
    create.add_argument(
        "--ask",
        choices=ASK_RULES,
        help="ask you before code runs: 'shell' for shell commands and magics, 'new-imports' for modules that are new "
        "in the session; beside what its policy asks (default: never)",
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


def create_token(args: argparse.Namespace) -> int:
    """Create a token and print or write its secret."""
    scopes = chosen_scopes(args.scopes)
    if args.force and args.output is None:
        raise UsageError("--force goes with --output FILE, which is missing")
    limits = dict(args.limits)
    if rule := ASK_RULES.get(args.ask):
        if "approval" in limits:
            raise UsageError("--ask and --limit approval=… set the same field; leave one of them out")
        limits["approval"] = rule
    # In this order, so that a file that cannot be written fails before the token exists.
    with _secret_output(args) as hand_out, api_client_for(args) as client:
        options = {"policy": args.policy, "expires_in_seconds": args.expires, "limits": limits}
        hand_out(client.tokens.create(args.name, scopes, **options))
    return 0


def rotate_token(args: argparse.Namespace) -> int:
    """Replace the secret of a token, and print or write the new one."""
    with _secret_output(args) as hand_out, api_client_for(args) as client:
        hand_out(client.tokens.rotate(args.id, overlap_seconds=args.overlap, expires_in_seconds=args.expires))
    return 0


def list_tokens(args: argparse.Namespace) -> int:
    """Print the tokens, one a line."""
    with api_client_for(args) as client:
        tokens = client.tokens.list(ended=args.ended)
    if args.json:
        print_json([to_json(token) for token in tokens])
        return 0
    rows = [("ID", "STATE", "POLICY", "EXPIRES", "LAST USED", "NAME")]
    rows += [
        (t.id, _state(t), t.policy, relative_time(t.expires_at), relative_time(t.last_used_at), t.name) for t in tokens
    ]
    print_table(rows)
    return 0


def show_token(args: argparse.Namespace) -> int:
    """Print a token, without its secret."""
    with api_client_for(args) as client:
        token = client.tokens.get(args.id)
    if args.json:
        print_json(to_json(token))
    else:
        print(_described(token))
    return 0


def revoke_tokens(args: argparse.Namespace) -> int:
    """Revoke tokens, and grants of kernels."""
    with api_client_for(args) as client:
        for id_ in args.ids:
            # Ids of tokens have no underscore.
            (client.tokens.revoke_grant if id_.startswith("grt_") else client.tokens.revoke)(id_)
    return 0


def grant_kernel(args: argparse.Namespace) -> int:
    """Let a token attach to a running kernel, and print the id of the grant."""
    with api_client_for(args) as client:
        grant = client.tokens.grant(args.id, args.kernel, name=args.name, expires_in_seconds=args.expires)
    if args.json:
        print_json(to_json(grant))
        return 0
    print("Code that the token runs there has your own rights, whatever its policy says.", file=sys.stderr)
    print(f"To end it: jupyter exec token revoke {grant.id}", file=sys.stderr, flush=True)
    print(grant.id)
    return 0


def list_grants(args: argparse.Namespace) -> int:
    """Print the grants of kernels, one a line."""
    with api_client_for(args) as client:
        found = client.tokens.grants(ended=args.ended)
    if args.json:
        print_json([to_json(grant) for grant in found])
        return 0
    rows = [("ID", "TOKEN", "KERNEL", "ENDS", "NAME")]
    rows += [(g.id, g.token_id, g.kernel_id, relative_time(g.ended_at or g.expires_at), g.name) for g in found]
    print_table(rows)
    return 0


def list_policies(args: argparse.Namespace) -> int:
    """Print the policies with their limits."""
    with api_client_for(args) as client:
        found = client.tokens.policies()
    if args.json:
        print_json(found)
        return 0
    for policy in found:
        print(printable(str(policy.get("name"))))
        for name, value in policy.items():
            if name != "name" and value is not None:
                print(f"  {printable(name):<26} {json.dumps(value)}")
    return 0


def chosen_scopes(given: Iterable[str]) -> list[str]:
    """Return the scopes of ``--scope``: each value is a scope, a preset, or a list of them with commas."""
    words = [word.strip() for text in given for word in text.split(",") if word.strip()] or [DEFAULT_PRESET]
    return list(dict.fromkeys(scope for word in words for scope in PRESETS.get(word, (word,))))


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expired else "active"


def _described(token: Token) -> str:
    pairs = [
        ("id", token.id),
        ("name", token.name),
        ("state", _state(token)),
        ("policy", token.policy),
        ("limits", json.dumps(dict(token.limits))),
        ("scopes", ", ".join(token.scopes)),
        ("created", f"{token.created_at} by {token.created_by}"),
        ("expires", exact_and_relative(token.expires_at)),
        ("last used", exact_and_relative(token.last_used_at)),
    ]
    pairs += [("parent", token.parent_id)] if token.parent_id else []
    pairs += [("revoked", token.revoked_at)] if token.revoked_at else []
    return fields(pairs)


@contextmanager
def _secret_output(args: argparse.Namespace) -> Iterator[Callable[[IssuedToken], None]]:
    """Yield a function that prints or writes a secret. The file is opened before a secret exists."""
    if args.output is None:
        yield lambda issued: _hand_out(issued, args, None)
        return
    target = Path(args.output)
    if target.exists() and not target.is_file():
        raise UsageError(f"--output cannot be used: {target} is not a regular file; name another one")
    try:
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")  # readable by its owner only
    except OSError as error:
        raise UsageError(
            f"--output cannot be used: {target} cannot be written ({error.strerror}); name a file in a directory that "
            "you can write to"
        ) from error

    def hand_out(issued: IssuedToken) -> None:
        _hand_out(issued, args, descriptor)
        os.replace(draft, target)  # a file that was there keeps its content until the secret is on the disk

    with contextlib.ExitStack() as undo:
        undo.callback(Path(draft).unlink, missing_ok=True)  # `hand_out` may have moved it
        undo.callback(os.close, descriptor)
        # `rotate` replaces the secret that is in the file, and has no such option.
        if not getattr(args, "force", True):
            _reserve(target)
            undo.callback(_remove_if_empty, target)
        yield hand_out


def _reserve(target: Path) -> None:
    """Create a file, so that no other command writes it; raise `UsageError` if it exists."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError as error:
        raise UsageError(f"--output: {target} exists; name another file, or add --force to replace it") from error


def _remove_if_empty(target: Path) -> None:
    """Remove a reserved file that no secret was written to."""
    if target.stat().st_size == 0:
        target.unlink()


def _hand_out(issued: IssuedToken, args: argparse.Namespace, descriptor: int | None) -> None:
    """Print the secret or write it to a file; first print to standard error how to revoke the token."""
    token = issued.token
    print(
        f"Token {token.id} ({printable(token.name)}), policy {token.policy}, until {token.expires_at}", file=sys.stderr
    )
    print(f"Permissions: {', '.join(token.scopes)}", file=sys.stderr)
    print(f"It is shown this once. To revoke it: jupyter exec token revoke {token.id}", file=sys.stderr, flush=True)
    # After the lines above: if the secret cannot be written, they name the token to revoke.
    if descriptor is not None:
        os.write(descriptor, f"{issued.text}\n".encode())
        # The secret cannot be read again from the server, so a crash must not lose it.
        os.fsync(descriptor)
    if args.json:
        shown = to_json(token) if descriptor is not None else issued_token_to_json(issued)
        print_json(shown)
    elif descriptor is None:
        print(issued.text, flush=True)
