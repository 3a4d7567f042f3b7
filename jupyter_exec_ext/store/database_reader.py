"""A second connection to the database, for short reads in the event loop's thread.

With a write-ahead log a read waits for nobody. The way through the store's thread would: it may be at work on a large
log, or wait for a disk.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ..errors import StoreUnavailable
from .database import is_damage, translated
from .database_writer import Writer


class Reader:
    """Reads what is committed; the file that it reads is always the one that is written.

    Parameters
    ----------
    path : Path
        The database that `writer` has opened.
    """

    def __init__(self, path: Path, writer: Writer) -> None:
        self._path = path
        self._writer = writer
        self._connection: sqlite3.Connection | None = None
        self._generation = -1
        self._file: tuple[int, int] = (0, 0)

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        """Return the rows that a query finds.

        Raises
        ------
        StoreUnavailable
            If the database cannot be read.
        """
        self._writer.health.require_undamaged()
        try:
            return self._current().execute(sql, values).fetchall()
        except sqlite3.Error as error:
            self.close()
            if is_damage(error):
                self._writer.health.report_damage(str(error))
            elif "i/o error" in str(error).lower():
                self._writer.health.report(translated(error).message)
            raise translated(error) from None
        except OSError as error:
            self.close()
            raise StoreUnavailable(f"the database cannot be read: {error.strerror}") from None

    def _current(self) -> sqlite3.Connection:
        """Return a connection to the file that has the database's name now."""
        found = os.stat(self._path)
        file = (found.st_dev, found.st_ino)
        if self._connection is None or self._generation != self._writer.generation or self._file != file:
            self.close()
            self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=0, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA query_only=ON")
            self._generation, self._file = self._writer.generation, file
        return self._connection

    def close(self) -> None:
        """Close the connection; the next read opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
