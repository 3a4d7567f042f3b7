"""``jupyter exec approve``: lists, shows, edits and decides about code that waits for approval.

Waiting code may be hostile. Its lines are numbered and escaped, so that none can imitate this command's own output.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ..client.sync.client import ExecClient
from ..errors import ExecError, ExecutionNotFound, NotAwaitingApproval
from ..models import Execution, ExecutionState
from ..protocol.records_json import to_json
from .common_options import add_command, add_command_group, add_json_option, print_json
from .messages import UsageError, error_text, print_error, unreadable_text
from .relative_times import exact_and_relative, relative_time
from .server_choice import add_server_options, api_client_for
from .short_ids import find_session, is_whole_id, only_execution_id
from .terminal_text import fields, numbered, print_table, printable

if sys.platform != "win32":
    import termios

# Code may have megabytes; a table shows the beginning, and `show` all of it.
_HEAD_CHARACTERS = 200
_LOOK_SECONDS = 1.0
_QUESTION = "Run it? y(es), n(o), e(dit), s(kip): "
# Only where later code can share a kind with the code that waits.
_QUESTION_FOR_SESSION = "Run it? y(es), a(lways in this session), n(o), e(dit), s(kip): "
_APPROVE = """\
Code that waits for a person's approval, since the policy of its token wants that. To decide is for the server's owner:
use the server's own token, not one of an agent.

A policy's findings in code are hints for you. They miss code that is hidden well; the kernel's isolation protects from
that.
"""


_ID_HELP = "the execution, or the start of its id"


def add_approve_command(commands: Any) -> None:
    """Add ``jupyter exec approve``."""
    actions = add_command_group(commands, "approve", "decide about code that waits for a person's approval", _APPROVE)
    listing = add_command(actions, "list", "list what waits", list_waiting)
    show = add_command(actions, "show", "show one that waits, with its code", show_waiting)
    accept = add_command(actions, "accept", "let code run, as it is or edited", accept_executions)
    reject = add_command(actions, "reject", "do not let code run", reject_executions)
    watch = add_command(actions, "watch", "show code as it comes, and ask about it", watch_executions)
    withdraw = add_command(
        actions, "withdraw", "ask again about kinds of code that were approved for a session", withdraw_kinds
    )
    for action in (listing, show):
        add_json_option(action)
    show.add_argument("id", metavar="ID", help=_ID_HELP)
    for action in (accept, reject):
        action.add_argument("ids", nargs="+", metavar="ID", help=_ID_HELP)
        action.add_argument("--reason", default="", metavar="TEXT", help="for the agent to read")
    accept.add_argument(
        "--for-session",
        action="store_true",
        help="let code of the same kinds that waits or comes later run in the session unasked",
    )
    withdraw.add_argument("session", metavar="SESSION", help="the session: its id, the start of that, or its name")
    withdraw.add_argument("kinds", nargs="*", metavar="KIND", help="such as shell or 'import socket' (default: all)")
    replacement = accept.add_mutually_exclusive_group()
    replacement.add_argument("--edit", action="store_true", help="edit the code first, in $VISUAL or $EDITOR")
    replacement.add_argument("--code", metavar="FILE", help="run this file's code in its place")
    for action in (listing, show, accept, reject, watch, withdraw):
        add_server_options(action, "auto", "auto")


def list_waiting(args: argparse.Namespace) -> int:
    """Print waiting executions, one a line."""
    with api_client_for(args) as client:
        waiting = client.approvals.list()
    if args.json:
        print_json([to_json(execution) for execution in waiting])
        return 0
    rows = [("ID", "SESSION", "UNTIL", "WHY", "CODE")]
    rows += [(e.id, e.session_id, relative_time(_deadline(e)), _reason(e), _head(e.code)) for e in waiting]
    print_table(rows)
    return 0


def _head(code: str) -> str:
    text = code.strip()
    return text if len(text) <= _HEAD_CHARACTERS else f"{text[:_HEAD_CHARACTERS]}…"


def show_waiting(args: argparse.Namespace) -> int:
    """Print a waiting execution with all of its code."""
    with api_client_for(args) as client:
        execution = _waiting(client, args.id)
        if args.json:
            print_json(to_json(execution))
            return 0
        print(_describe(client, execution, execution.code))
    return 0


def accept_executions(args: argparse.Namespace) -> int:
    """Approve executions, as they are or with other code."""
    if args.code is not None and len(args.ids) > 1:
        raise UsageError("--code is the code of one execution; name one")
    replacement = None if args.code is None else _read(args.code)
    with api_client_for(args) as client:
        for execution_id in args.ids:
            execution_id = _waiting_id(client, execution_id)
            code = _edit_waiting(client, execution_id) if args.edit else replacement
            client.approvals.approve(execution_id, code=code, reason=args.reason, for_session=args.for_session)
    return 0


def reject_executions(args: argparse.Namespace) -> int:
    """Reject executions."""
    with api_client_for(args) as client:
        for execution_id in args.ids:
            client.approvals.reject(_waiting_id(client, execution_id), reason=args.reason)
    return 0


def withdraw_kinds(args: argparse.Namespace) -> int:
    """Ask again about kinds of code that were approved for a session."""
    with api_client_for(args) as client:
        session = find_session(client, args.session).record
        for kind in args.kinds:
            if kind not in session.approved_kinds:
                known = ", ".join(map(printable, session.approved_kinds)) or "none"
                raise UsageError(f"the session has no approved kind {kind!r}; approved kinds: {known}")
        for kind in args.kinds or [None]:
            client.approvals.withdraw(session.id, kind)
    return 0


def watch_executions(args: argparse.Namespace) -> int:
    """Ask about each waiting execution as it comes, until Ctrl-C or the end of the input."""
    if sys.stdin is None:
        raise UsageError("there is no standard input to read answers from")
    skipped: set[str] = set()
    with api_client_for(args) as client, contextlib.suppress(EOFError):
        print("Waiting for code to approve; Ctrl-C to leave.", file=sys.stderr, flush=True)
        while True:
            # Listed after each answer, which can be one for others that wait, too.
            execution = next((one for one in client.approvals.list() if one.id not in skipped), None)
            if execution is None:
                time.sleep(_LOOK_SECONDS)  # the API has no event for a waiting execution
                continue
            # Before the question, so that code is asked about once, also if the decision comes too late.
            skipped.add(execution.id)
            _ask_about(client, execution)
    return 0


def _ask_about(client: ExecClient, execution: Execution) -> None:
    """Ask until the person decides, and send the decision."""
    code = execution.code
    has_kind = any(each.kind for each in execution.approval.findings) if execution.approval is not None else False
    print(_describe(client, execution, code), flush=True)
    while (answer := _ask(_QUESTION_FOR_SESSION if has_kind else _QUESTION).lower()[:1]) != "s":
        if answer == "e":
            code = _edit_or_keep(code)
            print(_describe(client, execution, code), flush=True)
        elif answer == "n":
            _decide(client, execution, None)
            return
        elif answer == "y" or (answer == "a" and has_kind):
            _decide(client, execution, code, for_session=answer == "a")
            return
    print(f"skipped {execution.id}; it waits until {exact_and_relative(_deadline(execution))}", flush=True)


def _decide(client: ExecClient, execution: Execution, code: str | None, *, for_session: bool = False) -> None:
    """Send a decision, which may come too late."""
    reason = "" if code is not None else _ask("Why not, for the agent to read: ")
    try:
        if code is None:
            client.approvals.reject(execution.id, reason=reason)
            print(f"rejected {execution.id}; it does not run", flush=True)
        else:
            is_edited = code != execution.code
            decided = client.approvals.approve(execution.id, code=code if is_edited else None, for_session=for_session)
            print(f"approved {execution.id}{' as edited' * is_edited}; {_progress(client, decided)}", flush=True)
            if for_session:
                kinds = ", ".join(map(printable, decided.approval.approved_kinds if decided.approval else ()))
                print(f"not asked about in this session from now on: {kinds}", flush=True)
    except (NotAwaitingApproval, ExecutionNotFound) as error:
        print_error(error.message)


def _progress(client: ExecClient, approved: Execution) -> str:
    """Return what an approved execution does now."""
    if approved.state.finished:
        return f"it has ended: {approved.state}"
    # It is queued for a moment even where nothing runs.
    others = client.get_session(approved.session_id).list_executions()
    is_behind = any(one.state is ExecutionState.RUNNING and one.id != approved.id for one in others)
    return "it runs after the code before it in its session" if is_behind else "it runs now"


def _edit_or_keep(code: str) -> str:
    try:
        return _edit(code)
    except UsageError as error:
        print_error(str(error))
        return code


def _ask(question: str) -> str:
    """Ask, and read only input that was typed after the question was shown."""
    _discard_typed_ahead()
    return input(question).strip()


def _discard_typed_ahead() -> None:
    if sys.platform != "win32" and sys.stdin.isatty():
        # A key that was pressed before the code was shown would approve code that the person has not read.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _describe(client: ExecClient, execution: Execution, code: str) -> str:
    """Return the code and the facts about it; the facts, which an agent cannot fake, stand nearest to the question."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    facts = [
        ("execution", execution.id),
        ("session", execution.session_id),
        ("token", _whose(client, execution)),
        ("language", execution.language or "the kernel's own"),
        ("input()", "the agent answers it, unseen" if execution.allow_input else "not answered"),
        ("why", _findings(execution)),
        ("until", exact_and_relative(_deadline(execution))),
    ]
    return f"{numbered(code, columns)}\n\n{fields(facts)}"


def _reason(execution: Execution) -> str:
    """Return the reason why an execution waits."""
    return execution.approval.why if execution.approval is not None else ""


def _findings(execution: Execution) -> str:
    """Return all reasons why an execution waits, with the lines of its code."""
    found = execution.approval.findings if execution.approval is not None else ()
    reasons = (each.why if each.line is None else f"line {each.line}: {each.why}" for each in found)
    return "; ".join(reasons) or _reason(execution)


def _deadline(execution: Execution) -> str:
    """Return the time at which an execution stops waiting."""
    return execution.approval.expires_at if execution.approval is not None else ""


def _whose(client: ExecClient, execution: Execution) -> str:
    """Return the id and name of the token that owns the session."""
    try:
        principal = client.get_session(execution.session_id).record.owner
    except ExecError as error:
        return f"unknown: {error.message}"
    # A principal is the path of token ids from the owner down; the last one is the session's token.
    token_id = principal.removeprefix("token:").rpartition("/")[2]
    try:
        return f"{token_id} ({client.tokens.get(token_id).name})"
    except ExecError:  # the id alone identifies it
        return token_id


def _waiting(client: ExecClient, execution_id: str) -> Execution:
    waiting = {execution.id: execution for execution in client.approvals.list()}
    if execution := waiting.get(only_execution_id(execution_id, waiting)):
        return execution
    raise NotAwaitingApproval(
        f"no execution {execution_id!r} waits for approval; 'jupyter exec approve list' lists them"
    )


def _waiting_id(client: ExecClient, text: str) -> str:
    """Return a whole id as it is, since the server knows why it does not wait; else the waiting one that it starts."""
    return text if is_whole_id(text) else _waiting(client, text).id


def _edit_waiting(client: ExecClient, execution_id: str) -> str:
    code = _waiting(client, execution_id).code
    text = _edit(code)
    if text == code:  # leaving the editor without a change may mean a change of mind
        raise UsageError(
            f"nothing was changed, so {execution_id} was not approved; to approve it as it is, leave --edit out"
        )
    return text


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--code {unreadable_text(path, error)}") from error


def _edit(code: str) -> str:
    """Return code after a person has edited it.

    Raises
    ------
    UsageError
        If the editor cannot be started, fails, or leaves a file that is not text.
    """
    # It may have options, as in EDITOR='code --wait'.
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory() as directory:  # for its owner alone
        file = Path(directory) / "code.txt"
        file.write_bytes(code.encode())  # bytes, since text mode would change line ends on Windows
        try:
            done = subprocess.run([*editor, str(file)], check=False)
            text = file.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the code cannot be edited: {error_text(error)}; EDITOR names the editor") from error
    if done.returncode != 0:
        raise UsageError(f"the editor ended with {done.returncode}, so nothing was done")
    return code if text == f"{code}\n" else text  # editors end the last line
