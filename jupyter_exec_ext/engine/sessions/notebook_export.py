"""Notebook export: a session's notebook as JSON, with one cell at a time in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ...auth.caller import Caller
from ...errors import Conflict, ExecutionNotFound
from ...models import Execution, Session
from ...protocol.history_lines import current_line
from ...protocol.large_values import collect, encode_in_pieces
from ...protocol.notebook_format import NOTEBOOK_END, cells_of, notebook_start
from ..concurrency import FairTurns
from ..ports import KernelHost
from .execution_service import ExecutionService
from .session_service import SessionService

#: Cells of one principal's exports that are in memory at once. A slow reader holds one of them.
CELLS_AT_ONCE = 4
#: Largest notebook that is saved on the server, in bytes; its contents manager needs it as a whole.
MAX_SAVED_BYTES = 64 * 1024 * 1024
_MAX_CELLS = 10_000

Write = Callable[[Iterable[bytes]], Awaitable[None]]


class NotebookExporter:
    """Notebooks of one engine's sessions."""

    def __init__(self, sessions: SessionService, executions: ExecutionService, host: KernelHost) -> None:
        self._sessions = sessions
        self._executions = executions
        self._host = host
        self._turns = FairTurns(per_key=CELLS_AT_ONCE)

    async def export(self, caller: Caller, session_id: str) -> NotebookExport:
        """Return a session's notebook, ready to be written: of what has led to its present state.

        Raises
        ------
        SessionNotFound
            If there is none that the caller may see.
        """
        session = await self._sessions.get(caller, session_id)
        executions = await self._executions.list_ids(session_id, _MAX_CELLS)
        cells = current_line(executions, session.restores)
        names = {spec.name: spec.display_name for spec in await self._host.kernelspecs()}
        display_name = names.get(session.kernel_name, session.kernel_name)
        return NotebookExport(session, display_name, cells, self._executions, caller, self._turns)


class NotebookExport:
    """The notebook of one session, for one caller.

    Parameters
    ----------
    display_name : str
        Name of the session's kernel for people.
    execution_ids : sequence of str
        The cells, in order. One that is removed before it is written is left out.
    executions : ExecutionService
        Reads the cells with their outputs.
    turns : FairTurns
        Bounds the cells in memory, by the caller's root principal.
    """

    def __init__(
        self,
        session: Session,
        display_name: str,
        execution_ids: Sequence[str],
        executions: ExecutionService,
        caller: Caller,
        turns: FairTurns,
    ) -> None:
        self._session = session
        self._display_name = display_name
        self._execution_ids = execution_ids
        self._executions = executions
        self._caller = caller
        self._turns = turns

    async def write_to(self, write: Write) -> None:
        """Write the notebook, cell by cell; `write` may wait for its reader."""
        await write([notebook_start(self._session, self._display_name)])
        separator = b""
        for execution_id in self._execution_ids:
            # Held until the reader has taken the cell, so that slow readers cannot fill the memory with cells.
            async with self._turns.turn(self._caller.root):
                try:
                    execution = await self._executions.get(self._caller, execution_id)
                except ExecutionNotFound:  # removed meanwhile
                    continue
                await write([separator, *await asyncio.to_thread(self._encode, execution)])
            separator = b","
        await write([NOTEBOOK_END])

    def _encode(self, execution: Execution) -> list[bytes]:
        note, *cells = (collect(encode_in_pieces(cell)) for cell in cells_of(execution, self._session.language))
        return [*note, *(piece for cell in cells for piece in (b",", *cell))]

    async def collect(self) -> bytes:
        """Return the notebook as a whole.

        Raises
        ------
        Conflict
            If it has more than `MAX_SAVED_BYTES`.
        """
        pieces: list[bytes] = []
        size_bytes = 0

        async def add(parts: Iterable[bytes]) -> None:
            nonlocal size_bytes
            for part in parts:
                size_bytes += len(part)
                pieces.append(part)
            if size_bytes > MAX_SAVED_BYTES:
                raise Conflict(
                    f"the notebook has more than {MAX_SAVED_BYTES} bytes, which is too much to save on the server; GET "
                    "it, and save it where you are"
                )

        await self.write_to(add)
        return b"".join(pieces)
