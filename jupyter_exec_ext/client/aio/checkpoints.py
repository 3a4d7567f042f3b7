"""Checkpoints of a session of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from ...errors import CheckpointNotFound, ExecError, SessionEnded, SessionNotFound
from ...models import Checkpoint, RecordList
from ..api.checkpoint_operations import CheckpointsApi, id_of
from .packages import AsyncExecPackages

if TYPE_CHECKING:
    from typing_extensions import Self


class AsyncExecCheckpoints(AsyncExecPackages):
    """Methods of a session for its checkpoints, its packages, its network and its ports."""

    _checkpoints: CheckpointsApi

    async def checkpoint(self, name: str = "", *, force: bool = False) -> Checkpoint:
        """Keep the session as it is now, to go back to it later.

        Parameters
        ----------
        name : str
            Name for people.
        force : bool
            Make the checkpoint even if something cannot be taken along, such as a thread. The record's `lost` lists it.

        Returns
        -------
        Checkpoint
            The record, for `restore`. It ends with the session.

        Raises
        ------
        CheckpointHindered
            If something could not be taken along; the message names it.
        CheckpointUnsupported
            If there are no checkpoints of the session's kernel.
        CheckpointFailed
            If the kernel could not make it; the session goes on as it was.
        Conflict
            If the session runs code.
        TooManyCheckpoints, PolicyLimitReached, PolicyDenied
            If there may be no more.
        """
        return await self._driver.perform(self._checkpoints.make(name, force=force))

    async def checkpoints(self) -> RecordList[Checkpoint]:
        """Return the session's checkpoints, oldest first, with the memory that each takes."""
        return await self._driver.perform(self._checkpoints.list())

    async def restore(self, checkpoint: Checkpoint | str, *, same_random: bool = False) -> None:
        """Go back to a checkpoint: variables and all else are as they were. The checkpoint stays.

        Parameters
        ----------
        checkpoint : Checkpoint or str
            The checkpoint, or its id.
        same_random : bool
            Whether the session draws the random numbers that it would have drawn, instead of others.

        Raises
        ------
        CheckpointNotFound
            If the session has no such checkpoint any more.
        CheckpointFailed
            If the checkpoint is lost; the session goes on as it was.
        KernelStartFailed
            If the kernel could not be made; the session's state is lost.
        Conflict
            If the session runs code.
        """
        operation = self._checkpoints.restore(id_of(checkpoint), same_random=same_random)
        self.record = await self._driver.perform(operation)

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[Self]:
        """Try something in a ``with`` block; an exception that leaves the block takes the session back.

        Examples
        --------
        >>> with client.session() as session, session.attempt():
        ...     session.run("data = clean(data)", check=True)
        """
        before = await self.checkpoint("before an attempt")
        try:
            yield self
        except BaseException as error:
            try:
                await self.restore(before)
            except ExecError as refused:
                add_note = getattr(error, "add_note", None)  # since Python 3.11
                if add_note is not None:
                    add_note(f"The session was not taken back: {refused}")
            raise
        finally:
            with suppress(CheckpointNotFound, SessionEnded, SessionNotFound):
                await self.delete_checkpoint(before)

    async def delete_checkpoint(self, checkpoint: Checkpoint | str) -> None:
        """Delete a checkpoint; raises `CheckpointNotFound` if there is none.

        Parameters
        ----------
        checkpoint : Checkpoint or str
            The checkpoint, or its id.
        """
        await self._driver.perform(self._checkpoints.delete(id_of(checkpoint)))
