"""Checkpoint maker: makes checkpoints of live sessions within the limits, also the automatic ones before runs."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from ...auth.caller import Caller
from ...errors import SessionEnded
from ...models import Checkpoint
from ...protocol.record_ids import new_id
from ..access.caller_limits import Admission
from ..change_feed import ChangeFeed
from ..concurrency import BackgroundTasks
from ..files.checkpoint_files import CheckpointFiles
from ..ports import AuditTrail
from ..settings import EngineSettings
from .automatic_checkpoints import MAX_DELAY_SECONDS, AutomaticCheckpoints
from .checkpoint_journal import CheckpointJournal
from .checkpoint_quota import CheckpointQuota
from .live_session import LiveSession
from .session_checkpoints import SessionCheckpoints
from .session_memory import SessionMemory
from .session_registry import SessionRegistry


class CheckpointMaker:
    """Maker of the checkpoints of one engine's sessions.

    Attributes
    ----------
    files : CheckpointFiles
        Copies of working directories.
    journal : CheckpointJournal
        Gets what happens to the checkpoints.
    """

    def __init__(
        self,
        settings: EngineSettings,
        registry: SessionRegistry,
        admission: Admission,
        memory: SessionMemory,
        background: BackgroundTasks,
        audit: AuditTrail,
        feed: ChangeFeed,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._settings = settings
        self._of_sessions = registry.checkpoints
        self._background = background
        self._log = log
        self.journal = CheckpointJournal(audit, feed)
        root = Path(settings.work_root).absolute() if settings.session_directories else None
        self.files = CheckpointFiles(root, settings.max_checkpoint_file_bytes)
        self._quota = CheckpointQuota(settings, admission, self.journal, self._of_sessions, memory)

    async def make(
        self,
        caller: Caller,
        live: LiveSession,
        name: str,
        *,
        force: bool = False,
        within_seconds: float | None = None,
    ) -> Checkpoint:
        """Make a checkpoint of a session.

        Parameters
        ----------
        caller : Caller
            Author of the request, whose policies apply.
        live : LiveSession
            The session.
        name : str
            Name for people.
        force, within_seconds
            See `SessionCheckpoints.make`.

        Raises
        ------
        SessionEnded
            If the session is being shut down.
        TooManyCheckpoints, PolicyLimitReached, PolicyDenied
            If there may be no more.
        Conflict, CheckpointUnsupported, CheckpointHindered, CheckpointFailed
            If there can be none; see `SessionCheckpoints.make`.
        """
        owner = live.record.owner
        await self._quota.evict_for_memory(caller, owner)
        with self._quota.reserve_slot(caller, owner):
            checkpoint_id = new_id("chk", self._settings.server_name)
            checkpoints = self.checkpoints_of(live)
            record = await checkpoints.make(checkpoint_id, name, force=force, within_seconds=within_seconds)
        self.journal.record_creation(record, owner, caller.principal)
        return record

    def check_automatic(self, caller: Caller) -> None:
        """Check that a caller may have automatic checkpoints; raises as `CheckpointQuota.check_automatic`."""
        self._quota.check_automatic(caller)

    def enable_automatic(self, caller: Caller, live: LiveSession) -> None:
        """Have a checkpoint made before each run of a session."""
        automatic = AutomaticCheckpoints(live, partial(self._make_automatic, caller, live), self._log)
        live.runner.before_run = automatic.before_run

    async def _make_automatic(self, caller: Caller, live: LiveSession, name: str) -> None:
        await self.make(caller, live, name, within_seconds=MAX_DELAY_SECONDS)
        self._quota.evict_old_automatic(self.checkpoints_of(live))

    def checkpoints_of(self, live: LiveSession) -> SessionCheckpoints:
        """Return the checkpoints of a session; raises `SessionEnded` if there can be none any more."""
        session_id = live.record.id
        if session_id not in self._of_sessions:
            if live.is_closing:
                raise SessionEnded("the session is being shut down; create a new one")
            checkpoints = SessionCheckpoints(
                live,
                self._settings.checkpoint_ttl_seconds,
                self.journal,
                self.files,
                self._background,
            )
            self._of_sessions[session_id] = checkpoints
            live.on_end(lambda: self._of_sessions.pop(session_id).close())
        return self._of_sessions[session_id]
