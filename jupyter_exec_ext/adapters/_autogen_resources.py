"""Session of AutoGen's executors: loads functions into every fresh kernel, and can have a server of its own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ..executors.function_loading import FunctionsModule, LoadedFunctions
from ..executors.local import LocalJupyterServer
from ..models import Execution
from ._code_session import TIMEOUT_SECONDS, CodeSession, OpenSession


class SessionWithFunctions(CodeSession):
    """A `CodeSession` that loads functions before any other code runs, and again into a replaced kernel.

    Parameters
    ----------
    functions : FunctionsModule
        The functions. Opening the session and running code raise `ValueError` if they cannot be loaded.
    **options
        As for `CodeSession`.
    """

    def __init__(self, functions: FunctionsModule, **options: Any) -> None:
        super().__init__(**options)
        self._functions = LoadedFunctions(functions, self.timeout_seconds or TIMEOUT_SECONDS)
        self._notes: dict[str, str] = {}

    async def restart(self) -> None:
        """Start over with a fresh kernel, which gets the functions before the next code."""
        self._functions.forget()
        await super().restart()

    def pop_note(self, execution: Execution) -> str | None:
        """Return, once, the note for a model on an execution that ran without the functions."""
        return self._notes.pop(execution.id, None)

    async def _prepare(self, session: OpenSession) -> None:
        await self._functions.ensure_async(session)

    def _note_run(self, session: OpenSession, execution: Execution) -> None:
        note = self._functions.note_on(session, execution)
        if note is not None:
            self._notes[execution.id] = note


@asynccontextmanager
async def run_own_server() -> AsyncIterator[LocalJupyterServer]:
    """Run a Kernel Gateway on this machine, without blocking the event loop at its start and stop."""
    with tempfile.TemporaryDirectory() as logs:
        starting = asyncio.create_task(asyncio.to_thread(LocalJupyterServer, log_file=str(Path(logs, "gateway.log"))))
        try:
            server = await asyncio.shield(starting)
        except asyncio.CancelledError:  # the thread goes on, and no one else would stop the server that it starts
            await asyncio.to_thread((await starting).stop)
            raise
        try:
            yield server
        finally:
            await asyncio.to_thread(server.stop)
