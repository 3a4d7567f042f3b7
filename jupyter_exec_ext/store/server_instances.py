"""Which servers that share a store are alive.

Several servers of one user may run at once. Each holds a lock on a file of its own for as long as it lives; the
operating system gives the lock up when the process ends, however it ends. So a record whose server's lock is free was
left behind by a server that is gone.
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
        # Locked before it has the name under which others look for it, or one of them might find it free.
        new = directory / f"{self.id}.new"
        self._fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(self._lock_of(self.id))

    def _lock_of(self, server: str) -> Path:
        return self._directory / f"{server}.lock"

    def reserve_path(self) -> Path:
        """Return where this server may keep a file that goes when the server does."""
        return self._directory / f"{self.id}.reserve"

    def note_prepared(self, sessions: Mapping[str, str]) -> None:
        """Keep what is there for sessions that are yet to come: their ids, each with its kernel's or nothing."""
        path = self._prepared_of(self.id)
        if not sessions:
            path.unlink(missing_ok=True)
            return
        new = path.with_suffix(".prepared.new")
        new.write_text("".join(f"{session} {kernel}\n" for session, kernel in sessions.items()), encoding="utf-8")
        new.rename(path)

    def left_prepared(self) -> dict[str, str]:
        """Return what servers that have ended had there for sessions that never came."""
        found = {}
        for server in self.gone():
            with suppress(OSError, ValueError):  # there is none, or something else is in its place
                lines = self._prepared_of(server).read_text(encoding="utf-8").splitlines()
                found.update({session: kernel for session, _, kernel in (line.partition(" ") for line in lines)})
        return found

    def _prepared_of(self, server: str) -> Path:
        return self._directory / f"{server}.prepared"

    def gone(self) -> set[str]:
        """Return the servers that have ended without saying so."""
        return {path.stem for path in self._directory.glob("*.lock") if self.is_gone(path.stem)}

    def is_gone(self, server: str) -> bool:
        """Whether another server has ended."""
        if server == self.id:
            return False
        try:
            fd = os.open(self._lock_of(server), os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, IsADirectoryError):  # no server has a directory for its lock
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    def forget(self, server: str) -> None:
        """Remove the files of a server that has ended and whose records have been dealt with."""
        for suffix in ("lock", "reserve", "prepared"):
            remove_tree(self._directory / f"{server}.{suffix}")

    def close(self) -> None:
        """Say that this server has ended."""
        self.forget(self.id)
        os.close(self._fd)
