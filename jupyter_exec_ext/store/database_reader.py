"""Short reads of the database in the event loop's thread, beside the writer's own thread."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ..errors import StoreUnavailable
from .database import is_damage, translated
from .store_health import StoreHealth


class DatabaseReader:
    """A second connection for short reads in the event loop's thread.

    With a write-ahead log a read waits for no write. In the store's thread it would wait for the disk.

    Parameters
    ----------
    path : Path
        The database that the store's `Writer` has opened.
    health : StoreHealth
        Receives damage that a read finds.
    """

    def __init__(self, path: Path, health: StoreHealth) -> None:
        self._path = path
        self._health = health
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] = (0, 0)

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        """Return the rows that a query finds.

        Raises
        ------
        StoreUnavailable
            If the database cannot be read.
        """
        self._health.require_undamaged()
        try:
            return self._current().execute(sql, values).fetchall()
        except sqlite3.Error as error:
            self.close()
            if is_damage(error):
                self._health.report_damage(str(error))
            elif "i/o error" in str(error).lower():  # else only writes would show that the disk fails
                self._health.report(translated(error).message)
            raise translated(error) from None
        except OSError as error:
            self.close()
            raise StoreUnavailable(f"the database cannot be read: {error.strerror}") from None

    def _current(self) -> sqlite3.Connection:
        """Return a connection to the file that has the database's name now: a damaged one is replaced in use."""
        found = os.stat(self._path)
        file = (found.st_dev, found.st_ino)
        if self._connection is None or self._file != file:
            self.close()
            # No `timeout`: the event loop cannot wait for a lock.
            self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=0, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA query_only=ON")
            self._file = file
        return self._connection

    def close(self) -> None:
        """Close the connection; the next read opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
