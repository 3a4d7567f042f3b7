"""Audit table: appends to, prunes and reads the audit trail in the database.

Several servers may write one trail, so an append reads the end of the chain in its own transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..audit.digest_chain import ChainedLine, chained
from ..errors import StoreUnavailable
from ..models import AuditRecord, ChainEnds
from .database import Database, translated

DATABASE = "executions.db"
# As bytes, since SQLite keeps bytes in a column for text, too, and refuses to return text that is not UTF-8.
_LINES = "SELECT seq, CAST(record AS BLOB), CAST(digest AS BLOB) FROM audit"
_NO_TRAIL = "there is no audit trail in {directory}; pass the directory of ExecStore.path with --store"


def put(db: Database, record: AuditRecord) -> AuditRecord:
    """Append a record to the chain, in a transaction; return it with its number and digests.

    Raises
    ------
    StoreUnavailable
        If the stored ends of the trail were removed or are no ends.
    """
    ends = _read_chain_ends(db)
    if ends is None:
        # A new chain would hide that the end of the old one was removed.
        raise StoreUnavailable("the audit trail was tampered with, so nothing is accepted; see 'jupyter exec audit'")
    linked = replace(record, seq=ends.last_seq + 1, previous=ends.last_digest)
    line = chained(linked)
    db.execute("INSERT INTO audit VALUES (?, ?, ?)", (line.seq, line.line, line.digest))
    db.execute("UPDATE audit_ends SET last_seq = ?, last_digest = ?", (line.seq, line.digest))
    return replace(linked, digest=line.digest)


def prune(db: Database, moment: str, limit: int) -> tuple[int, int] | None:
    """Remove up to `limit` records from before `moment`, in a transaction; return the first and last number, if any.

    Of the last removed record the digest is kept, as the beginning of the chain.
    """
    ends = _read_chain_ends(db)
    if ends is None:  # `put` reports it
        return None
    keep_from = min(_first_since(db, ends, moment), ends.first_seq + limit)
    before = db.execute(f"{_LINES} WHERE seq = ?", (keep_from - 1,)).fetchone()
    # The last record to remove has to be there: its digest is where the rest of the chain begins.
    if keep_from == ends.first_seq or before is None:
        return None
    db.execute("DELETE FROM audit WHERE seq < ?", (keep_from,))
    db.execute(
        "UPDATE audit_ends SET first_seq = ?, first_previous = ?", (keep_from, _chained_line_from_row(before).digest)
    )
    return ends.first_seq, keep_from - 1


def _first_since(db: Database, ends: ChainEnds, moment: str) -> int:
    """Return the number of the first record from `moment` or later, by bisection."""
    low, high = ends.first_seq, ends.last_seq + 1
    while low < high:
        # Numbers have no gaps, so bisection needs no index on time. A missing row counts as new, and its gap stays.
        middle = (low + high) // 2
        row = db.execute(f"{_LINES} WHERE seq = ?", (middle,)).fetchone()
        if row is not None and _is_before(_chained_line_from_row(row), moment):
            low = middle + 1
        else:
            high = middle
    return low


def _is_before(line: ChainedLine, moment: str) -> bool:
    try:
        return line.record().at < moment
    except ValueError:
        return False  # a record that was tampered with stays as evidence


def _chained_line_from_row(row: Sequence[Any]) -> ChainedLine:
    """Return the record of a row of `_LINES`; bytes that are not UTF-8 become text that is not valid JSON."""
    seq, record, digest = row
    return ChainedLine(seq, record.decode("utf-8", "backslashreplace"), digest.decode("utf-8", "backslashreplace"))


def _read_chain_ends(db: Database | sqlite3.Connection) -> ChainEnds | None:
    """Return the ends of the trail; None if they were removed or have other types."""
    row = db.execute("SELECT first_seq, first_previous, last_seq, last_digest FROM audit_ends").fetchone()
    if row is None or [type(value) for value in row] != [int, str, int, str]:
        return None
    return ChainEnds(*row)


class AuditReader:
    """Reader of the trail of a store on this machine, which a server may be writing.

    Parameters
    ----------
    directory : Path
        The directory of `ExecStore.path`.

    Raises
    ------
    StoreUnavailable
        If there is no trail, or it cannot be opened.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / DATABASE
        if not path.is_file():  # SQLite would wait for the other end of a FIFO
            raise StoreUnavailable(_NO_TRAIL.format(directory=directory))
        self._no_trail = _NO_TRAIL.format(directory=directory)
        try:
            self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        except sqlite3.Error as error:
            raise translated(error) from error

    @contextmanager
    def snapshot(self) -> Iterator[tuple[ChainEnds, Iterator[ChainedLine]]]:
        """Return the trail's ends and all of its records in one read transaction.

        Raises
        ------
        StoreUnavailable
            If the database cannot be read.
        """
        with self._transaction():
            cursor = self._connection.execute(f"{_LINES} ORDER BY seq")
            with closing(cursor):
                yield self._ends(), map(_chained_line_from_row, cursor)

    def last_seq(self) -> int:
        """Return the number of the last record."""
        with self._transaction():
            return self._ends().last_seq

    def newest(self, count: int) -> list[ChainedLine]:
        """Return the last `count` records, oldest first."""
        return self._read(f"{_LINES} ORDER BY seq DESC LIMIT ?", count)[::-1]

    def after(self, seq: int) -> list[ChainedLine]:
        """Return the records that follow number `seq`."""
        return self._read(f"{_LINES} WHERE seq > ? ORDER BY seq", seq)

    def _read(self, sql: str, value: int) -> list[ChainedLine]:
        with self._transaction():
            return [_chained_line_from_row(row) for row in self._connection.execute(sql, (value,))]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if "no such table" in str(error):  # a version before the trail made the database
                raise StoreUnavailable(self._no_trail) from None
            raise translated(error) from error

    def _ends(self) -> ChainEnds:
        ends = _read_chain_ends(self._connection)
        if ends is None:
            raise StoreUnavailable("the audit trail was tampered with: it does not say where it ends")
        return ends

    def close(self) -> None:
        """Close the database."""
        self._connection.close()
