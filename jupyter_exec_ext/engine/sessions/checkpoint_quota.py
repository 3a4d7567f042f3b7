"""Quota of checkpoints: checks the limits of the server and of policies, and deletes automatic ones to keep them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from ...auth.caller import Caller
from ...errors import CheckpointNotFound, LimitReached, TooManyCheckpoints
from ...models import Checkpoint
from ..access.caller_limits import Admission
from ..kernels.kernel_processes import memory_bytes, wait_for_end
from ..settings import EngineSettings
from .checkpoint_journal import CheckpointJournal
from .session_checkpoints import SessionCheckpoints
from .session_memory import SessionMemory

# A process that is killed gives its memory back within milliseconds.
_END_SECONDS = 1.0


class CheckpointQuota:
    """Quota for the checkpoints of one engine's sessions.

    Parameters
    ----------
    settings : EngineSettings
        With the server's limits.
    admission : Admission
        Checks the policies' limits.
    journal : CheckpointJournal
        Gets the deletions.
    of_sessions : mapping
        The checkpoints, by the ids of their sessions.
    memory : SessionMemory
        Measures the sessions.
    """

    def __init__(
        self,
        settings: EngineSettings,
        admission: Admission,
        journal: CheckpointJournal,
        of_sessions: Mapping[str, SessionCheckpoints],
        memory: SessionMemory,
    ) -> None:
        self._settings = settings
        self._admission = admission
        self._journal = journal
        self._of_sessions = of_sessions
        self._memory = memory
        # Checkpoints that are being made, by the owners of their sessions.
        self._reserved_by: list[str] = []

    async def evict_for_memory(self, caller: Caller, owner: str) -> None:
        """Check the memory that policies allow; the oldest automatic ones of an owner go if they have to.

        Raises
        ------
        PolicyLimitReached
            If there is too little left, even without the automatic ones.
        """
        if all(policy.max_checkpoint_memory_bytes is None for policy in caller.policies):
            return  # measuring takes time
        used = await self._used_by(caller)
        automatic = self._automatic_of(owner)
        pids = [self._pid_of(checkpoint) for checkpoint in automatic]
        freed = await asyncio.to_thread(lambda: sum(map(memory_bytes, pids)))
        # Nothing is deleted that would not do: no more is freed than what they take.
        self._admission.check_checkpoint_memory(caller, [*used, (owner, -freed)])
        for checkpoint, pid in zip(automatic, pids, strict=True):
            try:
                self._admission.check_checkpoint_memory(caller, used)
            except LimitReached:
                with suppress(CheckpointNotFound, KeyError):  # it has ended meanwhile, or its session has
                    self._delete([checkpoint])
            else:
                return
            await asyncio.to_thread(wait_for_end, pid, _END_SECONDS)
            used = await self._used_by(caller)  # by then the others have shares of what it shared with them
        self._admission.check_checkpoint_memory(caller, used)

    async def _used_by(self, caller: Caller) -> Sequence[tuple[str, int]]:
        return await self._memory.measure_now(lambda owner: any(bound.covers(owner) for bound in caller.bounds))

    def _pid_of(self, checkpoint: Checkpoint) -> int:
        return self._of_sessions[checkpoint.session_id].pid(checkpoint.id)

    @contextmanager
    def reserve_slot(self, caller: Caller, owner: str) -> Iterator[None]:
        """Reserve a slot while a checkpoint is being made; the oldest automatic ones of its owner go if they have to.

        Parameters
        ----------
        caller : Caller
            Author of the request, whose policies apply.
        owner : str
            Owner of the session.

        Raises
        ------
        TooManyCheckpoints, PolicyLimitReached, PolicyDenied
            If there is no room, even without the automatic ones.
        """
        self._evict_for_slot(caller, owner)
        # Counted at once: requests that come meanwhile must not get the same slot.
        self._reserved_by.append(owner)
        try:
            yield
        finally:
            self._reserved_by.remove(owner)

    def _evict_for_slot(self, caller: Caller, owner: str) -> None:
        for checkpoints in self._of_sessions.values():
            checkpoints.remove_ended()
        owners = [one.owner for one in self._of_sessions.values() for _ in one.records] + self._reserved_by
        automatic = self._automatic_of(owner)
        for number in range(len(automatic) + 1):
            try:
                self._check(caller, owners)
            except LimitReached:
                if number == len(automatic):  # nothing is deleted that would make no room
                    raise
                owners.remove(owner)
            else:
                self._delete(automatic[:number])
                return

    def _check(self, caller: Caller, owners: Sequence[str]) -> None:
        """Check that there may be one more than those of sessions of `owners`."""
        most = self._settings.max_checkpoints
        if not most:
            raise TooManyCheckpoints("this server keeps no checkpoints; its administrator can set max_checkpoints")
        if len(owners) >= most:
            raise TooManyCheckpoints(f"this server keeps at most {most} checkpoints; delete one first")
        self._admission.check_checkpoint(caller, owners)

    def check_automatic(self, caller: Caller) -> None:
        """Check that a caller's sessions may have automatic checkpoints at all.

        Raises
        ------
        TooManyCheckpoints, PolicyDenied
            If the server or a policy allows none.
        """
        if not self._settings.max_automatic_checkpoints:
            raise TooManyCheckpoints(
                "this server makes no automatic checkpoints; its administrator can set max_automatic_checkpoints"
            )
        self._check(caller, ())

    def evict_old_automatic(self, checkpoints: SessionCheckpoints) -> None:
        """Delete a session's oldest automatic checkpoints beyond `max_automatic_checkpoints`."""
        self._delete(checkpoints.automatic[: -self._settings.max_automatic_checkpoints])

    def _automatic_of(self, owner: str) -> list[Checkpoint]:
        """Return the automatic checkpoints of an owner's sessions, oldest first."""
        found = [record for one in self._of_sessions.values() if one.owner == owner for record in one.automatic]
        return sorted(found, key=lambda record: record.created_at)

    def _delete(self, automatic: Sequence[Checkpoint]) -> None:
        for checkpoint in automatic:
            checkpoints = self._of_sessions.get(checkpoint.session_id)
            if checkpoints is not None:  # its session may have ended meanwhile
                with suppress(CheckpointNotFound):
                    checkpoints.delete(checkpoint.id)
                    self._journal.audit_deletion(checkpoint.session_id, checkpoint.id, "")
