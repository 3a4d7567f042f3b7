"""Interfaces of the store: sessions, executions with their event logs and spools, and the audit trail.

`access_store_ports` has those of tokens, grants and secrets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...models import (
    Execution,
    FoundExecution,
    IdempotencyKey,
    OutputEvent,
    Session,
    SpooledOutput,
    StoredExecution,
)
from ...protocol.output_overflow import Spool, SpooledFile
from .access_store_ports import GrantStore, SecretStore, TokenStore


class LogEntry(Protocol):
    """One stored event: numbered, and ready to be sent."""

    @property
    def seq(self) -> int:
        """Its number, from 1 without gaps."""

    @property
    def type(self) -> str:
        """The event's type."""

    @property
    def line(self) -> bytes:
        """The event as one line of JSON, without the line's end."""


class EventLog(Protocol):
    """The numbered events of one execution, for any number of readers.

    A reader that is slow or gone costs the writer nothing: it reads from the log at its own pace.
    """

    @property
    def last_seq(self) -> int:
        """The number of the last event; 0 for an empty log."""

    @property
    def closed(self) -> bool:
        """True if the last event is in."""

    @property
    def end(self) -> bytes | None:
        """The last event, an `EndEvent`, as `event_to_text` has it; None if it is not in, or without the outputs."""

    async def read(self, after: int, limit: int) -> Sequence[LogEntry]:
        """Return up to `limit` entries that follow number `after`."""

    async def changed(self, after: int) -> None:
        """Return once there is something after number `after`, or the log is closed."""


class WritableLog(EventLog, Protocol):
    """A log that is still written."""

    @property
    def full(self) -> bool:
        """True if the store has no room for more output; what is appended nevertheless is stored."""

    @property
    def appended_seq(self) -> int:
        """Number of the newest event. Readers get it a moment later, when it is written."""

    def append(self, event: OutputEvent) -> None:
        """Number the event and store it."""


class OutputSpool(Spool, Protocol):
    """Spool for the output that exceeds an execution's cap; failures are reported by `problem`, and never raised."""

    @property
    def problem(self) -> str | None:
        """Why some of it could not be written."""

    async def close(self) -> Mapping[str, SpooledFile]:
        """Write what is left and return what there is."""


class SessionStore(Protocol):
    """Keeps session records, those of ended sessions included."""

    async def add(self, session: Session) -> None:
        """Insert a record.

        Raises
        ------
        StorageFull, StoreUnavailable
        """

    async def save(self, session: Session) -> None:
        """Replace a record, now or as soon as the storage permits."""

    async def get(self, session_id: str) -> Session | None:
        """Return a record."""

    async def list_ended(self, limit: int) -> Sequence[Session]:
        """Return the newest records of ended sessions, oldest first."""


class ExecutionStore(Protocol):
    """Keeps execution records and their event logs."""

    async def accept(
        self, execution: Execution, owner: str, key: IdempotencyKey | None, sender: str | None = None
    ) -> WritableLog | StoredExecution:
        """Record an execution before its code is sent and return its log, or the one that came with the same key.

        `sender` is who asked for it, if not its owner. The record survives the death of this process.

        Raises
        ------
        IdempotencyKeyReused, StorageFull, StoreUnavailable
        """

    async def find(self, session_id: str, owner: str, key: IdempotencyKey) -> StoredExecution | None:
        """Return the execution that was accepted with `key`, if there is one.

        Raises
        ------
        IdempotencyKeyReused
        """

    # Apart from `accept`: a row in the write-ahead log survives this process, and one sync serves all who wait.
    async def sync(self) -> None:
        """Return once what was accepted would survive a power failure too."""

    def spool(self, execution: Execution, owner: str) -> OutputSpool | None:
        """Return the spool for output beyond the execution's cap; None if nothing of it is kept."""

    def when_few_wait(self, callback: Callable[[], None]) -> None:
        """Call `callback` now or, if much waits to be spooled, when there is less."""

    async def amend(self, execution: Execution) -> None:
        """Replace the record of an accepted execution that has not ended, such as after a person edited its code.

        Raises
        ------
        StorageFull, StoreUnavailable
        """

    async def finish(self, execution: Execution, owner: str, log: Any) -> None:
        """Write the end event and the terminal row; then let readers see both.

        Parameters
        ----------
        log : WritableLog
            As `accept` returned it.
        """

    async def note_late_bytes(self, execution_id: str, late_bytes: int) -> None:
        """Set how much late output a finished execution has, now or as soon as the storage permits."""

    async def get(self, execution_id: str) -> StoredExecution | None:
        """Return a record; of a finished execution with its outputs."""

    async def summary(self, execution_id: str) -> StoredExecution | None:
        """Return a record without its outputs."""

    async def open_spooled(self, execution: Execution, output: SpooledOutput) -> int | None:
        """Return a descriptor of a file of a finished execution's spool, None if it is no longer kept."""

    async def log(self, execution_id: str) -> EventLog | None:
        """Return the log of a finished execution, None once it is no longer kept."""

    async def list_ids(self, session_id: str, limit: int) -> Sequence[str]:
        """Return the ids of the session's newest executions, oldest first."""

    async def list(
        self, session_id: str, limit: int, before: str | None = None, after: str | None = None
    ) -> Sequence[Execution]:
        """Return a page of the session's records, oldest first, without their outputs.

        It has the newest executions, those `before` the one with this id, or the oldest `after` the one with this id.

        Raises
        ------
        ExecutionNotFound
        """

    @property
    def search(self) -> Callable[..., Awaitable[tuple[Sequence[FoundExecution], bool]]]:
        """Search the newest executions that have a text; see `store.search_index.SearchIndex.search`."""


class AuditTrail(Protocol):
    """Audit trail: records who did what. Sessions and executions get into it by themselves."""

    def record(self, kind: str, action: str, principal: str, subject: str, **data: Any) -> None:
        """Record an action soon, from the loop's thread. Failures of the storage are not raised.

        Parameters
        ----------
        kind : str
            One of `AuditKind`.
        principal : str
            The principal that did it; empty for an unauthenticated client.
        subject : str
            The id or path that it was done to.
        **data
            As the kind's schema has it; never a secret.
        """

    def start(self) -> None:
        """Begin to give records to subscribers, in the running loop; until then they are held back."""


class Store(Protocol):
    """Store of records: sessions, executions, tokens, and the audit trail."""

    @property
    def tokens(self) -> TokenStore:
        """Scoped tokens."""

    @property
    def grants(self) -> GrantStore:
        """Kernels granted to tokens."""

    @property
    def secrets(self) -> SecretStore:
        """Secrets, encrypted."""

    @property
    def audit(self) -> AuditTrail:
        """The audit trail."""

    @property
    def sessions(self) -> SessionStore:
        """Records of sessions."""

    @property
    def executions(self) -> ExecutionStore:
        """Records of executions."""

    def note_prepared(self, sessions: Mapping[str, str]) -> None:
        """Record the sessions that are prepared in advance: their ids, each with its kernel's id or an empty text.

        It replaces the previous record. If this server is killed, the next one ends these kernels.
        Blocks while a small file is written.
        """

    def on_forget(self, callback: Callable[[Sequence[str]], None]) -> None:
        """Call `callback`, in any thread, with the ids of sessions of which nothing is kept any more."""

    def kept_free_at(self, path: Path) -> int:
        """Return how much space the store needs others to leave free on the disk that has `path`, in bytes."""

    def set_shares(self, shares: Mapping[str, int | None]) -> None:
        """Set what principals, each with those below it, may have stored, in bytes; None for the store's default."""

    def full_share_of(self, principal: str) -> int | None:
        """Return the share of a principal in bytes if nothing more can be stored within it; None if there is room."""

    def trouble(self) -> str | None:
        """Return what is wrong with the store, if anything is."""

    def close(self) -> None:
        """Write what is left, and close every file."""
