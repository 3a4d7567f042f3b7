"""File service: list, read, hash, write and delete the files of sessions for their callers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...auth.caller import Caller
from ...auth.policy import check_upload
from ...errors import Conflict, NotFound, QuotaExceeded
from ...models import FileChange, FileInfo, SessionState
from ..files.file_locator import FileLocator
from ..files.file_transfer import always, limits_of
from ..files.local_files import LocalFiles
from ..files.remote_files import NOWHERE
from ..ports import AuditTrail, FileLimits, FileList, FileReader, FileWriter, SessionFiles, Store
from ..settings import EngineSettings
from .live_session import ended_error
from .session_service import SessionService

#: Bytes of files that one request for a list hashes; the files after that have no digest.
MAX_LISTED_HASHED_BYTES = 8 * 1024**3


class FileService:
    """Files of sessions, for callers; every method may raise `SessionNotFound` and what `SessionFiles` raises."""

    def __init__(self, sessions: SessionService, locator: FileLocator, audit: AuditTrail) -> None:
        self._sessions = sessions
        self._locator = locator
        self._audit = audit

    async def list(
        self, caller: Caller, session_id: str, path: str = "", *, sha256: bool = False, is_wanted: Callable[[], bool]
    ) -> FileList:
        """Return the files below a directory, by path.

        Parameters
        ----------
        sha256 : bool
            Read and hash them all, up to `MAX_LISTED_HASHED_BYTES` together.
        is_wanted : callable
            Returns whether the client still waits; called between files.
        """
        files = await self._files_of(caller, session_id)
        found = await files.list_files(session_id, path)
        if not sha256:
            return found
        hashed, left_bytes = [], MAX_LISTED_HASHED_BYTES
        for info in found.files:
            if not is_wanted():
                break
            digest = None
            if info.size_bytes <= left_bytes:
                # A file that vanishes, is replaced by a directory, or grows too large has no digest.
                with suppress(Conflict, NotFound, QuotaExceeded):
                    digest = await files.digest(session_id, info.path, is_wanted)
                # Also without a digest: the file may have been read to its end in vain.
                left_bytes -= info.size_bytes
            hashed.append(replace(info, sha256=digest))
        return replace(found, files=tuple(hashed))

    async def _files_of(self, caller: Caller, session_id: str) -> SessionFiles:
        return self._locator.files_of(await self._sessions.get(caller, session_id))

    async def open(self, caller: Caller, session_id: str, path: str) -> FileReader:
        """Open a file for reading."""
        reader = await (await self._files_of(caller, session_id)).open(session_id, path)
        info = reader.info
        self._audit.record("file", "downloaded", caller.principal, session_id, path=path, size_bytes=info.size_bytes)
        return reader

    async def digest(
        self, caller: Caller, session_id: str, path: str, *, is_wanted: Callable[[], bool] = always
    ) -> str:
        """Return a file's SHA-256; hashing stops when `is_wanted` returns False."""
        return await (await self._files_of(caller, session_id)).digest(session_id, path, is_wanted)

    async def change(self, caller: Caller, session_id: str, path: str, mtime: str) -> FileChange:
        """Return the texts of a small file before and after it was changed; see `SessionFiles.change`."""
        return await (await self._files_of(caller, session_id)).change(session_id, path, mtime)

    async def create(self, caller: Caller, session_id: str, path: str, size_bytes: int | None) -> FileWriter:
        """Begin to write a file into a session that has not ended."""
        session = await self._sessions.get(caller, session_id)
        if session.state is SessionState.ENDED:
            raise ended_error(session)
        for policy in caller.policies:
            check_upload(policy)
        files = self._locator.files_of(session)
        writer = await files.create(session_id, path, size_bytes, limits_of(caller.policies))
        return AuditedUpload(writer, self._audit, caller.principal, session_id)

    async def delete(self, caller: Caller, session_id: str, path: str) -> None:
        """Delete a file, also of a session that has ended."""
        await (await self._files_of(caller, session_id)).delete(session_id, path)
        self._audit.record("file", "deleted", caller.principal, session_id, path=path)


class AuditedUpload:
    """Writer of a file that records the upload in the audit trail once the file is in its place."""

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


def local_files(settings: EngineSettings, limits: FileLimits, store: Store) -> SessionFiles:
    """Return the files of sessions on this machine, as the settings have them."""
    if not settings.session_directories:
        return NOWHERE
    root = Path(settings.work_root)
    return LocalFiles(
        root,
        limits,
        max_watched_entries=settings.max_watched_entries,
        log=settings.log,
        keep_free_bytes=store.kept_free_at(root),
    )
