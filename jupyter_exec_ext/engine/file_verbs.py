"""What callers may do with a session's files: the engine's verbs, over whatever keeps the files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from ..auth.caller import Caller
from ..errors import Conflict, NotFound
from ..models import Session, SessionState
from .ports import FileList, FileReader, FileWriter, SessionFiles
from .quotas import limits_of
from .sessions import ended_error

# Returns a session, ended or not, if the caller may see it.
FindSession = Callable[[Caller, str], Awaitable[Session]]


class FileVerbs:
    """The files of sessions, for callers; every method may raise `SessionNotFound` and what `SessionFiles` raises."""

    def __init__(self, files: SessionFiles, find: FindSession) -> None:
        self._files = files
        self._find = find

    async def list(
        self, caller: Caller, session_id: str, path: str = "", *, sha256: bool = False, wanted: Callable[[], bool]
    ) -> FileList:
        """Return the files below a directory, by path.

        Parameters
        ----------
        sha256 : bool
            Whether to read and hash them all.
        wanted : callable
            Asked between files whether anybody still waits for the answer.
        """
        await self._find(caller, session_id)
        found = await self._files.list_files(session_id, path)
        if not sha256:
            return found
        hashed = []
        for info in found.files:
            if wanted():
                digest = await self._digest(session_id, info.path)
                hashed.append(replace(info, sha256=digest))
        return replace(found, files=tuple(hashed))

    async def _digest(self, session_id: str, path: str) -> str | None:
        """Return a file's digest; None for one that went or changed its nature since it was listed."""
        try:
            return await self._files.digest(session_id, path)
        except (Conflict, NotFound):
            return None

    async def open(self, caller: Caller, session_id: str, path: str) -> FileReader:
        """Open a file for reading."""
        await self._find(caller, session_id)
        return await self._files.open(session_id, path)

    async def digest(self, caller: Caller, session_id: str, path: str) -> str:
        """Return a file's SHA-256."""
        await self._find(caller, session_id)
        return await self._files.digest(session_id, path)

    async def create(self, caller: Caller, session_id: str, path: str, size_bytes: int | None) -> FileWriter:
        """Begin to write a file into a session that has not ended."""
        session = await self._find(caller, session_id)
        if session.state is SessionState.ENDED:
            raise ended_error(session)
        return await self._files.create(session_id, path, size_bytes, limits_of(caller.policies))

    async def delete(self, caller: Caller, session_id: str, path: str) -> None:
        """Delete a file, also of a session that has ended."""
        await self._find(caller, session_id)
        await self._files.delete(session_id, path)
