"""Resources of AutoGen's executors: a session with functions, an output directory, and perhaps a server of its own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from ..executors.function_loading import FunctionsModule, LoadedFunctions
from ..executors.local import LocalJupyterServer
from ..models import Execution
from ._code_session import TIMEOUT_SECONDS, CodeSession, OpenSession


class SessionWithFunctions(CodeSession):
    """A `CodeSession` that installs packages and loads functions before any other code runs.

    It loads functions again into a replaced kernel, and installs packages again in a replaced session.

    Parameters
    ----------
    functions : FunctionsModule
        The functions. Opening the session and running code raise `ValueError` if they cannot be loaded.
    packages : sequence of str
        The packages. Opening the session and running code raise `ExecError` if they cannot be installed.
    **options
        As for `CodeSession`.
    """

    def __init__(self, functions: FunctionsModule, packages: Sequence[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self._packages = packages
        self._session_with_packages: OpenSession | None = None
        self._functions = LoadedFunctions(functions, self.timeout_seconds or TIMEOUT_SECONDS)
        self._notes: dict[str, str] = {}

    async def restart(self) -> None:
        """Start over with a fresh kernel, which gets the functions before the next code."""
        self._functions.forget()  # a run that waits for the fresh kernel must not count on them
        try:
            await super().restart()
        finally:
            # Again: a run meanwhile, or the opening of a given session, may have loaded them into the old kernel.
            self._functions.forget()

    def pop_note(self, execution: Execution) -> str | None:
        """Return, once, the note for a model on an execution that ran without the functions."""
        return self._notes.pop(execution.id, None)

    async def _prepare(self, session: OpenSession) -> None:
        if self._packages and session is not self._session_with_packages:
            await session.install(*self._packages)
            self._session_with_packages = session
        await self._functions.ensure_async(session)

    def _note_run(self, session: OpenSession, execution: Execution) -> None:
        note = self._functions.describe_lost_functions(session, execution)
        if note is not None:
            self._notes[execution.id] = note


class ExecutorResources:
    """Session, output directory and perhaps server of an executor, which start and stop together.

    Parameters
    ----------
    functions : FunctionsModule
        Functions for the session.
    packages : sequence of str
        Packages for the session.
    output_dir : Path or None
        Directory for displayed files; None for a temporary one.
    **place
        Options of `CodeSession`. Without a server and a session, a server on this machine is started.
    """

    def __init__(
        self, functions: FunctionsModule, packages: Sequence[str], output_dir: Path | None, **place: Any
    ) -> None:
        self.running: tuple[SessionWithFunctions, Path] | None = None
        self._functions = functions
        self._packages = packages
        self._output_dir = output_dir
        self._place = place
        self._starting = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def start(self) -> tuple[SessionWithFunctions, Path]:
        """Return session and output directory, which are started if they are not."""
        async with self._starting:
            if self.running is None:
                async with AsyncExitStack() as stack:  # an exception undoes all that was started
                    place = dict(self._place)
                    if place["server"] is None and place["session"] is None:
                        place["server"] = await stack.enter_async_context(run_own_server())
                    session = SessionWithFunctions(self._functions, self._packages, name="JupyterCodeExecutor", **place)
                    await stack.enter_async_context(session)
                    await session.open()
                    output_dir = self._output_dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))
                    await asyncio.to_thread(output_dir.mkdir, parents=True, exist_ok=True)
                    self._stack = stack.pop_all()
                self.running = session, output_dir
            return self.running

    async def stop(self) -> None:
        """Stop everything; calling it again does nothing."""
        async with self._starting:
            stack, self._stack, self.running = self._stack, AsyncExitStack(), None
        self._starting = asyncio.Lock()  # a lock that tasks have waited for belongs to their event loop
        await stack.aclose()


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
