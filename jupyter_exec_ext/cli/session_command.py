"""``jupyter exec session``: sessions that outlive a command."""

from __future__ import annotations

import argparse

from ..models import Session
from .printable_text import print_table
from .server_choice import api_client_for


def list_(args: argparse.Namespace) -> int:
    """Print the sessions, one a line."""
    with api_client_for(args) as client:
        sessions = client.list_sessions(ended=args.ended)
    rows = [("ID", "STATE", "KERNEL", "ISOLATION", "LAST ACTIVITY", "NAME")]
    rows += [(s.id, s.state.value, _kernel(s), s.isolation, s.last_activity_at, s.name) for s in sessions]
    print_table(rows)
    return 0


def _kernel(session: Session) -> str:
    return f"{session.kernel_name} (attached to {session.kernel_id})" if session.attached else session.kernel_name


def start(args: argparse.Namespace) -> int:
    """Start a session and print its id, for ``jupyter exec run --session``."""
    with api_client_for(args) as client:
        session = client.session(
            args.kernel,
            name=args.name,
            idle_timeout_seconds=args.idle_timeout,
            kernel_id=args.attach,
            isolation=args.isolation,
        )
        print(session.id)
    return 0


def stop(args: argparse.Namespace) -> int:
    """Shut sessions down."""
    with api_client_for(args) as client:
        for session_id in args.ids:
            client.get_session(session_id).close()
    return 0


def interrupt(args: argparse.Namespace) -> int:
    """Interrupt what runs in sessions."""
    with api_client_for(args) as client:
        for session_id in args.ids:
            client.get_session(session_id).interrupt()
    return 0
