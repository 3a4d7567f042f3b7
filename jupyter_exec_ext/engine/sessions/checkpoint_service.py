"""Checkpoint service: makes, lists and deletes checkpoints of sessions, and restores sessions to them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...auth.caller import Caller
from ...errors import CheckpointNotFound, CheckpointUnsupported
from ...models import Checkpoint, Session, SessionRequest
from ...system.marked_processes import MARK
from ..concurrency import BackgroundTasks
from ..kernels.kernel_processes import own_memory_bytes
from ..kernels.restored_launch import RestoredLaunch
from ..ports import SessionFiles
from ..settings import EngineSettings
from .checkpoint_maker import CheckpointMaker
from .live_session import LiveSession
from .session_checkpoints import SessionCheckpoints
from .session_factory import Branch
from .session_service import SessionService


class CheckpointService:
    """Checkpoints of one engine's sessions."""

    def __init__(
        self,
        settings: EngineSettings,
        sessions: SessionService,
        maker: CheckpointMaker,
        session_files: SessionFiles,
        background: BackgroundTasks,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._maker = maker
        self._session_files = session_files
        self._background = background

    async def create(self, caller: Caller, session_id: str, name: str = "", *, force: bool = False) -> Checkpoint:
        """Make a checkpoint of a session.

        Parameters
        ----------
        caller : Caller
            Author of the request.
        session_id : str
            Id of the session.
        name : str
            Name for people.
        force : bool
            Make the checkpoint even if something cannot be taken along.

        Returns
        -------
        Checkpoint
            The record.

        Raises
        ------
        SessionNotFound, SessionEnded
            If there is no such live session.
        TooManyCheckpoints, PolicyLimitReached, PolicyDenied
            If there may be no more.
        Conflict
            If the session runs code.
        CheckpointUnsupported, CheckpointHindered, CheckpointFailed
            If there can be none; see `SessionCheckpoints.make`.
        """
        return await self._maker.make(caller, await self._sessions.get_live(caller, session_id), name, force=force)

    async def list(self, caller: Caller, session_id: str) -> Sequence[Checkpoint]:
        """Return a session's checkpoints, oldest first, with the memory that each takes; see `create`."""
        checkpoints = self._maker.checkpoints_of(await self._sessions.get_live(caller, session_id))
        memory = await asyncio.to_thread(lambda: {pid: own_memory_bytes(pid) for pid in checkpoints.pids()})
        return checkpoints.measured(memory)

    async def delete(self, caller: Caller, session_id: str, checkpoint_id: str) -> None:
        """Delete a checkpoint; raises `CheckpointNotFound`, and as `create`."""
        checkpoints = self._maker.checkpoints_of(await self._sessions.get_live(caller, session_id))
        checkpoints.delete(checkpoint_id)
        self._maker.journal.audit_deletion(session_id, checkpoint_id, caller.principal)

    async def branch(
        self,
        caller: Caller,
        session_id: str,
        checkpoint_id: str | None = None,
        count: int = 1,
        *,
        same_random: bool = False,
    ) -> Sequence[Session]:
        """Make new sessions with the state of a checkpoint, each with a kernel and files of its own.

        Parameters
        ----------
        caller : Caller
            Author of the request, who owns the branches.
        session_id : str
            Id of the session.
        checkpoint_id : str, optional
            Id of the checkpoint; by default the session as it is now.
        count : int
            Number of branches.
        same_random : bool
            See `restore`.

        Returns
        -------
        sequence of Session
            The branches; all of them, or none.

        Raises
        ------
        SessionNotFound, SessionEnded, CheckpointNotFound
            If there is no such live session, or checkpoint.
        TooManySessions, PolicyLimitReached, TooManyKernels
            If there is no room for all.
        Conflict, CheckpointUnsupported, CheckpointHindered, CheckpointFailed
            As `create`.
        KernelStartFailed
            If a kernel could not be made.
        """
        live = await self._sessions.get_live(caller, session_id)
        checkpoints = self._maker.checkpoints_of(live)
        if live.record.isolation != "none":
            raise CheckpointUnsupported(
                "there are no branches of a session in a sandbox, where they would see each other's files and memory; "
                "restore the session for each attempt, one after the other"
            )
        used = checkpoint_id or (await self.create(caller, session_id)).id
        self._maker.journal.audit_branch_request(session_id, used, count, caller.principal)
        try:
            origin = checkpoints.get(used)
            work = [
                self._branch(caller, live, checkpoints, used, number, same_random) for number in range(1, count + 1)
            ]
            made = await self._all_of(work)
        finally:
            if checkpoint_id is None:
                with suppress(CheckpointNotFound):
                    checkpoints.delete(used)
        errors = [one for one in made if isinstance(one, BaseException)]
        sessions = [one for one in made if isinstance(one, Session)]
        if errors:
            await asyncio.gather(*(self._sessions.end(one.id, "another branch did not start") for one in sessions))
            raise errors[0]
        self._maker.journal.publish_branches(origin, sessions)
        return sessions

    async def _all_of(self, work: Sequence[Coroutine[Any, Any, Session]]) -> Sequence[Session | BaseException]:
        """Return what each branch has come to; if the request is cancelled, none is left."""
        tasks = [asyncio.ensure_future(one) for one in work]
        try:
            return await asyncio.gather(*tasks, return_exceptions=True)
        except asyncio.CancelledError:
            for task in tasks:  # those that are under way end themselves
                if task.done() and not task.cancelled() and task.exception() is None:
                    self._background.start(self._sessions.end(task.result().id, "its request was given up"))
            raise

    async def _branch(
        self,
        caller: Caller,
        live: LiveSession,
        checkpoints: SessionCheckpoints,
        checkpoint_id: str,
        number: int,
        same_random: bool,
    ) -> Session:
        origin = live.record

        def launch(branch_id: str) -> RestoredLaunch:
            root = Path(self._settings.work_root).absolute()
            directories = (str(root / origin.id), str(root / branch_id)) if self._maker.files.are_kept else None
            return checkpoints.branch_launch(
                checkpoint_id, same_random=same_random, mark={MARK: branch_id}, directories=directories, to=branch_id
            )

        request = SessionRequest(
            origin.kernel_name,
            name=f"{origin.name or origin.id} branch {number}",
            env=live.request.env,
            metadata=origin.metadata,
            idle_timeout_seconds=origin.idle_timeout_seconds,
            cwd=live.request.cwd,
            auto_checkpoint=origin.auto_checkpoint,
        )
        branch = await self._sessions.create(caller, request, live.setup_code, Branch(origin.id, launch))
        await self._session_files.changes(branch.id)  # the files that it begins with are no change of its first run
        return branch

    async def restore(
        self, caller: Caller, session_id: str, checkpoint_id: str, *, same_random: bool = False
    ) -> Session:
        """Restore a session to a checkpoint, which stays; queued executions end as cancelled.

        Parameters
        ----------
        caller : Caller
            Author of the request.
        session_id : str
            Id of the session.
        checkpoint_id : str
            Id of the checkpoint.
        same_random : bool
            Whether the session draws the random numbers that it would have drawn, instead of others.

        Returns
        -------
        Session
            The session, which has the same id and the same kernel's id.

        Raises
        ------
        SessionNotFound, SessionEnded, CheckpointNotFound
            If there is no such live session, or checkpoint.
        Conflict
            If the session runs code.
        CheckpointFailed
            If the checkpoint is lost; the session is as before.
        KernelStartFailed
            If the kernel could not be made; the session's state is lost.
        """
        live = await self._sessions.get_live(caller, session_id)
        self._maker.journal.audit_restore_request(session_id, checkpoint_id, caller.principal)
        await self._maker.checkpoints_of(live).restore(checkpoint_id, same_random=same_random)
        return live.record
