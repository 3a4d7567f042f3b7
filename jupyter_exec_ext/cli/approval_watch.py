"""``jupyter exec approve watch``: asks a person about each execution as it comes."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

from ..client.sync.client import ExecClient
from ..errors import ExecutionNotFound, NotAwaitingApproval
from ..models import Execution
from .approve_command import shown
from .editor import edited
from .server_choice import UsageError, api_client_for

_LOOK_SECONDS = 1.0
_QUESTION = "Run it? y(es), n(o), e(dit), s(kip): "


def watch(args: argparse.Namespace) -> int:
    """Ask about what waits and what comes, until Ctrl-C or the end of the input."""
    if sys.stdin is None:
        raise UsageError("there is no standard input to read answers from")
    skipped: set[str] = set()
    with api_client_for(args) as client, contextlib.suppress(EOFError):
        print("Waiting for code to approve; Ctrl-C to leave.", file=sys.stderr, flush=True)
        while True:
            waiting = [execution for execution in client.approvals.list() if execution.id not in skipped]
            for execution in waiting:
                skipped.add(execution.id)
                _ask_about(client, execution)
            if not waiting:
                time.sleep(_LOOK_SECONDS)  # no event tells of an execution that waits
    return 0


def _ask_about(client: ExecClient, execution: Execution) -> None:
    """Ask until there is an answer, and send it."""
    code = execution.code
    print(shown(client, execution, code), flush=True)
    while (answer := _answer(_QUESTION).lower()[:1]) != "s":
        if answer == "e":
            code = _edited(code)
            print(shown(client, execution, code), flush=True)
        elif answer in ("y", "n"):
            _decide(client, execution, code if answer == "y" else None)
            return


def _decide(client: ExecClient, execution: Execution, code: str | None) -> None:
    """Send an answer; it may come too late."""
    reason = "" if code is not None else _answer("Why not, for the agent to read: ")
    try:
        if code is None:
            client.approvals.reject(execution.id, reason=reason)
        else:
            client.approvals.approve(execution.id, code=None if code == execution.code else code)
    except (NotAwaitingApproval, ExecutionNotFound) as error:
        print(f"jupyter exec: {error.message}", file=sys.stderr)


def _edited(code: str) -> str:
    try:
        return edited(code)
    except UsageError as error:
        print(f"jupyter exec: {error}", file=sys.stderr)
        return code


def _answer(question: str) -> str:
    """Ask, and take only what was typed after the question: what came before it was no answer to it."""
    _forget_typed()
    return input(question).strip()


def _forget_typed() -> None:
    if not sys.stdin.isatty():
        return
    try:
        import termios
    except ImportError:  # Windows
        return
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
