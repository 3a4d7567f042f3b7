"""History of a session after returns to checkpoints: chooses the executions that led to the present state."""

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
        Returns to checkpoints, oldest first.

    Returns
    -------
    list of str
        In order, without those that ran between a checkpoint and the return to it.
    """
    known = {None, *execution_ids}
    waiting = [restore for restore in restores if restore.before in known]
    line: list[str] = []
    for execution_id in [None, *execution_ids]:
        if execution_id is not None:
            line.append(execution_id)
        # At the moment of a return, the last execution of the line is the one before it.
        while waiting and waiting[0].before == (line[-1] if line else None):
            after = waiting.pop(0).after
            del line[line.index(after) + 1 if after in line else 0 :]
    return line
