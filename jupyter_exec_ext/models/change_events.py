"""Events of the change feed: a session, execution or token as it is now, or late output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .execution_records import Execution
from .output_events import OutputEvent
from .session_records import Session
from .token_records import Token


@dataclass(frozen=True, slots=True)
class LateOutput:
    """Output of an execution that had ended already.

    Parameters
    ----------
    execution_id, session_id : str
        The execution whose code has written it, and its session.
    late_bytes : int
        Size of all late output of this execution so far, as in its record.
    events : sequence of OutputEvent
        What came while nothing ran in the session, as far as it is kept: the session's next execution begins with it.
        Of much output, the first events.
    """

    execution_id: str
    session_id: str
    late_bytes: int
    events: Sequence[OutputEvent] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """Something that has happened: one of a session, an execution and a token as it is now, late output, or a reset.

    Parameters
    ----------
    id : str
        What to go on after.
    execution : Execution or None
        Without its outputs, and of long code the beginning.
    """

    id: str
    session: Session | None = None
    execution: Execution | None = None
    token: Token | None = None
    late_output: LateOutput | None = None

    @property
    def is_reset(self) -> bool:
        """Whether something may have happened that was not told, so that everything has to be listed again."""
        known = (self.session, self.execution, self.token, self.late_output)
        return all(record is None for record in known)
