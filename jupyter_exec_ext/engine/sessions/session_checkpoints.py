"""Checkpoints of one live session: makes them, keeps them, and takes the session back to one."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

from ...errors import (
    CheckpointFailed,
    CheckpointHindered,
    CheckpointNotFound,
    CheckpointUnsupported,
    Conflict,
    SessionEnded,
    Unavailable,
)
from ...forkserver.frozen_kernel import FrozenKernel, FrozenKernelListener
from ...models import Checkpoint, Hindrance, Restore
from ...protocol.checkpoint_requests import (
    abandoning_request,
    forgetting_request,
    hindrances_of,
    loading_request,
    require_loaded,
    taking_request,
)
from ...protocol.records_json import utc_timestamp
from ...system.worker_threads import in_thread
from ..concurrency import BackgroundTasks
from ..files.checkpoint_files import CheckpointFiles
from ..kernels.restored_launch import RestoredLaunch
from ..ports import SessionFiles
from .live_session import LiveSession

# The kernel is idle, so it answers at once, unless a handler of a widget runs.
_ANSWER_SECONDS = 10.0
_FROZEN_SECONDS = 2.0
_MAX_RESTORES = 200


@dataclass(slots=True)
class _Kept:
    """A checkpoint and its process, with the timer that deletes it."""

    record: Checkpoint
    frozen: FrozenKernel
    timer: asyncio.TimerHandle | None = None


class SessionCheckpoints:
    """Checkpoints of a session.

    Parameters
    ----------
    live : LiveSession
        The session.
    ttl_seconds : float
        Time after which a checkpoint that is not used is deleted; 0 for never.
    on_expired : callable
        Gets a checkpoint that was deleted so.
    files : CheckpointFiles
        Copies of working directories.
    session_files : SessionFiles
        The session's files.
    background : BackgroundTasks
        Removes files.
    """

    def __init__(
        self,
        live: LiveSession,
        ttl_seconds: float,
        on_expired: Callable[[Checkpoint], object],
        files: CheckpointFiles,
        session_files: SessionFiles,
        background: BackgroundTasks,
    ) -> None:
        self._live = live
        self._ttl_seconds = ttl_seconds
        self._on_expired = on_expired
        self._files = files
        self._session_files = session_files
        self._background = background
        self._kept: dict[str, _Kept] = {}
        self._loaded_in = 0  # the kernel, by its number, that has our program

    @property
    def owner(self) -> str:
        """The session's owner."""
        return self._live.record.owner

    @property
    def records(self) -> list[Checkpoint]:
        """The checkpoints, oldest first; those whose processes have ended are gone."""
        for checkpoint_id in [key for key, kept in self._kept.items() if kept.frozen.is_gone]:
            self._drop(checkpoint_id)
            self._forget_if_last()
        return [kept.record for kept in self._kept.values()]

    def pids(self) -> list[int]:
        """Return the processes of the checkpoints."""
        return [kept.frozen.pid for kept in self._kept.values() if not kept.frozen.is_gone]

    async def make(self, checkpoint_id: str, name: str, *, force: bool) -> Checkpoint:
        """Make a checkpoint of the session as it is.

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
        async with self._live.kernel.lock:
            frozen, lost = await self._freeze_shielded(checkpoint_id, force=force)
        record = Checkpoint(
            checkpoint_id,
            self._live.record.id,
            name,
            utc_timestamp(time.time()),
            after=self._live.runner.last_execution_id,
            files=self._files.are_kept,
            lost=lost,
        )
        if self._live.is_closing:
            frozen.end()
            self._background.start(self._files.remove_all(self._live.record.id))
            raise SessionEnded("the session is being shut down; create a new one")
        self._kept[checkpoint_id] = _Kept(record, frozen)
        self._use(checkpoint_id)
        return record

    async def _freeze_shielded(self, checkpoint_id: str, *, force: bool) -> tuple[FrozenKernel, tuple[Hindrance, ...]]:
        # Not cancelled with the request: the kernel would make the checkpoint all the same.
        freezing = asyncio.ensure_future(self._freeze_with_files(checkpoint_id, force=force))
        try:
            return await asyncio.shield(freezing)
        except asyncio.CancelledError:
            await asyncio.wait([freezing])
            if freezing.exception() is None:
                freezing.result()[0].end()
                await self._files.remove(self._live.record.id, checkpoint_id)
            raise

    async def _freeze_with_files(
        self, checkpoint_id: str, *, force: bool
    ) -> tuple[FrozenKernel, tuple[Hindrance, ...]]:
        frozen, lost = await self._freeze(force=force)
        with ExitStack() as undo:
            undo.callback(frozen.end)
            await self._files.keep(self._live.record.id, checkpoint_id)
            undo.pop_all()
        return frozen, lost

    async def _freeze(self, *, force: bool) -> tuple[FrozenKernel, tuple[Hindrance, ...]]:
        kernel = self._live.kernel.kernel
        if self._live.runner.run is not None:
            raise Conflict("the session runs code; wait for its end, or interrupt it, and try again")
        if kernel is None or self._live.kernel.connection is None:
            raise Conflict("the session's kernel has ended; the next execution starts a new one")
        place = kernel.traits.checkpoint_socket
        if place is None or self._live.record.attached:
            raise CheckpointUnsupported(self._why_unsupported())
        path, address = place
        try:
            path.unlink(missing_ok=True)
            listener = FrozenKernelListener(path)
        except OSError as error:
            raise CheckpointUnsupported(f"there can be no socket for checkpoints of its kernel: {error}") from error
        with ExitStack() as undo:
            undo.callback(listener.close)
            await self._load()
            nonce = secrets.token_hex(8)
            loaded_in, self._loaded_in = self._loaded_in, 0  # after an error the program is loaded anew
            lost = hindrances_of(await self._ask(taking_request(address, nonce, force=force)))
            self._loaded_in = loaded_in
            if lost and not force:
                raise CheckpointHindered(
                    f"a checkpoint would not have all of the session: {'; '.join(map(str, lost))}. End these, or make "
                    "it without them by 'force'"
                )
            return await self._accept(listener, nonce), lost

    def _why_unsupported(self) -> str:
        if self._live.record.attached:
            return "the kernel is its user's, and there are checkpoints of a session's own kernel only"
        isolation = self._live.record.isolation
        if isolation != "none":
            return f"there are no checkpoints of kernels with the isolation {isolation!r}"
        return "there are checkpoints only of IPython kernels that the server starts itself, on Linux"

    async def _load(self) -> None:
        starts = self._live.kernel.starts
        if self._loaded_in != starts:
            require_loaded(await self._ask(loading_request()))
            self._loaded_in = starts

    async def _ask(self, content: dict[str, object]) -> dict[str, object]:
        try:
            return dict(await self._live.requests.ask("execute_request", content, _ANSWER_SECONDS))
        except Unavailable:
            raise CheckpointFailed(
                f"the kernel did not answer within {_ANSWER_SECONDS:g} s; something runs in it, such as a widget's code"
            ) from None

    async def _accept(self, listener: FrozenKernelListener, nonce: str) -> FrozenKernel:
        try:
            return await in_thread(listener.accept, nonce, _FROZEN_SECONDS)
        except (TimeoutError, ConnectionError):
            connection = self._live.kernel.connection
            if connection is not None:
                connection.send("shell", "execute_request", abandoning_request())
            raise CheckpointFailed(
                f"the checkpoint's process did not answer within {_FROZEN_SECONDS:g} s, and was killed; a lock that a "
                "thread held may be the cause"
            ) from None

    async def restore(self, checkpoint_id: str, *, same_random: bool) -> None:
        """Take the session back to a checkpoint, which stays; queued executions end as cancelled.

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
        kept = self._find(checkpoint_id)
        if self._live.is_closing:
            raise SessionEnded("the session is being shut down; create a new one")
        if self._live.runner.run is not None:
            raise Conflict("the session runs code; wait for its end, or interrupt it, and try again")
        session_id, before = self._live.record.id, self._live.runner.last_execution_id
        stage = partial(self._files.stage, session_id, checkpoint_id)
        launch = RestoredLaunch(kept.frozen, same_random=same_random, stage=stage)
        try:
            await launch.begin()
            await self._live.restart(launch)
        finally:
            await launch.abandon()
        # It was in the kernel already when the checkpoint was made.
        self._loaded_in = self._live.kernel.starts
        self._live.runner.last_execution_id = kept.record.after
        restore = Restore(checkpoint_id, utc_timestamp(time.time()), kept.record.after, before)
        self._live.note(restores=(*self._live.record.restores, restore)[-_MAX_RESTORES:])
        await self._session_files.changes(session_id)  # the files that came back are no change of the next run
        if checkpoint_id in self._kept:
            self._use(checkpoint_id)

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
        stage = partial(self._files.stage, self._live.record.id, checkpoint_id, to)
        return RestoredLaunch(
            kept.frozen, same_random=same_random, environment=mark, directory=directories, stage=stage
        )

    def _find(self, checkpoint_id: str) -> _Kept:
        if checkpoint_id not in {record.id for record in self.records}:
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
        connection = self._live.kernel.connection
        if not self._kept and connection is not None and self._loaded_in == self._live.kernel.starts:
            connection.send("shell", "execute_request", forgetting_request())

    def _drop(self, checkpoint_id: str) -> None:
        kept = self._kept.pop(checkpoint_id)
        kept.frozen.end()
        self._background.start(self._files.remove(self._live.record.id, checkpoint_id))
        if kept.timer is not None:
            kept.timer.cancel()

    def _use(self, checkpoint_id: str) -> None:
        """Start the time anew after which a checkpoint is deleted."""
        kept = self._kept[checkpoint_id]
        if kept.timer is not None:
            kept.timer.cancel()
        if self._ttl_seconds > 0:
            loop = asyncio.get_running_loop()
            kept.timer = loop.call_later(self._ttl_seconds, self._expire, checkpoint_id)

    def _expire(self, checkpoint_id: str) -> None:
        with suppress(CheckpointNotFound):
            self._on_expired(self.delete(checkpoint_id))

    def measured(self, memory_bytes: Mapping[int, int | None]) -> list[Checkpoint]:
        """Return the records with the memory of their processes."""
        self.records  # noqa: B018  # drops those that are gone
        return [replace(kept.record, memory_bytes=memory_bytes.get(kept.frozen.pid)) for kept in self._kept.values()]

    def close(self) -> None:
        """End all checkpoints, since the session has ended."""
        for checkpoint_id in list(self._kept):
            self._drop(checkpoint_id)
        self._background.start(self._files.remove_all(self._live.record.id))
