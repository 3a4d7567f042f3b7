"""Rollback of failed code blocks: a checkpoint before each block, to which the session goes back if the block fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, runtime_checkable

from ..client.fork_safety import ProcessLock
from ..errors import CheckpointUnsupported, Conflict, ExecError, LimitReached, PolicyDenied, StorageFull
from ..models import Checkpoint, Execution, ExecutionState, Session
from .function_loading import LoadedFunctions

_NAME = "before a block"
#: Errors for which a block runs without a checkpoint, such as for a thread that an earlier block has started.
_REFUSALS = (Conflict, LimitReached, PolicyDenied, StorageFull)


@runtime_checkable
class CheckpointedSession(Protocol):
    """Interface of a session with checkpoints; sessions of the standard kernels API do not have it."""

    @property
    def record(self) -> Session:
        """The session's record."""

    def checkpoint(self, name: str = "", *, force: bool = False) -> Checkpoint:
        """Make a checkpoint."""

    def restore(self, checkpoint: Checkpoint | str, *, same_random: bool = False) -> None:
        """Go back to a checkpoint."""

    def delete_checkpoint(self, checkpoint: Checkpoint | str) -> None:
        """Delete a checkpoint."""


class Rollback:
    """The automatic checkpoint of an executor's session; there is at most one at a time.

    Parameters
    ----------
    is_enabled : bool
        Whether there is one; if not, every method does nothing.
    """

    def __init__(self, *, is_enabled: bool) -> None:
        self._is_enabled = is_enabled
        self._running = ProcessLock()
        self._kept: tuple[CheckpointedSession, Checkpoint] | None = None
        self._refusal = ""

    @contextmanager
    def one_block(self) -> Iterator[None]:
        """Run one block at a time, since a rollback would also undo the work of another thread's block."""
        if not self._is_enabled:
            yield
            return
        with self._running:
            yield

    def require(self, session: object) -> None:
        """Make the first checkpoint.

        Raises
        ------
        CheckpointUnsupported
            If there are no checkpoints of the session.
        ExecError
            If there may be none, or it could not be made.
        """
        if self._is_enabled:
            self._make(session)

    def mark(self, session: object) -> None:
        """Make a checkpoint in the place of the one before; if it is refused, keep the reason for `undo`."""
        if not self._is_enabled:
            return
        self._delete()
        self._refusal = ""
        try:
            self._make(session)
        except _REFUSALS as error:
            self._refusal = error.message

    def _make(self, session: object) -> None:
        if not isinstance(session, CheckpointedSession):
            raise CheckpointUnsupported(
                "rollback_on_error needs checkpoints, which only servers with this package have"
            )
        self._kept = session, session.checkpoint(_NAME)

    def _delete(self) -> None:
        if self._kept is not None:
            session, checkpoint = self._kept
            self._kept = None
            with suppress(ExecError):  # it has expired, or has ended with its session
                session.delete_checkpoint(checkpoint)

    def undo(self, execution: Execution, functions: LoadedFunctions) -> str:
        """Take the session back if a block has failed.

        Parameters
        ----------
        execution : Execution
            The block's execution, which has ended.
        functions : LoadedFunctions
            Functions that the session has; it has them in its new kernel, too.

        Returns
        -------
        str
            A line about it; empty if there was nothing to undo.
        """
        # A cancelled block had its session restarted or ended: that is the state which is wanted.
        is_wanted = execution.ok or execution.state is ExecutionState.CANCELLED
        if not self._is_enabled or is_wanted or execution.started_at is None:
            return ""
        if self._kept is None:
            return f"Not rolled back: {self._refusal}"
        session, checkpoint = self._kept
        try:
            session.restore(checkpoint)
        except ExecError as error:
            return f"Not rolled back: {error.message}"
        functions.note_restored(session, session.record.kernel_starts)
        what = "variables and files are" if checkpoint.files else "variables are"
        return f"Rolled back: {what} as they were before this block."
