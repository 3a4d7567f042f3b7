"""Actions of ``jupyter exec session`` for checkpoints: make, list, delete, go back to one, and branch."""

from __future__ import annotations

import argparse
import re
from typing import Any

from ..models import Checkpoint
from ..protocol.checkpoint_request_parsing import MAX_BRANCHES
from ..protocol.records_json import to_json
from ..protocol.view_json import view_to_json
from .common_options import add_command, add_json_option, print_json
from .messages import print_message
from .relative_times import relative_time
from .server_choice import add_server_options, api_client_for
from .short_ids import find_checkpoint, find_session
from .terminal_text import print_table, printable

_CHECKPOINT_HELP = "the checkpoint: its name, its id, or the start of that"
_BYTES_PER_MB = 1_000_000


def add_checkpoint_actions(actions: Any, session_help: str) -> None:
    """Add the actions for checkpoints to ``jupyter exec session``.

    Parameters
    ----------
    actions
        The group of actions.
    session_help : str
        Help of the argument SESSION.
    """
    make = add_command(actions, "checkpoint", "keep a session's state, to go back to it", make_checkpoint)
    listing = add_command(actions, "checkpoints", "list a session's checkpoints, oldest first", list_checkpoints)
    restore = add_command(
        actions, "restore", "take a session back to a checkpoint; what is queued is cancelled", restore_session
    )
    branch = add_command(
        actions, "branch", "start sessions with the state of this one and print their ids", branch_session
    )
    delete = add_command(actions, "delete-checkpoint", "delete a checkpoint", delete_checkpoint)
    delete.usage = "%(prog)s [OPTION ...] SESSION CHECKPOINT"  # beside this name, all options do not fit 80 columns
    for action in (make, listing, restore, branch, delete):
        action.add_argument("id", metavar="SESSION", help=session_help)
    make.add_argument("name", nargs="?", default="", metavar="NAME", help="a name for the checkpoint")
    make.add_argument(
        "--force", action="store_true", help="make it without what cannot be taken along, such as threads"
    )
    for action in (restore, delete):
        action.add_argument("checkpoint", metavar="CHECKPOINT", help=_CHECKPOINT_HELP)
    branch.add_argument(
        "--checkpoint", metavar="CHECKPOINT", help=f"{_CHECKPOINT_HELP} (default: the session as it is)"
    )
    branch.add_argument(
        "--count",
        type=branch_count,
        default=1,
        metavar="N",
        help=f"how many, at most {MAX_BRANCHES} (default: %(default)s)",
    )
    for action in (restore, branch):
        action.add_argument(
            "--same-random",
            action="store_true",
            help="draw the random numbers that the session would have drawn, instead of others",
        )
    for action in (make, listing, restore, branch):
        add_json_option(action)
    for action in (make, listing, restore, branch, delete):
        add_server_options(action, "auto", "auto", leaves_hub_token_valid=action is branch)


def branch_count(text: str) -> int:
    """Parse a number of branches.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is no number that the server accepts.
    """
    if re.fullmatch(r"[0-9]{1,4}", text) and 1 <= int(text) <= MAX_BRANCHES:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of branches; write one from 1 to {MAX_BRANCHES}")


def make_checkpoint(args: argparse.Namespace) -> int:
    """Make a checkpoint and print its id."""
    with api_client_for(args) as client:
        checkpoint = find_session(client, args.id).checkpoint(args.name, force=args.force)
    if args.json:
        print_json(view_to_json(checkpoint))
        return 0
    print(checkpoint.id)
    for hindrance in checkpoint.lost:
        print_message(f"the checkpoint is without: {printable(str(hindrance))}")
    return 0


def list_checkpoints(args: argparse.Namespace) -> int:
    """Print a session's checkpoints, one a line."""
    with api_client_for(args) as client:
        checkpoints = find_session(client, args.id).checkpoints()
    if args.json:
        print_json({"checkpoints": [view_to_json(checkpoint) for checkpoint in checkpoints]})
        return 0
    rows = [("ID", "CREATED", "MEMORY", "WITHOUT", "NAME")]
    rows += [(c.id, relative_time(c.created_at), _memory(c), _lost_kinds(c), c.name) for c in checkpoints]
    print_table(rows)
    return 0


def _memory(checkpoint: Checkpoint) -> str:
    size = checkpoint.memory_bytes
    return "-" if size is None else f"{size / _BYTES_PER_MB:.0f} MB"


def _lost_kinds(checkpoint: Checkpoint) -> str:
    return ", ".join(dict.fromkeys(hindrance.kind for hindrance in checkpoint.lost)) or "-"


def restore_session(args: argparse.Namespace) -> int:
    """Take a session back to a checkpoint."""
    with api_client_for(args) as client:
        session = find_session(client, args.id)
        session.restore(find_checkpoint(session, args.checkpoint), same_random=args.same_random)
    if args.json:
        print_json(to_json(session.record))
    return 0


def branch_session(args: argparse.Namespace) -> int:
    """Make branches of a session and print their ids, one a line."""
    with api_client_for(args) as client:
        session = find_session(client, args.id)
        checkpoint = None if args.checkpoint is None else find_checkpoint(session, args.checkpoint)
        branches = session.branch(args.count, checkpoint, same_random=args.same_random)
        for branch in branches:
            branch.detach()  # it is for later commands
    if args.json:
        print_json({"sessions": [to_json(branch.record) for branch in branches]})
        return 0
    for branch in branches:
        print(branch.id)
    return 0


def delete_checkpoint(args: argparse.Namespace) -> int:
    """Delete a checkpoint."""
    with api_client_for(args) as client:
        session = find_session(client, args.id)
        session.delete_checkpoint(find_checkpoint(session, args.checkpoint))
    return 0
