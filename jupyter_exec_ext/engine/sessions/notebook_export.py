"""Notebook export: a session's notebook as JSON, of which one cell at a time is in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ...auth.caller import Caller
from ...errors import Conflict, ExecutionNotFound
from ...models import Execution, Session
from ...protocol.large_json import collect, encode_in_pieces
from ...protocol.notebook_format import NOTEBOOK_END, cell_of, notebook_start
from ..access.fair_turns import FairTurns

#: Cells of one principal's exports that are in memory at once. A reader that is slow has one of them.
CELLS_AT_ONCE = 4
#: The largest notebook that is saved on the server, whose contents manager takes it as a whole, in bytes.
MAX_SAVED_BYTES = 64 * 1024 * 1024

Write = Callable[[Iterable[bytes]], Awaitable[None]]


class NotebookExport:
    """The notebook of one session, for one caller.

    Parameters
    ----------
    display_name : str
        Of the session's kernel.
    execution_ids : sequence of str
        The cells, in order. One that is no longer kept when its turn comes is left out.
    read : callable
        Returns an execution with its outputs; raises `ExecutionNotFound`.
    turns : FairTurns
        Bounds the cells in memory, by the session's owner.
    """

    def __init__(
        self,
        session: Session,
        display_name: str,
        execution_ids: Sequence[str],
        read: Callable[[Caller, str], Awaitable[Execution]],
        caller: Caller,
        turns: FairTurns,
    ) -> None:
        self._session = session
        self._display_name = display_name
        self._execution_ids = execution_ids
        self._read = read
        self._caller = caller
        self._turns = turns

    async def write_to(self, write: Write) -> None:
        """Write the notebook, cell by cell; `write` may wait for its reader."""
        await write([notebook_start(self._session, self._display_name)])
        separator = b""
        for execution_id in self._execution_ids:
            async with self._turns.turn(self._caller.root):
                try:
                    execution = await self._read(self._caller, execution_id)
                except ExecutionNotFound:  # removed meanwhile
                    continue
                await write([separator, *await asyncio.to_thread(self._encode, execution)])
            separator = b","
        await write([NOTEBOOK_END])

    def _encode(self, execution: Execution) -> list[bytes]:
        return collect(encode_in_pieces(cell_of(execution, self._session.language)))

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
