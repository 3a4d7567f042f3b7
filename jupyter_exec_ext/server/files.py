"""Files over HTTP: raw bytes up and down as they come, never a whole file in memory."""

from __future__ import annotations

from tornado import web

from ..engine.ports import FileWriter
from ..errors import ExecError
from ..wire.native import to_json
from ..wire.transfer import (
    DIGEST_HEADER,
    WANT_DIGEST_HEADER,
    digest_header,
    wants_sha256,
)
from .base import ExecHandler
from .downloads import send_file

# An upload that is refused is read to its end if no more than this is left, so that the sender gets the answer and
# not a broken connection.
_DRAIN_BYTES = 64 * 1024 * 1024


class SessionFilesHandler(ExecHandler):
    """``/sessions/{sid}/files``"""

    @web.authenticated
    async def get(self, session_id: str) -> None:
        """List the session's files; with ``?sha256=true``, hash them all."""
        path = self.get_query_argument("path", "", strip=False)
        sha256 = self.flag_argument("sha256")
        found = await self.engine.files.list(self.caller, session_id, path, sha256=sha256, wanted=self._wanted)
        self.answer({"files": [to_json(info) for info in found.files], "truncated": found.truncated})

    def _wanted(self) -> bool:
        return not self._gone

    _gone = False

    def on_connection_close(self) -> None:
        """Nobody waits for the answer any more."""
        super().on_connection_close()
        self._gone = True


class SessionFileHandler(ExecHandler):
    """``/sessions/{sid}/files/{path}``"""

    _writer: FileWriter | None = None
    _refusal: ExecError | None = None

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        """Let a path that is not UTF-8 through to where it is refused, after authentication."""
        return value.decode("utf-8", "surrogateescape")

    # --- up ---

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Let the request in, or not; begin an upload before its body comes."""
        await super().prepare()
        if self.request.method != "PUT":
            return
        length = self._content_length()
        try:
            self._writer = await self.engine.files.create(
                self.caller, self.path_kwargs["session_id"], self.path_kwargs["path"], length
            )
        except ExecError as error:
            self._refuse(error, 0)

    def expect_body(self) -> None:
        """Take any length; what a file may have is the engine's to say."""
        if self.request.method == "PUT":
            self.limit_body(2**62)
        else:
            super().expect_body()

    def _content_length(self) -> int | None:
        text = self.request.headers.get("Content-Length", "")
        return int(text) if text.isdecimal() and len(text) < 19 else None

    def _refuse(self, error: ExecError, received: int) -> None:
        """Answer at the end of the body, if that is near, or now."""
        length = self._content_length()
        if length is None or length - received > _DRAIN_BYTES:
            self._let_in = False
            raise error
        self._refusal = error

    async def data_received(self, chunk: bytes) -> None:  # type: ignore[override]  # Tornado waits for it
        """Write what came; the sender waits meanwhile."""
        if self.request.method != "PUT":
            super().data_received(chunk)
            return
        self._body_bytes += len(chunk)
        if self._writer is None:
            return
        try:
            await self._writer.write(chunk)
        except ExecError as error:
            await self._discard()
            try:
                self._refuse(error, self._body_bytes)
            except ExecError:
                self.send_error(error.status, exc_info=(type(error), error, None))

    @web.authenticated
    async def put(self, session_id: str, path: str) -> None:
        """Put the uploaded file in its place."""
        del session_id, path  # taken before the body came
        if self._refusal is not None:
            raise self._refusal
        assert self._writer is not None
        writer, self._writer = self._writer, None
        info, created = await writer.commit()
        assert info.sha256 is not None
        self.set_header(DIGEST_HEADER, digest_header(info.sha256))
        self.answer(to_json(info), 201 if created else 200)

    async def _discard(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.discard()

    def on_connection_close(self) -> None:
        """Half a file is no file."""
        super().on_connection_close()
        self._spawn_discard()

    def on_finish(self) -> None:
        """Leave nothing of an upload that failed."""
        super().on_finish()
        self._spawn_discard()

    def _spawn_discard(self) -> None:
        if self._writer is not None:
            self.engine.in_background(self._discard())

    # --- down ---

    @web.authenticated
    async def get(self, session_id: str, path: str) -> None:
        """Send a file."""
        digest = None
        if wants_sha256(self.request.headers.get(WANT_DIGEST_HEADER, "")):
            digest = await self.engine.files.digest(self.caller, session_id, path)
        reader = await self.engine.files.open(self.caller, session_id, path)
        await send_file(self, reader, digest)

    @web.authenticated
    async def delete(self, session_id: str, path: str) -> None:
        """Delete a file."""
        await self.engine.files.delete(self.caller, session_id, path)
        self.set_status(204)
        self.finish()
