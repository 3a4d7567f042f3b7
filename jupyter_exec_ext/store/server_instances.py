"""Liveness of the servers that share a store: one locked file for each.

Several servers of one user may run at once. Each locks a file of its own. The operating system releases the lock when
the process ends, even after a crash. A record whose server's lock is free is therefore an orphan.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..system.removal import remove_tree


class ServerInstance:
    """A server, marked as alive until `close` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory = directory
        self.id = secrets.token_hex(8)
        # Lock the file before it gets the name under which others look for it, or they might find it free.
        new = directory / f"{self.id}.new"
        self._fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(self._lock_of(self.id))

    def _lock_of(self, server: str) -> Path:
        return self._directory / f"{server}.lock"

    def reserve_path(self) -> Path:
        """Return the path of a file that is removed with the server."""
        return self._directory / f"{self.id}.reserve"

    def note_prepared(self, sessions: Mapping[str, str]) -> None:
        """Record the ids of sessions prepared for later use, each with its kernel's id or an empty text."""
        path = self._prepared_of(self.id)
        if not sessions:
            path.unlink(missing_ok=True)
            return
        new = path.with_suffix(".prepared.new")
        new.write_text("".join(f"{session} {kernel}\n" for session, kernel in sessions.items()), encoding="utf-8")
        new.rename(path)

    def left_prepared(self) -> dict[str, str]:
        """Return the sessions that ended servers had prepared and not used, each with its kernel's id."""
        found = {}
        for server in self.gone():
            with suppress(OSError, ValueError):  # there is no such file, or it is no file
                lines = self._prepared_of(server).read_text(encoding="utf-8").splitlines()
                found.update({session: kernel for session, _, kernel in (line.partition(" ") for line in lines)})
        return found

    def _prepared_of(self, server: str) -> Path:
        return self._directory / f"{server}.prepared"

    def gone(self) -> set[str]:
        """Return the ids of servers that have ended without `close`."""
        return {path.stem for path in self._directory.glob("*.lock") if self.is_gone(path.stem)}

    def is_gone(self, server: str) -> bool:
        """Return whether another server has ended."""
        if server == self.id:
            return False
        try:
            fd = os.open(self._lock_of(server), os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, IsADirectoryError):  # a server's lock is never a directory
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    def forget(self, server: str) -> None:
        """Remove the files of a server that has ended and whose records are closed."""
        for suffix in ("lock", "reserve", "prepared"):
            remove_tree(self._directory / f"{server}.{suffix}")

    def close(self) -> None:
        """Remove this server's files and release its lock."""
        self.forget(self.id)
        os.close(self._fd)
