"""What happens on a server, as its change feed tells it."""

from __future__ import annotations

from dataclasses import dataclass

from .executions import Execution
from .sessions import Session
from .tokens import Token


@dataclass(frozen=True, slots=True)
class Change:
    """Something that has happened: exactly one of a session, an execution and a token, as it is now, or a reset.

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

    @property
    def is_reset(self) -> bool:
        """Whether something may have happened that was not told, so that everything has to be listed again."""
        return self.session is None and self.execution is None and self.token is None
