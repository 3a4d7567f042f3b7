"""Checkpoints of one live session: makes and keeps them, and restores the session to one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

from ...errors import (
    CheckpointFailed,
    CheckpointNotFound,
    SessionEnded,
)
from ...forkserver.frozen_kernel import FrozenKernel
from ...models import Checkpoint, Hindrance, Restore
from ...protocol.records_json import utc_timestamp
from ..concurrency import BackgroundTasks
from ..files.checkpoint_files import CheckpointFiles, StagedFiles
from ..kernels.restored_launch import RestoredLaunch
from .checkpoint_journal import CheckpointJournal
from .kernel_freezing import KernelFreezer
from .live_session import LiveSession

_MAX_RESTORES = 200


@dataclass(slots=True)
class _Kept:
    """A checkpoint and its process, with the timer that deletes it, and the lock of whoever uses its files."""

    record: Checkpoint
    frozen: FrozenKernel
    files: asyncio.Lock
    timer: asyncio.TimerHandle | None = None


class SessionCheckpoints:
    """Checkpoints of a session.

    Parameters
    ----------
    live : LiveSession
        The session.
    ttl_seconds : float
        Time without code in the session after which a checkpoint that is not used is deleted; 0 for never.
    journal : CheckpointJournal
        Gets the ends of checkpoints.
    files : CheckpointFiles
        Copies of working directories.
    background : BackgroundTasks
        Removes files.
    """

    def __init__(
        self,
        live: LiveSession,
        ttl_seconds: float,
        journal: CheckpointJournal,
        files: CheckpointFiles,
        background: BackgroundTasks,
    ) -> None:
        self._live = live
        self._ttl_seconds = ttl_seconds
        self._journal = journal
        self._files = files
        self._background = background
        self._kept: dict[str, _Kept] = {}
        self._freezer = KernelFreezer(live)
        self._left_behind: asyncio.Task[None] | None = None
        self._restoring = asyncio.Lock()  # two at once would end each other's processes

    @property
    def owner(self) -> str:
        """The session's owner."""
        return self._live.record.owner

    @property
    def records(self) -> list[Checkpoint]:
        """The checkpoints, oldest first."""
        return [kept.record for kept in self._kept.values()]

    @property
    def automatic(self) -> list[Checkpoint]:
        """The automatic ones among them."""
        return [record for record in self.records if record.automatic]

    def remove_ended(self) -> None:
        """Delete the checkpoints whose processes have ended."""
        for kept in [kept for kept in self._kept.values() if kept.frozen.is_gone]:
            self._drop(kept.record.id)
            if not self._live.is_closing:
                self._journal.audit_loss(kept.record)
            self._forget_if_last()

    def pids(self) -> list[int]:
        """Return the processes of the checkpoints."""
        return [kept.frozen.pid for kept in self._kept.values() if not kept.frozen.is_gone]

    def pid(self, checkpoint_id: str) -> int:
        """Return the process of a checkpoint; raises `CheckpointNotFound`."""
        return self._find(checkpoint_id).frozen.pid

    async def make(
        self, checkpoint_id: str, name: str, *, force: bool = False, within_seconds: float | None = None
    ) -> Checkpoint:
        """Make a checkpoint of the session as it is.

        Parameters
        ----------
        checkpoint_id, name : str
            Id and name of the checkpoint.
        force : bool
            Make it even if something cannot be taken along.
        within_seconds : float or None
            For an automatic one: time limit, after which it is given up. None for the freezer's own limits.

        Raises
        ------
        Conflict
            If its kernel runs code.
        CheckpointUnsupported
            If there can be none of its kernel.
        CheckpointHindered
            If something could not be taken along, without `force`.
        CheckpointFailed
            If the kernel cannot make it; the session is as before.
        """
        if self._left_behind is not None:  # two at once would use one socket
            if within_seconds is not None and not self._left_behind.done():
                raise CheckpointFailed("the one before is not ready yet")
            await asyncio.wait([self._left_behind])
        try:
            async with self._live.kernel.lock:
                frozen, lost = await self._freeze_shielded(checkpoint_id, force=force, within_seconds=within_seconds)
        except CheckpointFailed:
            self._forget_if_last()  # the kernel may have begun
            raise
        record = Checkpoint(
            checkpoint_id,
            self._live.record.id,
            name,
            utc_timestamp(time.time()),
            automatic=within_seconds is not None,
            after=self._live.runner.last_execution_id,
            files=self._files.are_kept,
            lost=lost,
        )
        if self._live.is_closing:
            frozen.kill()
            self._background.start(self._files.remove_all(self._live.record.id))
            raise SessionEnded("the session is being shut down; create a new one")
        self._kept[checkpoint_id] = _Kept(record, frozen, asyncio.Lock())
        self._use(checkpoint_id)
        return record

    async def _freeze_shielded(
        self, checkpoint_id: str, *, force: bool, within_seconds: float | None
    ) -> tuple[FrozenKernel, tuple[Hindrance, ...]]:
        # Not cancelled with the request: the kernel would make the checkpoint all the same.
        freezing = asyncio.ensure_future(self._freeze_with_files(checkpoint_id, force=force))
        try:
            await asyncio.wait([freezing], timeout=within_seconds)
        except asyncio.CancelledError:
            self._left_behind = self._background.start(self._discard(freezing, checkpoint_id))
            raise
        if freezing.done():
            return freezing.result()
        self._left_behind = self._background.start(self._discard(freezing, checkpoint_id))
        raise CheckpointFailed(f"the checkpoint was not ready within {within_seconds:g} s")

    async def _discard(
        self, freezing: asyncio.Future[tuple[FrozenKernel, tuple[Hindrance, ...]]], checkpoint_id: str
    ) -> None:
        """Wait for a checkpoint that is not wanted any more, and end it."""
        await asyncio.wait([freezing])
        if freezing.exception() is None:
            freezing.result()[0].kill()
            await self._files.remove(self._live.record.id, checkpoint_id)

    async def _freeze_with_files(
        self, checkpoint_id: str, *, force: bool
    ) -> tuple[FrozenKernel, tuple[Hindrance, ...]]:
        frozen, lost = await self._freezer.freeze(force=force)
        with ExitStack() as undo:
            undo.callback(frozen.kill)
            await self._files.keep(self._live.record.id, checkpoint_id)
            undo.pop_all()
        return frozen, lost

    async def restore(self, checkpoint_id: str, *, same_random: bool) -> None:
        """Restore the session to a checkpoint, which stays; queued executions end as cancelled.

        Raises
        ------
        CheckpointNotFound
        Conflict
            If the session runs code.
        CheckpointFailed
            If the checkpoint is lost; the session is as before.
        KernelStartFailed
            If the kernel could not be made; the session's state is lost.
        """
        async with self._restoring:
            await self._restore(checkpoint_id, same_random=same_random)

    async def _restore(self, checkpoint_id: str, *, same_random: bool) -> None:
        kept = self._find(checkpoint_id)
        if self._live.is_closing:
            raise SessionEnded("the session is being shut down; create a new one")
        self._live.runner.require_idle()
        kernel = self._live.kernel.kernel
        support = None if kernel is None else kernel.traits.checkpoints
        launch = RestoredLaunch(
            kept.frozen,
            same_random=same_random,
            stage=partial(self._stage, kept),
            new_output=None if support is None else support.new_output,
            checkpoint_pids=self.pids,
        )
        try:
            await launch.begin()
            await self._live.restart(launch, partial(self._note_restored, kept.record))
        finally:
            await launch.release()
        self._journal.publish_restored(kept.record, self.owner)
        if checkpoint_id in self._kept:
            self._use(checkpoint_id)

    async def _note_restored(self, checkpoint: Checkpoint) -> None:
        """Record that the session has been restored; before any later code runs, which the restore has not undone."""
        self._freezer.note_restored()
        runner = self._live.runner
        before, runner.last_execution_id = runner.last_execution_id, checkpoint.after
        restore = Restore(checkpoint.id, utc_timestamp(time.time()), checkpoint.after, before)
        self._live.note(restores=(*self._live.record.restores, restore)[-_MAX_RESTORES:])
        # The files that came back are no change of the next run.
        await runner.take_file_changes()

    def get(self, checkpoint_id: str) -> Checkpoint:
        """Return the record of a checkpoint; raises `CheckpointNotFound`."""
        return self._find(checkpoint_id).record

    def branch_launch(
        self,
        checkpoint_id: str,
        *,
        same_random: bool,
        mark: Mapping[str, str],
        directories: tuple[str, str] | None,
        to: str,
    ) -> RestoredLaunch:
        """Return the launch of a branch's kernel from a checkpoint.

        Parameters
        ----------
        checkpoint_id : str
            Id of the checkpoint.
        same_random : bool
            See `restore`.
        mark : mapping
            Variables of the branch's own.
        directories : (str, str) or None
            Working directories of the session and of the branch, if they have some.
        to : str
            Id of the branch.

        Raises
        ------
        CheckpointNotFound
        """
        kept = self._find(checkpoint_id)
        self._use(checkpoint_id)
        stage = partial(self._stage, kept, to)
        return RestoredLaunch(
            kept.frozen, same_random=same_random, environment=mark, directory=directories, stage=stage
        )

    async def _stage(self, kept: _Kept, to: str = "") -> StagedFiles | None:
        async with kept.files:  # they are not removed meanwhile
            if self._kept.get(kept.record.id) is not kept:
                raise CheckpointFailed("the checkpoint was deleted meanwhile; the session goes on as it was")
            return await self._files.stage(self._live.record.id, kept.record.id, to)

    async def _remove_files(self, kept: _Kept) -> None:
        async with kept.files:
            await self._files.remove(self._live.record.id, kept.record.id)

    def _find(self, checkpoint_id: str) -> _Kept:
        self.remove_ended()
        if checkpoint_id not in self._kept:
            raise CheckpointNotFound(
                f"the session has no checkpoint {checkpoint_id!r}; list its checkpoints to find the id"
            )
        return self._kept[checkpoint_id]

    def delete(self, checkpoint_id: str) -> Checkpoint:
        """Delete a checkpoint; raises `CheckpointNotFound`."""
        record = self._find(checkpoint_id).record
        self._drop(checkpoint_id)
        self._forget_if_last()
        return record

    def _forget_if_last(self) -> None:
        if not self._kept:
            self._freezer.forget()

    def _drop(self, checkpoint_id: str) -> None:
        kept = self._kept.pop(checkpoint_id)
        kept.frozen.kill()
        self._background.start(self._remove_files(kept))
        if kept.timer is not None:
            kept.timer.cancel()
        if not self._live.is_closing:  # otherwise all of them end, and the session's end says so
            self._journal.publish_deleted(kept.record, self.owner)

    def _use(self, checkpoint_id: str, idle_seconds: float = 0.0) -> None:
        """Start the time anew after which a checkpoint is deleted; `idle_seconds` of it are over."""
        kept = self._kept[checkpoint_id]
        if kept.timer is not None:
            kept.timer.cancel()
        if self._ttl_seconds > 0:
            loop = asyncio.get_running_loop()
            kept.timer = loop.call_later(self._ttl_seconds - idle_seconds, self._expire, checkpoint_id)

    def _expire(self, checkpoint_id: str) -> None:
        if self._live.idle_seconds < self._ttl_seconds:  # the attempt that it was made for may go on
            self._use(checkpoint_id, self._live.idle_seconds)
            return
        with suppress(CheckpointNotFound):
            self._journal.audit_expiry(self.delete(checkpoint_id))

    def measured(self, memory_bytes: Mapping[int, int | None]) -> list[Checkpoint]:
        """Return the records with the memory of their processes."""
        self.remove_ended()
        return [replace(kept.record, memory_bytes=memory_bytes.get(kept.frozen.pid)) for kept in self._kept.values()]

    def close(self) -> None:
        """End all checkpoints, since the session has ended."""
        for checkpoint_id in list(self._kept):
            self._drop(checkpoint_id)
        self._background.start(self._files.remove_all(self._live.record.id))
