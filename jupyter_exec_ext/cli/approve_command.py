"""``jupyter exec approve``: what agents want to run, and what a person says about it.

The code is hostile until a person has said otherwise: it is shown so that it cannot pass for anything else.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from ..client.sync.client import ExecClient
from ..errors import ExecError, NotAwaitingApproval
from ..models import Execution
from ..protocol.records_json import to_json
from .editor import edited
from .printable_text import fields, numbered, print_table
from .server_choice import UsageError, api_client_for

_HEAD_CHARACTERS = 40


def list_(args: argparse.Namespace) -> int:
    """Print what waits, one a line."""
    with api_client_for(args) as client:
        waiting = client.approvals.list()
    if args.json:
        print(json.dumps([to_json(execution) for execution in waiting], indent=2))
        return 0
    rows = [("ID", "SESSION", "UNTIL", "WHY", "CODE")]
    rows += [(e.id, e.session_id, until(e), why(e), e.code.strip()[:_HEAD_CHARACTERS]) for e in waiting]
    print_table(rows)
    return 0


def show(args: argparse.Namespace) -> int:
    """Print one that waits, with all of its code."""
    with api_client_for(args) as client:
        execution = _waiting(client, args.id)
        print(shown(client, execution, execution.code))
    return 0


def accept(args: argparse.Namespace) -> int:
    """Let executions run, as they are or with other code."""
    if args.code is not None and len(args.ids) > 1:
        raise UsageError("--code is the code of one execution; name one")
    replacement = None if args.code is None else _read(args.code)
    with api_client_for(args) as client:
        for execution_id in args.ids:
            code = _edited(client, execution_id) if args.edit else replacement
            client.approvals.approve(execution_id, code=code, reason=args.reason)
    return 0


def reject(args: argparse.Namespace) -> int:
    """Let executions end without running."""
    with api_client_for(args) as client:
        for execution_id in args.ids:
            client.approvals.reject(execution_id, reason=args.reason)
    return 0


def shown(client: ExecClient, execution: Execution, code: str) -> str:
    """Return what a person needs to know to decide about code; what is sure stands last, nearest to the question."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    facts = [
        ("execution", execution.id),
        ("session", execution.session_id),
        ("token", _whose(client, execution)),
        ("language", execution.language or "the kernel's own"),
        ("input()", "the agent answers it, unseen" if execution.allow_input else "not answered"),
        ("why", why(execution)),
        ("until", until(execution)),
    ]
    return f"{numbered(code, columns)}\n\n{fields(facts)}"


def why(execution: Execution) -> str:
    """Return why it waits."""
    return execution.approval.why if execution.approval is not None else ""


def until(execution: Execution) -> str:
    """Return until when it waits."""
    return execution.approval.expires_at if execution.approval is not None else ""


def _whose(client: ExecClient, execution: Execution) -> str:
    """Return the token that the session belongs to, with its name."""
    try:
        principal = client.get_session(execution.session_id).record.owner
    except ExecError as error:
        return f"unknown: {error.message}"
    token_id = principal.removeprefix("token:").rpartition("/")[2]
    try:
        return f"{token_id} ({client.tokens.get(token_id).name})"
    except ExecError:  # its id says enough
        return token_id


def _waiting(client: ExecClient, execution_id: str) -> Execution:
    for execution in client.approvals.list():
        if execution.id == execution_id:
            return execution
    raise NotAwaitingApproval(
        f"no execution {execution_id!r} waits for approval; 'jupyter exec approve list' lists them"
    )


def _edited(client: ExecClient, execution_id: str) -> str:
    code = _waiting(client, execution_id).code
    text = edited(code)
    if text == code:  # who changes nothing may have thought better of it
        raise UsageError(
            f"nothing was changed, so {execution_id} was not approved; to approve it as it is, leave --edit out"
        )
    return text


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--code cannot be read: {error}") from error
