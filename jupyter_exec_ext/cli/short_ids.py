"""Short ids: find a session or checkpoint by its name or the start of its id, and an execution by the latter."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from ..client.sync.client import ExecClient
from ..client.sync.execution_handle import ExecutionHandle
from ..client.sync.session import ExecSession
from ..errors import CheckpointNotFound, ExecutionNotFound, SessionNotFound
from ..models import Checkpoint, SessionState
from ..protocol.record_ids import parse_id
from .messages import UsageError
from .terminal_text import printable

_SESSION, _EXECUTION, _CHECKPOINT = "ses_", "exe_", "chk_"
_MAX_CANDIDATES = 5
_LEAST_DIGITS = 2
# The API lists the executions of one session; older sessions need the whole id.
_MAX_SESSIONS_SEARCHED = 50


def find_session(client: ExecClient, text: str) -> ExecSession:
    """Return the session with this id, name, or start of an id, with or without ``ses_``.

    A session that has ended is found if no other one matches.

    Raises
    ------
    SessionNotFound
        If there is none; the message suggests a similar one.
    UsageError
        If several match; the message lists them.
    """
    if is_whole_id(text):
        try:
            return client.get_session(text)
        except SessionNotFound as error:
            raise _unknown_session(client, text) from error
    sessions = client.list_sessions(ended=True)
    for group in ([s for s in sessions if s.state is not SessionState.ENDED], sessions):
        names = {session.id: session.name for session in group}
        # A name may look like an id, and is what the person chose.
        found = [session_id for session_id, name in names.items() if name and name == text]
        found = found or matching_ids(text, names, _SESSION)
        if found:
            return client.get_session(_only(text, {session_id: names[session_id] for session_id in found}))
    raise _unknown_session(client, text)


def find_execution(client: ExecClient, text: str) -> ExecutionHandle:
    """Return the execution with this id or start of an id, with or without ``exe_``.

    Raises
    ------
    ExecutionNotFound
        If there is none; the message suggests a similar one.
    UsageError
        If several match; the message lists them.
    """
    if is_whole_id(text):
        return client.get_execution(text)
    newest = sorted(client.list_sessions(ended=True), key=lambda session: session.created_at, reverse=True)
    ids = {
        execution.id: ""
        for session in newest[:_MAX_SESSIONS_SEARCHED]
        for execution in client.get_session(session.id).list_executions()
    }
    if found := matching_ids(text, ids, _EXECUTION):
        return client.get_execution(_only(text, dict.fromkeys(found, "")))
    raise ExecutionNotFound(
        f"there is no execution {text!r} in your newest sessions{_guess(text, ids) or ';'} write its whole id"
    )


def find_checkpoint(session: ExecSession, text: str) -> Checkpoint:
    """Return the checkpoint of a session with this name, id, or start of an id, with or without ``chk_``.

    Raises
    ------
    CheckpointNotFound
        If there is none; the message suggests a similar one.
    UsageError
        If several match; the message lists them.
    """
    checkpoints = {checkpoint.id: checkpoint for checkpoint in session.checkpoints()}
    names = {checkpoint.id: checkpoint.name for checkpoint in checkpoints.values()}
    found = [checkpoint_id for checkpoint_id, name in names.items() if name and name == text]
    found = found or matching_ids(text, names, _CHECKPOINT)
    if found:
        return checkpoints[_only(text, {checkpoint_id: names[checkpoint_id] for checkpoint_id in found})]
    guess = _guess(text, [*names, *filter(None, names.values())]) or ";"
    raise CheckpointNotFound(
        f"there is no checkpoint {text!r} of the session{guess} 'jupyter exec session checkpoints' lists them"
    )


def is_whole_id(text: str) -> bool:
    """Return whether a text has the form of a whole id of a session or execution."""
    return parse_id(text) is not None


def matching_ids(text: str, ids: Iterable[str], prefix: str) -> list[str]:
    """Return the ids that begin with a text; it may leave out their `prefix` and their server's name."""
    start = text.removeprefix(prefix)
    return [one for one in ids if _begins(one.removeprefix(prefix), start)]


def _begins(rest: str, start: str) -> bool:
    """Return whether an id without its prefix, such as ``w2_4f12…``, begins with a text, or its digits do."""
    digits = rest.rpartition("_")[2]
    # All ids begin with an empty text, such as that of a variable that is not set, and with their server's name.
    least = len(rest) - len(digits) + _LEAST_DIGITS
    return (rest.startswith(start) and len(start) >= least) or (
        digits.startswith(start) and len(start) >= _LEAST_DIGITS
    )


def only_execution_id(text: str, ids: Iterable[str]) -> str:
    """Return the one of some execution ids that begins with a text; the text itself if none does.

    Raises
    ------
    UsageError
        If several match; the message lists them.
    """
    found = matching_ids(text, ids, _EXECUTION)
    return _only(text, dict.fromkeys(found, "")) if found else text


def _only(text: str, names: Mapping[str, str]) -> str:
    if len(names) == 1:
        return next(iter(names))
    shown = [f"{one} ({printable(name)})" if name else one for one, name in names.items()][:_MAX_CANDIDATES]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    raise UsageError(f"{text!r} matches {', '.join(shown)}{more}; write more of the id")


def _unknown_session(client: ExecClient, text: str) -> SessionNotFound:
    sessions = client.list_sessions(ended=True)
    known = [session.id for session in sessions] + [session.name for session in sessions if session.name]
    guess = _guess(text, known) or ";"
    return SessionNotFound(f"there is no session {text!r}{guess} 'jupyter exec session list' lists them")


def _guess(text: str, known: Iterable[str]) -> str:
    # Ids of random digits are all somewhat alike, so that a suggestion needs more than difflib's usual likeness.
    close = difflib.get_close_matches(text, list(known), n=1, cutoff=0.75)
    return f"; did you mean {close[0]!a}?" if close else ""
