"""SQLite database file: opening, migration, transactions, syncs, and moving a damaged file aside.

One thread uses it at a time. A commit survives a crash of this process at once, because the write-ahead log is in the
operating system's cache. `Database.sync` makes it survive a power failure. The two are separate so that code is on its
way to the kernel while the disk still works.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..errors import ExecError, StorageFull, StoreUnavailable
from .migrations import MIGRATIONS, RECORD_TABLE

LOCK_WAIT_SECONDS = 5.0
_LOCK_POLL_SECONDS = 0.02
# Like SQLite, sync data without timestamps. macOS has only `fsync`.
_sync_data = getattr(os, "fdatasync", os.fsync)
# Size of the write-ahead log's file after a checkpoint.
_LOG_SIZE_LIMIT_BYTES = 4 * 1024 * 1024
_INCREMENTAL = 2  # value of `PRAGMA auto_vacuum`
# To rewrite a larger file of an earlier version would delay the server's start.
_MAX_REWRITTEN_BYTES = 512 * 1024 * 1024
_REWRITE_ROOM_FACTOR = 3  # for the copy and for the write-ahead log with it


def translated(error: sqlite3.Error) -> ExecError:
    """Return the error for a caller that stands for a database error."""
    text = str(error).lower()
    if "full" in text:
        return StorageFull("the disk that keeps the executions is full; nothing new is accepted until there is room")
    if "readonly" in text or "read-only" in text:
        return StoreUnavailable("the database is read-only; what it has can be read, nothing new is accepted")
    if "locked" in text or "busy" in text:
        return StoreUnavailable("the database is locked by another program; try again", retry_after_seconds=1.0)
    if is_damage(error):
        return StoreUnavailable(damage_message(str(error)))
    if "i/o error" in text:
        failed = f"the disk that keeps the executions fails ({error}); check it"
        return StoreUnavailable(failed, retry_after_seconds=1.0)
    return StoreUnavailable(f"the database failed: {error}", retry_after_seconds=1.0)


def is_corruption(error: sqlite3.Error) -> bool:
    """Return whether the error says that the file itself is damaged."""
    text = str(error).lower()
    return "malformed" in text or "not a database" in text or "malformed database schema" in text


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether a failed read shows that the file is damaged or was emptied."""
    # SQLite takes an emptied file for a valid database without tables.
    return is_corruption(error) or "no such table" in str(error).lower()


def damage_message(found: str) -> str:
    """Return the message for a damaged database: cause, effect and remedy."""
    return (
        f"the database is damaged ({found}); nothing in it is used until the server is restarted, which sets it aside "
        "and begins a new one; to keep its records, stop the server and restore a backup first"
    )


def check_file(path: Path) -> str | None:
    """Check the file of a database in use through a second connection; return the damage, None if there is none.

    The connection in use keeps pages in memory. It would notice damage only when it reads a page again.
    """
    if path.is_fifo():  # SQLite would wait for a program that writes to it
        return "a FIFO is in its place"
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=0)
        ) as reader:
            (found,) = reader.execute("PRAGMA quick_check(1)").fetchone()
            reader.execute("SELECT version FROM migrations").fetchall()  # an emptied file passes the check above
    except sqlite3.Error as error:
        return str(error) if is_damage(error) else None  # a lock, for example, is no damage
    return None if found == "ok" else str(found).splitlines()[-1]  # after a heading


class Database:
    """A connection to the database file.

    Parameters
    ----------
    path : Path or None
        The file, made with mode 0600 if it is not there; None for a database in memory.

    Raises
    ------
    sqlite3.DatabaseError
        If the file is no database, or damaged.
    StoreUnavailable
        If a newer version of this package wrote it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._wal_fd: int | None = None
        self._after_commit: list[Callable[[], None]] = []
        if path is not None:
            # SQLite would use the umask's mode. It gives the `-wal` and `-shm` files the mode of the database.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # No `isolation_level`: the module must not begin transactions. No `timeout`: each job has its own deadline.
        # The connection is opened in the caller's thread and used in the store's.
        self._connection = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=0, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        with ExitStack() as undo:
            undo.callback(self._connection.close)
            self._set_up()
            undo.pop_all()

    def _set_up(self) -> None:
        # It takes effect only in a new file, before WAL mode writes the first page.
        # Another server may be creating the same file now.
        self._execute_when_unlocked("PRAGMA auto_vacuum=INCREMENTAL", LOCK_WAIT_SECONDS)
        self._execute_when_unlocked("PRAGMA journal_mode=WAL", LOCK_WAIT_SECONDS)
        # With a write-ahead log, NORMAL syncs at checkpoints only. `sync` does the rest.
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(f"PRAGMA journal_size_limit={_LOG_SIZE_LIMIT_BYTES}")
        # Off by default in SQLite. `ON DELETE CASCADE` needs it.
        self._connection.execute("PRAGMA foreign_keys=ON")
        (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(f"database disk image is malformed: {found}")
        self._migrate()
        self._make_shrinkable()

    def _make_shrinkable(self) -> None:
        """Rewrite a file of an earlier version once, so that it can shrink.

        The file stays as it is if it is too large, the disk has no room, or another server uses it. Its free pages
        are then used again, but not given back.
        """
        if self.path is None or self._pragma("auto_vacuum") == _INCREMENTAL:
            return
        size = self.path.stat().st_size
        if size > _MAX_REWRITTEN_BYTES or shutil.disk_usage(self.path.parent).free < _REWRITE_ROOM_FACTOR * size:
            return
        try:
            self._connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            self._connection.execute("VACUUM")
        except sqlite3.OperationalError as error:
            if not isinstance(translated(error), (StorageFull, StoreUnavailable)):
                raise

    def _migrate(self) -> None:
        known = {migration.version for migration in MIGRATIONS}
        applied = self._applied()
        if applied - known:
            raise StoreUnavailable("the database was written by a newer version of jupyter_exec_ext; update this one")
        for migration in MIGRATIONS:
            if migration.version in applied:
                continue
            with self.transaction(LOCK_WAIT_SECONDS):
                if migration.version in self._applied():  # another server has applied it meanwhile
                    continue
                for statement in migration.statements:
                    self.execute(statement)
                moment = datetime.now(timezone.utc).isoformat(timespec="seconds")
                self.execute("INSERT INTO migrations VALUES (?, ?, ?)", (migration.version, migration.name, moment))

    def _applied(self) -> set[int]:
        if not self._connection.in_transaction:
            with self.transaction(LOCK_WAIT_SECONDS):
                self.execute(RECORD_TABLE)
        return {row["version"] for row in self.execute("SELECT version FROM migrations").fetchall()}

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement."""
        return self._connection.execute(sql, values)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        self._connection.executemany(sql, rows)

    @contextmanager
    def transaction(self, lock_wait_seconds: float = 0.0) -> Iterator[None]:
        """Run the block in one transaction: all of its writes or none.

        Parameters
        ----------
        lock_wait_seconds : float
            Longest wait for another program that holds the write lock.

        Raises
        ------
        sqlite3.OperationalError
            If the lock is not free in time, with nothing written.
        """
        # IMMEDIATE takes the write lock now. A transaction that begins by reading could fail at its first write.
        self._execute_when_unlocked("BEGIN IMMEDIATE", lock_wait_seconds)
        with ExitStack() as undo:
            undo.callback(self._roll_back)
            yield
            self._connection.execute("COMMIT")
            undo.pop_all()
        # Outside of the undo block: a call that raises must not undo what is committed.
        calls, self._after_commit = self._after_commit, []
        for call in calls:
            call()

    def _roll_back(self) -> None:
        self._after_commit.clear()
        if self._connection.in_transaction:  # after some errors, such as a full disk, SQLite itself has rolled back
            self._connection.execute("ROLLBACK")

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call `call` once the current transaction is committed, and not at all if it fails."""
        self._after_commit.append(call)

    def _execute_when_unlocked(self, sql: str, lock_wait_seconds: float) -> None:
        give_up_at = time.monotonic() + lock_wait_seconds
        while True:
            try:
                self._connection.execute(sql)
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() >= give_up_at:
                    raise
                time.sleep(_LOCK_POLL_SECONDS)  # SQLite does not notify of the end of a lock

    def sync(self) -> None:
        """Sync the write-ahead log, so that every commit so far survives a power failure."""
        if self.path is None:
            return
        if self._wal_fd is None:
            # SQLite keeps no locks on this file, so closing a second descriptor releases none.
            self._wal_fd = os.open(f"{self.path}-wal", os.O_RDWR | os.O_CLOEXEC)
        _sync_data(self._wal_fd)

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def size_bytes(self) -> int:
        """Return the size of the pages in use, in bytes."""
        return (self._pragma("page_count") - self._pragma("freelist_count")) * self._pragma("page_size")

    def free_bytes(self) -> int:
        """Return the size of the free pages, in bytes."""
        return self._pragma("freelist_count") * self._pragma("page_size")

    def give_back(self, max_pages: int) -> None:
        """Cut up to `max_pages` free pages off the file.

        Raises
        ------
        sqlite3.OperationalError
            If another program writes.
        """
        # `execute` steps this statement once, which frees one page only.
        self._connection.executescript(f"PRAGMA incremental_vacuum({max_pages})")
        # Only a checkpoint makes the file itself smaller.
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Close the database."""
        if self._wal_fd is not None:
            os.close(self._wal_fd)
            self._wal_fd = None
        self._connection.close()


def set_aside(path: Path) -> Path:
    """Rename a damaged database with its write-ahead log; return its new name."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    # A log that stays could be applied to a new database of this name.
    for suffix in ("", "-wal", "-shm"):
        part = Path(f"{path}{suffix}")
        if part.exists():
            part.rename(f"{aside}{suffix}")
    return aside
