"""Database of the search index: trigrams of executions in SQLite's FTS5, each entry with its owner.

It is derived data in a file of its own, so a damaged file is removed and made again. One thread uses it at a time.
`search_index` decides what is put in, and when.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..auth.caller import OWNER
from ..errors import ExecutionNotFound
from ..system.regular_file import open_regular_file
from ..system.removal import remove_tree

SEARCH_DATABASE = "search.db"
_VERSION = 2
_TABLES = (
    # Without positions (`detail=none`) the index is less than half as large. A match is then compared with the text.
    "CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5(text, detail=none, tokenize='trigram case_sensitive 1')",
    """
    CREATE TABLE IF NOT EXISTS entries (
        number INTEGER PRIMARY KEY,
        execution_id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        finished INTEGER NOT NULL
    )
    """,
    f"PRAGMA user_version={_VERSION}",
)
_LOCK_WAIT_SECONDS = 5.0  # another server that shares the store may write
_LAST_ID = "\U0010ffff"


def why_not_searchable() -> str:
    """Return why this Python's SQLite has no trigram index, or an empty text."""
    try:
        sqlite3.connect(":memory:").execute(_TABLES[0])
    except sqlite3.OperationalError as error:
        return (
            f"this server cannot search: its SQLite {sqlite3.sqlite_version} has no full-text index of trigrams "
            f"({error}); use a Python with SQLite 3.34 or later and FTS5"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An execution as the index has it."""

    execution_id: str
    owner: str
    finished: int
    accepted_at: float
    text: str


class SearchDatabase:
    """The entries of the index.

    Parameters
    ----------
    directory : Path
        Where its file is made.

    Notes
    -----
    Every method may raise `sqlite3.Error`, and `OSError` if something else is in the file's place.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / SEARCH_DATABASE
        self._connection: sqlite3.Connection | None = None

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, opened at first use."""
        if self._connection is None:
            os.close(open_regular_file(self._path, os.O_RDWR | os.O_CREAT))  # SQLite would use the umask's mode
            connection = sqlite3.connect(
                self._path, isolation_level=None, timeout=_LOCK_WAIT_SECONDS, check_same_thread=False
            )
            self._connection = connection
            # Pages that are freed leave the file; until then they are zeros, so that no removed text stays.
            for name in ("auto_vacuum=FULL", "journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON"):
                connection.execute(f"PRAGMA {name}")
            if connection.execute("PRAGMA user_version").fetchone()[0] not in (0, _VERSION):
                raise sqlite3.DatabaseError("malformed: the index is of another version")
            for statement in _TABLES:
                connection.execute(statement)
        return self._connection

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def remove(self) -> None:
        """Remove the files."""
        self.close()
        for suffix in ("", "-wal", "-shm"):
            remove_tree(self._path.with_name(f"{self._path.name}{suffix}"))

    def known(self, after: str, last: str | None) -> dict[str, int]:
        """Return the ids after one up to `last`, or all that follow, each with whether it was finished."""
        sql = "SELECT execution_id, finished FROM entries WHERE execution_id > ? AND execution_id <= ?"
        return dict(self.connection.execute(sql, (after, last or _LAST_ID)).fetchall())

    def replace(self, execution_ids: Iterable[str], entries: Iterable[Entry]) -> None:
        """Remove the entries of some executions, and put new ones in, in one transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            for execution_id in execution_ids:
                self._remove(execution_id)
            for entry in entries:
                self._insert(entry)
            self.connection.execute("COMMIT")
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise

    def _remove(self, execution_id: str) -> None:
        number = self._number(execution_id)
        if number is not None:
            self.connection.execute("DELETE FROM texts WHERE rowid = ?", (number,))
            self.connection.execute("DELETE FROM entries WHERE number = ?", (number,))

    def _insert(self, entry: Entry) -> None:
        # Numbers follow the time, so that the newest are found first without sorting all that match.
        number = int(entry.accepted_at * 1e6)
        sql = "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?)"
        values = (entry.execution_id, entry.owner, entry.finished)
        while self.connection.execute(sql, (number, *values)).rowcount == 0:
            number += 1
        self.connection.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (number, entry.text))

    def _number(self, execution_id: str) -> int | None:
        sql = "SELECT number FROM entries WHERE execution_id = ?"
        row = self.connection.execute(sql, (execution_id,)).fetchone()
        return None if row is None else row[0]

    def merge(self) -> None:
        """Rewrite the index without the trigrams of removed texts, which FTS5 only marks as deleted."""
        self.connection.execute("INSERT INTO texts (texts) VALUES ('optimize')")
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def find(self, wanted: str, principal: str, before: str | None, limit: int) -> Sequence[str]:
        """Return the ids of executions that have a text, the newest first; see `SearchIndex.search`."""
        trigrams = {wanted[at : at + 3].replace('"', '""') for at in range(len(wanted) - 2)}
        values: list[object] = [" AND ".join(f'"{trigram}"' for trigram in sorted(trigrams)), wanted]
        where = "texts MATCH ? AND instr(texts.text, ?)"
        if before is not None:
            number = self._number(before)
            if number is None:
                raise ExecutionNotFound(f"no execution {before!r} to continue after; search again from the beginning")
            where += " AND texts.rowid < ?"
            values.append(number)
        if principal != OWNER:
            where += " AND (owner = ? OR owner > ? AND owner < ?)"
            values += [principal, f"{principal}/", f"{principal}0"]  # the character '0' follows '/'
        # CROSS: the index is read from its end, and no further than the limit.
        sql = f"SELECT execution_id FROM texts CROSS JOIN entries ON number = texts.rowid WHERE {where}"
        rows = self.connection.execute(f"{sql} ORDER BY texts.rowid DESC LIMIT ?", (*values, limit)).fetchall()
        return [execution_id for (execution_id,) in rows]
