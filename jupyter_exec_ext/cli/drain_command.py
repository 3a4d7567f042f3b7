"""``jupyter exec drain``: has a server take no new sessions, and waits until nothing runs there."""

from __future__ import annotations

import argparse
import time
from typing import Any

from ..client.durations import duration
from ..client.local_servers import AUTO
from ..client.sync.client import ExecClient
from ..errors import Unavailable
from ..models import ServerLoad
from ..protocol.view_json import view_to_json
from .common_options import add_command, add_json_option, print_json
from .messages import UsageError, print_message
from .server_choice import add_server_options, client_for

_LOOK_SECONDS = 1.0
_WAIT_SECONDS = 3600.0


def add_drain_command(commands: Any) -> None:
    """Add ``jupyter exec drain``."""
    parser = add_command(commands, "drain", "have a server take no new sessions, before you stop it", drain)
    parser.add_argument(
        "url", nargs="?", metavar="URL|NAME|auto", help="the server, as --server; its sessions go on as before"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--wait", action="store_true", help="wait until nothing runs there")
    action.add_argument("--undo", action="store_true", help="have it take new sessions again")
    parser.add_argument(
        "--timeout",
        type=duration,
        default=_WAIT_SECONDS,
        metavar="TIME",
        help="with --wait: fail after this time, such as 30m (default: 1h)",
    )
    add_json_option(parser)
    add_server_options(parser, AUTO, AUTO)


def drain(args: argparse.Namespace) -> int:
    """Begin or end the drain, and print what the server does."""
    _choose_server(args)
    with client_for(args) as client:
        client.drain(undo=args.undo)
        load = client.load()
        if args.wait and _open(load):
            print_message(f"waiting until nothing runs ({_described(load)})")
            load = _wait_until_quiet(client, args.timeout)
    if args.json:
        print_json(view_to_json(load))
    else:
        print(f"{args.server_url} takes {'new' if args.undo else 'no new'} sessions ({_described(load)})")
    return 0


def _choose_server(args: argparse.Namespace) -> None:
    """Put the server of the argument in the place of the option's."""
    if args.url is None:
        return
    is_from_environment = getattr(args, "is_server_chosen", False)
    if args.hub is not None or (args.server != AUTO and not is_from_environment):
        raise UsageError("name the server once: as the argument, or with --server or --hub")
    if args.url != AUTO:
        args.server, args.is_server_chosen = args.url, False


def _wait_until_quiet(client: ExecClient, seconds: float) -> ServerLoad:
    give_up_at = time.monotonic() + seconds
    while _open(load := client.load()):
        if time.monotonic() >= give_up_at:
            raise Unavailable(
                f"code still runs or waits after {seconds:g} s ({_described(load)}); the server stays drained. Wait "
                "again, or stop it, which ends what runs"
            )
        time.sleep(_LOOK_SECONDS)
    return load


def _open(load: ServerLoad) -> int:
    return load.running + load.queued


def _described(load: ServerLoad) -> str:
    return f"sessions: {load.sessions}, running: {load.running}, waiting: {load.queued}"
