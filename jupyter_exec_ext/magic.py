"""Cell magic ``%%exec``: runs a cell of a notebook in a session of a server, instead of in the notebook's kernel."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from dataclasses import replace
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.display import display

from .client.durations import duration
from .client.fork_safety import atexit_in_this_process
from .client.local_servers import AUTO, connection_to_named, find_connection, token_of_environment
from .client.server_connection import JupyterConnectionInfo
from .client.sync.client import ExecClient
from .client.sync.session import ExecSession
from .errors import ExecError, SessionEnded, SessionNotFound
from .models import (
    DisplayEvent,
    ErrorEvent,
    OutputEvent,
    ResultEvent,
    SessionState,
    StreamEvent,
    TruncatedEvent,
    UnresponsiveEvent,
)
from .models.execution_display import bundle_for_notebook
from .models.model_content import error_text


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise the error that IPython shows in one line; argparse would end the kernel."""
        raise UsageError(f"{message}; %%exec? shows the options")


def _parser() -> _Parser:
    parser = _Parser(prog="%%exec", add_help=False, allow_abbrev=False)
    parser.add_argument("--server", default=AUTO)
    parser.add_argument("--session")
    parser.add_argument("--sandbox", action="store_true")
    parser.add_argument("--timeout", type=duration)
    parser.add_argument("--out")
    return parser


_PARSER = _parser()
_OPTIONS = ("--server", "--session", "--sandbox", "--timeout", "--out")


class _Shown:
    """Value that a notebook shows by a MIME bundle."""

    def __init__(self, bundle: dict[str, Any]) -> None:
        self._bundle = bundle

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return self._bundle


class ExecMagic:
    """Sessions of one notebook, which end with its kernel.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
        The notebook's.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._clients: dict[str, ExecClient] = {}
        self._session_ids: dict[tuple[str, bool], str] = {}
        atexit_in_this_process(self.close)

    def close(self) -> None:
        """End the sessions that cells have started; one whose server is away ends when it has been idle for long."""
        for (server, _), session_id in self._session_ids.items():
            with contextlib.suppress(ExecError):
                self._clients[server].get_session(session_id).close()
        self._session_ids.clear()
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def run_cell(self, line: str, cell: str) -> None:
        """Run this cell in a session of a server.

        Cells with the same options share a session, so that its variables stay. The server's token comes from its URL
        or profile, or from JUPYTER_TOKEN.

        Options
        -------
        --server URL
            The server, by its URL or the name of a profile; by default that of JUPYTER_EXEC_SERVER, or one of yours on
            this machine.
        --session ID
            A session that exists, which goes on when the notebook ends.
        --sandbox
            Require a sandbox for the code.
        --timeout TIME
            Time after which the code is stopped, such as 90, 90s, 30m or 2h.
        --out NAME
            A variable that gets the finished execution.
        """
        given = _PARSER.parse_args(shlex.split(line))
        if given.session is not None and given.sandbox:
            raise UsageError("--sandbox is for a new session, and --session ID has its own; leave one of them out")
        session = self._session(given.server, given.session, given.sandbox)
        execution = session.run(cell, timeout=given.timeout, on_event=_show)
        if not execution.ok and execution.error is None:
            print(f"{execution.state.value}: {execution.reason or 'the code did not end by itself'}", file=sys.stderr)
        if given.out:
            self._shell.user_ns[given.out] = execution

    def _session(self, server: str, session_id: str | None, sandbox: bool) -> ExecSession:
        client = self._client(server)
        if session_id is not None:
            return client.get_session(session_id)
        key = (server, sandbox)
        session = _find_session(client, self._session_ids.get(key))
        if session is None:
            session = client.session(name="%%exec", isolation="sandbox" if sandbox else None)
            session.detach()  # by its id, a client with another token or address finds it, too
            self._session_ids[key] = session.id
        return session

    def _client(self, server: str) -> ExecClient:
        """Return the client of a server; a new one after a change of its token or address."""
        client = self._clients.get(server)
        # A newer server does not have the notebook's variables.
        if client is not None and server == AUTO and _is_running(client.connection_info):
            return client
        info = _connection(server)
        if client is None or client.connection_info != info:
            if client is not None:
                client.close()
            client = self._clients[server] = ExecClient(info)
        return client


def _find_session(client: ExecClient, session_id: str | None) -> ExecSession | None:
    """Return a session, or None if there is none any more: it has ended, or the server has forgotten it."""
    if session_id is None:
        return None
    try:
        session = client.get_session(session_id)
    except (SessionEnded, SessionNotFound):
        return None
    return None if session.record.state is SessionState.ENDED else session


def _is_running(known: JupyterConnectionInfo) -> bool:
    """Return whether a server of this machine still runs at the same address with the same token."""
    running = JupyterConnectionInfo.discover()
    return any(info.url == known.url and info.token in (None, known.token) for info in running)


def _connection(server: str) -> JupyterConnectionInfo:
    if server == AUTO:
        return find_connection()
    try:
        info = connection_to_named(server)
    except ValueError as error:  # no such profile, or no URL
        raise UsageError(str(error)) from error
    return replace(info, token=info.token or token_of_environment())


def _show(event: OutputEvent) -> None:
    if isinstance(event, StreamEvent):
        print(event.text, end="", file=sys.stderr if event.name == "stderr" else sys.stdout, flush=True)
    elif isinstance(event, (DisplayEvent, ResultEvent)):
        display(_Shown(bundle_for_notebook(event.data)))  # type: ignore[no-untyped-call]
    elif isinstance(event, ErrorEvent):
        print(error_text(event.traceback, event.name, event.value), file=sys.stderr)
    elif isinstance(event, TruncatedEvent):
        print(f"{event.truncated.dropped_bytes:,} bytes of output beyond the limit were left out", file=sys.stderr)
    elif isinstance(event, UnresponsiveEvent):
        print(f"the kernel is unresponsive: {event.reason}", file=sys.stderr)


def _complete_options(_shell: Any, event: Any) -> list[str]:
    return [option for option in _OPTIONS if option.startswith(event.symbol)]


def add_magic(shell: Any) -> None:
    """Add ``%%exec`` to an IPython shell, with completion of its options."""
    shell.register_magic_function(ExecMagic(shell).run_cell, "cell", "exec")
    shell.set_hook("complete_command", _complete_options, str_key="%%exec")
