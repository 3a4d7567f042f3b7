"""History of a session after restores: chooses the executions that led to the present state."""

from __future__ import annotations

from collections.abc import Sequence

from ..models import Restore


def current_line(execution_ids: Sequence[str], restores: Sequence[Restore]) -> list[str]:
    """Return the executions that have led to a session's present state.

    Parameters
    ----------
    execution_ids : sequence of str
        All of the session's, oldest first; the oldest may be missing.
    restores : sequence of Restore
        Restores, oldest first.

    Returns
    -------
    list of str
        In order, without those that a restore has left.
    """
    known = {None, *execution_ids}
    waiting = [restore for restore in restores if restore.before in known]
    # A restore may lead to another line, so each execution's predecessor is kept, and not the line alone.
    before: dict[str, str | None] = {}
    last: str | None = None
    for execution_id in [None, *execution_ids]:
        if execution_id is not None:
            before[execution_id] = last
            last = execution_id
        # At the moment of a restore, the last execution of the line is the one before it.
        while waiting and waiting[0].before == last:
            last = waiting.pop(0).after
    line: list[str] = []
    while last is not None and last in before:
        line.append(last)
        last = before[last]
    return line[::-1]
