"""Status of a session in its record: what it waits for, and how its last execution ended."""

from __future__ import annotations

from functools import partial

from ...models import Execution, ExecutionState
from ..executions.live_execution import LiveExecution
from .live_session import LiveSession

_MAX_NAME_CHARACTERS = 100


def follow_execution(session: LiveSession, execution: LiveExecution) -> None:
    """Keep the session's record up to date with an execution that was put in its queue."""
    execution.on_change(partial(_note_change, session, execution))
    # Once more when another one can be the first of the queue.
    execution.on_end(partial(_note_change, session, execution))
    _note_change(session, execution)


def _note_change(session: LiveSession, execution: LiveExecution) -> None:
    ended = execution.record.state.finished
    outcome = {"last_outcome": last_outcome(execution.record)} if ended else {}
    session.note(waits_for=waits_for(session), **outcome)


def waits_for(session: LiveSession) -> str | None:
    """Return whether a session stands still until a person acts: ``input``, ``approval`` or None."""
    current = session.current
    if current is not None:
        return "input" if current.waits_for_input else None
    return "approval" if any(each.awaits_approval for each in list(session.queue)[:1]) else None


def last_outcome(execution: Execution) -> str:
    """Return a finished execution's state; for an error, with the exception's name after a colon and a space."""
    if execution.state is not ExecutionState.ERROR or execution.error is None:
        return execution.state.value
    return f"{execution.state.value}: {execution.error.name[:_MAX_NAME_CHARACTERS]}"
