"""``jupyter exec execution``: the executions of a session, and the search in those of all sessions."""

from __future__ import annotations

import argparse
from typing import Any

from ..models import Execution
from ..protocol.found_executions import found_to_json
from ..protocol.records_json import summary_to_json
from .common_options import add_command, add_command_group, add_json_option, print_json
from .messages import print_message
from .relative_times import relative_time
from .server_choice import add_server_options, api_client_for
from .short_ids import find_session
from .terminal_text import print_table


def add_execution_command(commands: Any) -> None:
    """Add ``jupyter exec execution``."""
    actions = add_command_group(
        commands, "execution", "list and search what was run", "The executions of sessions, ended ones included."
    )
    listing = add_command(actions, "list", "list a session's newest executions, oldest first", list_executions)
    listing.add_argument("session", metavar="ID", help="the session: its id, the start of that, or its name")
    search = add_command(actions, "search", "search code, errors, output and names, newest first", search_executions)
    search.add_argument("text", metavar="TEXT", help="at least three characters; upper and lower case are the same")
    for action, default in ((listing, 100), (search, 50)):
        action.add_argument(
            "-n", type=int, default=default, dest="limit", metavar="N", help="how many at most (default: %(default)s)"
        )
        action.add_argument("--before", metavar="ID", help="only those before this execution")
        add_json_option(action)
        add_server_options(action, "auto", "auto")


def list_executions(args: argparse.Namespace) -> int:
    """Print the executions of a session, one a line."""
    with api_client_for(args) as client:
        listed = find_session(client, args.session).list_executions(args.limit, before=args.before)
    if args.json:
        print_json({"executions": [summary_to_json(execution) for execution in listed]})
        return 0
    print_table([("ID", "CREATED", "STATE", "CODE"), *(_row(execution) for execution in listed)])
    return 0


def search_executions(args: argparse.Namespace) -> int:
    """Print the executions that have a text, one a line."""
    with api_client_for(args) as client:
        listed = client.search_executions(args.text, limit=args.limit, before=args.before)
    if args.json:
        print_json({"found": list(map(found_to_json, listed)), "complete": listed.complete})
        return 0
    rows = [(*_row(one.execution), one.session_name or one.execution.session_id, one.token_name) for one in listed]
    print_table([("ID", "CREATED", "STATE", "CODE", "SESSION", "TOKEN"), *rows])
    if not listed.complete:
        print_message("older executions are still being indexed; search again in a moment for all of them")
    return 0


def _row(execution: Execution) -> tuple[str, ...]:
    """Return the cells of an execution, with the first line of its code."""
    lines = [line for line in execution.code.splitlines() if line.strip()]
    return execution.id, relative_time(execution.created_at), execution.state.value, lines[0] if lines else ""
