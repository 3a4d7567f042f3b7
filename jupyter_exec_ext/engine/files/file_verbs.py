"""What callers may do with a session's files: the engine's verbs, over whatever keeps the files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from ...auth.caller import Caller
from ...auth.policy import check_upload
from ...errors import Conflict, NotFound, QuotaExceeded
from ...models import FileInfo, Session, SessionState
from ..ports import AuditTrail, FileList, FileReader, FileWriter, SessionFiles
from ..sessions.live_session import ended_error
from .file_reader import always
from .quotas import limits_of

#: Bytes of files that one request for a list hashes; the files after that have no digest.
MAX_LISTED_HASHED_BYTES = 8 * 1024**3

# Returns a session, ended or not, if the caller may see it.
FindSession = Callable[[Caller, str], Awaitable[Session]]
# Returns what has a session's files.
FilesOf = Callable[[Session], SessionFiles]


class FileVerbs:
    """The files of sessions, for callers; every method may raise `SessionNotFound` and what `SessionFiles` raises."""

    def __init__(self, files_of: FilesOf, find: FindSession, audit: AuditTrail) -> None:
        self._files = files_of
        self._find = find
        self._audit = audit

    async def list(
        self, caller: Caller, session_id: str, path: str = "", *, sha256: bool = False, wanted: Callable[[], bool]
    ) -> FileList:
        """Return the files below a directory, by path.

        Parameters
        ----------
        sha256 : bool
            Whether to read and hash them all, up to `MAX_LISTED_HASHED_BYTES` together.
        wanted : callable
            Asked between files whether anybody still waits for the answer.
        """
        files = await self._files_of(caller, session_id)
        found = await files.list_files(session_id, path)
        if not sha256:
            return found
        hashed, left_bytes = [], MAX_LISTED_HASHED_BYTES
        for info in found.files:
            if not wanted():
                break
            digest = None
            if info.size_bytes <= left_bytes:
                digest = await self._digest(files, session_id, info.path, wanted)
                left_bytes -= info.size_bytes
            hashed.append(replace(info, sha256=digest))
        return replace(found, files=tuple(hashed))

    async def _files_of(self, caller: Caller, session_id: str) -> SessionFiles:
        return self._files(await self._find(caller, session_id))

    async def _digest(self, files: SessionFiles, session_id: str, path: str, wanted: Callable[[], bool]) -> str | None:
        """Return a file's digest; None for one that went or changed its nature meanwhile, or is too large."""
        try:
            return await files.digest(session_id, path, wanted)
        except (Conflict, NotFound, QuotaExceeded):
            return None

    async def open(self, caller: Caller, session_id: str, path: str) -> FileReader:
        """Open a file for reading."""
        reader = await (await self._files_of(caller, session_id)).open(session_id, path)
        info = reader.info
        self._audit.record("file", "downloaded", caller.principal, session_id, path=path, size_bytes=info.size_bytes)
        return reader

    async def digest(self, caller: Caller, session_id: str, path: str, *, wanted: Callable[[], bool] = always) -> str:
        """Return a file's SHA-256; `wanted` is asked now and then whether anybody still waits for it."""
        return await (await self._files_of(caller, session_id)).digest(session_id, path, wanted)

    async def create(self, caller: Caller, session_id: str, path: str, size_bytes: int | None) -> FileWriter:
        """Begin to write a file into a session that has not ended."""
        session = await self._find(caller, session_id)
        if session.state is SessionState.ENDED:
            raise ended_error(session)
        for policy in caller.policies:
            check_upload(policy)
        files = await self._files_of(caller, session_id)
        writer = await files.create(session_id, path, size_bytes, limits_of(caller.policies))
        return AuditedUpload(writer, self._audit, caller.principal, session_id)

    async def delete(self, caller: Caller, session_id: str, path: str) -> None:
        """Delete a file, also of a session that has ended."""
        await (await self._files_of(caller, session_id)).delete(session_id, path)
        self._audit.record("file", "deleted", caller.principal, session_id, path=path)


class AuditedUpload:
    """A file that is being written, and is recorded once it is in its place."""

    def __init__(self, writer: FileWriter, audit: AuditTrail, principal: str, session_id: str) -> None:
        self._writer = writer
        self._audit = audit
        self._principal = principal
        self._session_id = session_id
        self.write = writer.write
        self.discard = writer.discard

    async def commit(self) -> tuple[FileInfo, bool]:
        """Put the file in its place."""
        info, created = await self._writer.commit()
        self._audit.record(
            "file",
            "uploaded",
            self._principal,
            self._session_id,
            path=info.path,
            size_bytes=info.size_bytes,
            sha256=info.sha256,
            created=created,
        )
        return info, created
