"""Store of sessions, executions, tokens and the audit trail: settings, opening, recovery and closing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir
from traitlets import Bool, Float, Integer, Unicode
from traitlets.config import LoggingConfigurable

from ..errors import ExecError
from ..models import Session
from ..system.removal import retry_leftovers
from .accepted_executions import AcceptedExecutions
from .audit_table import DATABASE
from .audit_trail import AuditLog
from .database_reader import DatabaseReader
from .database_writer import DiskReserve, Writer
from .eviction import Retention, save_share
from .eviction_schedule import EvictionSchedule
from .execution_rows import ExecutionTrail
from .execution_store import ExecutionRepository
from .grant_store import GrantRepository
from .recovery import ServerInstance, left_behind, recover
from .search_index import SearchIndex
from .secret_store import SecretRepository
from .session_store import SessionRepository
from .spool import LEAVE_FREE_BYTES
from .store_health import StoreHealth
from .token_store import TokenRepository


class ExecStore(LoggingConfigurable):
    """Keeps sessions, executions and their event logs on disk; configured as ``c.ExecStore``."""

    path = Unicode(
        help="The directory of the database and the event logs; by default 'jupyter_exec_ext' in Jupyter's data "
        "directory. Several servers of one user may share it. It must be on a local disk."
    ).tag(config=True)
    max_age_seconds = Float(
        7 * 86_400.0, help="How long a finished execution is kept, in seconds, with its event log and outputs."
    ).tag(config=True)
    max_bytes = Integer(
        2 * 1024**3,
        help="The bound on the whole store, in bytes: event logs, spooled outputs and database. Beyond it, the oldest "
        "records are removed of those who have most, their spooled outputs first. A scoped token may have "
        "`max_stored_bytes` of it, by default a tenth, with the tokens below it.",
    ).tag(config=True)
    max_spool_bytes = Integer(
        256 * 1024**2,
        help="How much of an execution's output beyond ExecEngine.max_output_bytes is kept in files for download, in "
        "bytes; at most half of max_bytes; 0 to keep none.",
    ).tag(config=True)
    reserve_bytes = Integer(
        4 * 1024**2,
        help="Disk space held back, in bytes, so that what runs when the disk is full can still be recorded.",
    ).tag(config=True)

    audit_code = Bool(
        False, help="Keep the code of executions itself in the audit trail, and not its SHA-256 alone."
    ).tag(config=True)
    max_audit_age_seconds = Float(90 * 86_400.0, help="How long a record of the audit trail is kept, in seconds.").tag(
        config=True
    )

    audit: AuditLog
    sessions: SessionRepository
    executions: ExecutionRepository
    tokens: TokenRepository
    grants: GrantRepository
    accepted: AcceptedExecutions
    secrets: SecretRepository

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._closed = False
        self.health = StoreHealth(self.log)
        directory = Path(self.path) if self.path else Path(jupyter_data_dir()) / "jupyter_exec_ext"
        try:
            self._open(directory)
        except (OSError, ExecError) as error:
            # The server starts all the same, and `trouble` names the directory.
            private = Path(tempfile.mkdtemp(prefix="jupyter_exec_ext-"))
            reason = error.message if isinstance(error, ExecError) else str(error)
            self.health.raise_alarm(
                f"{directory} cannot be used ({reason}); executions are kept in {private}, which is not found again "
                "after a restart"
            )
            self._open(private)

    def _open(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = directory
        self.logs = directory / "logs"
        self.logs.mkdir(mode=0o700, exist_ok=True)
        self._instance = ServerInstance(directory / "servers")
        with ExitStack() as undo:
            # If the database cannot be opened, this server must not count as alive in this directory.
            undo.callback(self._instance.close)
            reserve = DiskReserve(self._instance.reserve_path(), self.reserve_bytes)
            self._writer = Writer(directory / DATABASE, reserve, self.health)
            undo.pop_all()
        retention = Retention(self.max_age_seconds, self.max_bytes)
        self.audit = AuditLog(self._writer, self.max_audit_age_seconds, self.log)
        self._eviction = EvictionSchedule(self._writer, self.logs, self._instance.id, retention, self.audit)
        self._trail = ExecutionTrail(self.audit, self.audit_code)
        self.sessions = SessionRepository(self._writer, self._instance.id, self.audit, self._eviction)
        self._reader = DatabaseReader(directory / DATABASE, self.health)
        self.tokens = TokenRepository(self._writer, self._reader)
        self.grants = GrantRepository(self._writer, self._instance.id)
        self.accepted = AcceptedExecutions(self._writer)
        self.secrets = SecretRepository(self._writer, directory / "secrets.key")
        max_spool_bytes = min(self.max_spool_bytes, self.max_bytes // 2)  # one spool must not evict all other records
        # It has a reader of its own, since a connection is for one thread at a time.
        self._index = SearchIndex(directory, self.logs, DatabaseReader(directory / DATABASE, self.health), self.health)
        self._eviction.on_removed = self._index.note
        self.executions = ExecutionRepository(
            self._writer, self.logs, self._instance.id, self._eviction, max_spool_bytes, self._trail, self._index
        )

    def left_behind(self) -> list[Session]:
        """Return the sessions of servers that have ended, whose kernels may still run."""
        found = self._writer.run_blocking(lambda db: left_behind(db, self._instance))
        return [session for _, session in found]

    def left_prepared(self) -> dict[str, str]:
        """Return the ids of sessions that ended servers had prepared, each with its kernel's id or an empty text.

        A session that began at the last moment may be among them; its files are then in use.
        """
        return self._instance.left_prepared()

    def note_prepared(self, sessions: Mapping[str, str]) -> None:
        """Record what `left_prepared` of the next server returns if this server is killed."""
        self._instance.note_prepared(sessions)

    def recover(self) -> None:
        """End the executions and sessions that ended servers left open."""
        retry_leftovers(self.logs)
        count = self._writer.run_blocking(
            lambda db: recover(db, self.logs, self._instance, self.audit, self._trail), write=True
        )
        if count:
            self.log.warning("store: %d executions were cut by the end of an earlier server", count)
        self._index.start_soon()  # only now: what has been ended here is in the index as it ended

    def on_forget(self, callback: Callable[[Sequence[str]], None]) -> None:
        """Call `callback`, in the store's thread, with the ids of sessions of which no record is left."""
        self._eviction.on_forget = callback

    def kept_free_at(self, path: Path) -> int:
        """Return the bytes that others must leave free on the disk that has `path`; 0 if the store is elsewhere.

        This is more than the reserve, so that the space of a released reserve goes to the last records.
        """
        existing = next(part for part in (path, *path.parents) if part.exists())
        same_disk = existing.stat().st_dev == self.directory.stat().st_dev
        return LEAVE_FREE_BYTES + self.reserve_bytes if same_disk else 0

    def set_shares(self, shares: Mapping[str, int | None]) -> None:
        """Set the shares of principals, with their descendants, in bytes; None for a tenth of `max_bytes`."""
        account = self._eviction.account
        for principal, share in account.set_shares(shares).items():
            if not self._closed:
                save = partial(save_share, account=account, principal=principal, share_bytes=share)
                self._writer.submit_last(f"share of {principal}", save)

    def full_share_of(self, principal: str) -> int | None:
        """Return the share of a principal in bytes if nothing more can be stored within it; None if there is room."""
        account = self._eviction.account
        return account.share_of(principal) if principal in account.full else None

    def trouble(self) -> str | None:
        """Return the present fault of the store, None if there is none."""
        return self.health.damage or self.health.trouble or self.health.alarm

    def close(self) -> None:
        """Write what is left, and close every file."""
        if not self._closed:
            self._closed = True
            # Spools use the writer, so they end before it.
            self.executions.close()
            self._index.close()
            self._reader.close()
            self.audit.close()
            self._writer.close()
            self._instance.close()  # last: until then no other server takes its records for orphans
