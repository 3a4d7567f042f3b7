"""A session in which an agent's code finds functions, in every fresh kernel."""

from __future__ import annotations

from typing import Any

from ..executors.function_loading import FunctionsModule, LoadedFunctions
from ..models import Execution
from ._code_session import CodeSession, OpenSession
from ._shared import TIMEOUT_SECONDS


class SessionWithFunctions(CodeSession):
    """A `CodeSession` that loads functions before any other code runs, and again into what takes its kernel's place.

    Parameters
    ----------
    functions : FunctionsModule
        The functions. Opening the session and running code raise `ValueError` if they cannot be loaded.
    **options
        As `CodeSession` takes them.
    """

    def __init__(self, functions: FunctionsModule, **options: Any) -> None:
        super().__init__(**options)
        self._functions = LoadedFunctions(functions, self.timeout_seconds or TIMEOUT_SECONDS)
        self._notes: dict[str, str] = {}

    async def restart(self) -> None:
        """Start over with a fresh kernel, which gets the functions before the next code."""
        self._functions.forget()
        await super().restart()

    def note_on(self, execution: Execution) -> str | None:
        """Return, once, what a model has to know of an execution that ran without the functions."""
        return self._notes.pop(execution.id, None)

    async def _prepare(self, session: OpenSession) -> None:
        await self._functions.ensure_async(session)

    def _has_run(self, session: OpenSession, execution: Execution) -> None:
        note = self._functions.note_on(session, execution)
        if note is not None:
            self._notes[execution.id] = note
