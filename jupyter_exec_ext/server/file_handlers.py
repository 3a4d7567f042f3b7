"""Files over HTTP: raw bytes up and down as they come, never a whole file in memory."""

from __future__ import annotations

from tornado import web

from ..engine.ports import FileWriter
from ..protocol.file_headers import DIGEST_HEADER, WANT_DIGEST_HEADER, digest_header, wants_sha256
from ..protocol.records_json import to_json
from .base_handler import ExecHandler
from .file_download import send_file
from .upload_handlers import UploadHandler


class SessionFilesHandler(ExecHandler):
    """``/sessions/{sid}/files``"""

    @web.authenticated
    async def get(self, session_id: str) -> None:
        """List the session's files; with ``?sha256=true``, hash them all."""
        path = self.get_query_argument("path", "", strip=False)
        sha256 = self.flag_argument("sha256")
        found = await self.engine.files.list(self.caller, session_id, path, sha256=sha256, is_wanted=self._wanted)
        self.answer({"files": [to_json(info) for info in found.files], "truncated": found.truncated})

    def _wanted(self) -> bool:
        return not self._gone

    _gone = False

    def on_connection_close(self) -> None:
        """Nobody waits for the answer any more."""
        super().on_connection_close()
        self._gone = True


class SessionFileHandler(UploadHandler[FileWriter]):
    """``/sessions/{sid}/files/{path}``"""

    # --- up ---

    async def begin_upload(self) -> FileWriter:
        """Begin to write the file."""
        session_id, path = self.path_kwargs["session_id"], self.path_kwargs["path"]
        return await self.engine.files.create(self.caller, session_id, path, self.content_length())

    @web.authenticated
    async def put(self, session_id: str, path: str) -> None:
        """Put the uploaded file in its place."""
        del session_id, path  # taken before the body came
        info, created = await self.take_upload().commit()
        assert info.sha256 is not None
        self.set_header(DIGEST_HEADER, digest_header(info.sha256))
        self.answer(to_json(info), 201 if created else 200)

    # --- down ---

    _gone = False

    def _wanted(self) -> bool:
        return not self._gone

    def on_connection_close(self) -> None:
        """Nobody waits for the answer any more."""
        super().on_connection_close()
        self._gone = True

    @web.authenticated
    async def get(self, session_id: str, path: str) -> None:
        """Send a file."""
        digest = None
        if wants_sha256(self.request.headers.get(WANT_DIGEST_HEADER, "")):
            digest = await self.engine.files.digest(self.caller, session_id, path, is_wanted=self._wanted)
        reader = await self.engine.files.open(self.caller, session_id, path)
        await send_file(self, reader, digest)

    @web.authenticated
    async def delete(self, session_id: str, path: str) -> None:
        """Delete a file."""
        await self.engine.files.delete(self.caller, session_id, path)
        self.set_status(204)
        self.finish()
