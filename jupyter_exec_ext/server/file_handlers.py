"""Handlers of session files and spooled outputs: uploads and downloads, streamed so that no whole file is in memory."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from tornado import web

from ..engine.ports import FileReader, FileWriter
from ..errors import ExecError
from ..protocol.file_requests import DIGEST_HEADER, WANT_DIGEST_HEADER, content_disposition, digest_header, wants_sha256
from ..protocol.records_json import to_json
from ..protocol.view_json import view_to_json
from .base_handler import ExecHandler
from .request_body import DRAIN_BYTES


class Upload(Protocol):
    """Port to the receiver of an uploaded body."""

    async def write(self, data: bytes) -> None:
        """Write the next bytes; raises `ExecError`."""

    async def discard(self) -> None:
        """Remove an incomplete upload."""


U = TypeVar("U", bound=Upload)


class UploadHandler(ExecHandler, Generic[U]):
    """Base of handlers with an upload: a body of any length, written as it arrives."""

    upload_method = "PUT"
    max_upload_bytes = 2**62  # the engine limits files
    _upload: U | None = None
    _refusal: ExecError | None = None

    async def begin_upload(self) -> U:
        """Return the receiver of the body; raises `ExecError` to reject it."""
        raise NotImplementedError

    @property
    def takes_upload(self) -> bool:
        """True if the request is an upload."""
        return self.request.method == self.upload_method

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        """Decode a path that is not UTF-8 too, so that it is rejected after authentication."""
        return value.decode("utf-8", "surrogateescape")

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Authorise the request, and begin an upload before its body arrives."""
        await super().prepare()
        if not self.takes_upload:
            return
        try:
            self._upload = await self.begin_upload()
        except ExecError as error:
            self._refuse(error, 0)

    def expect_body(self) -> None:
        """Set the limit of the body."""
        if self.takes_upload:
            self.limit_body(self.max_upload_bytes)
        else:
            super().expect_body()

    def content_length(self) -> int | None:
        """Return the length of the body; None if it is not known."""
        text = self.request.headers.get("Content-Length", "")
        return int(text) if text.isdecimal() and len(text) < 19 else None

    def _refuse(self, error: ExecError, received: int) -> None:
        """Reject the upload at the end of its body, if little is left, or at once."""
        length = self.content_length()
        if length is None or length - received > DRAIN_BYTES:
            self._is_admitted = False  # `write_error` then closes the connection, with the body unread
            raise error
        self._refusal = error

    async def data_received(self, chunk: bytes) -> None:
        """Write a part of the body; the client waits meanwhile."""
        if not self.takes_upload:
            super().data_received(chunk)
            return
        self._body_bytes += len(chunk)
        if self._upload is None:  # rejected: the rest of a short body is dropped
            return
        try:
            await self._upload.write(chunk)
        except ExecError as error:
            await self._discard()
            try:
                self._refuse(error, self._body_bytes)
            except ExecError:
                # Tornado would close the connection without an answer if this method raised.
                self.send_error(error.status, exc_info=(type(error), error, None))

    def take_upload(self) -> U:
        """Return the receiver of the whole body; raises the error that rejected it."""
        if self._refusal is not None:
            raise self._refusal
        assert self._upload is not None
        upload, self._upload = self._upload, None  # `on_finish` must not discard it
        return upload

    async def _discard(self) -> None:
        upload, self._upload = self._upload, None
        if upload is not None:
            await upload.discard()

    def on_connection_close(self) -> None:
        """Remove an incomplete upload."""
        super().on_connection_close()
        self._spawn_discard()

    def on_finish(self) -> None:
        """Remove a failed upload."""
        super().on_finish()
        self._spawn_discard()

    def _spawn_discard(self) -> None:
        if self._upload is not None:
            self.engine.background.start(self._discard())


async def send_file(handler: ExecHandler, reader: FileReader, sha256: str | None) -> None:
    """Send a file as an attachment, with its digest if it is known, and close it.

    A browser never shows a file that code wrote on this origin: it has no particular type, a sandbox, and no sniffing.
    """
    try:
        handler.set_header("Content-Type", "application/octet-stream")
        handler.set_header("Content-Length", str(reader.info.size_bytes))
        handler.set_header("Content-Disposition", content_disposition(reader.info.path))
        handler.set_header("Content-Security-Policy", "sandbox")
        handler.set_header("X-Content-Type-Options", "nosniff")
        if sha256 is not None:
            handler.set_header(DIGEST_HEADER, digest_header(sha256))
        with handler.log_closed_stream("a file"):
            # Sends the headers. `APIHandler.finish` sets JSON as the type, which is then too late.
            await handler.flush()
            async for block in reader.blocks():
                handler.write(block)
                await handler.flush()
            handler.finish()
    finally:
        await reader.close()


class SessionFilesHandler(ExecHandler):
    """``/sessions/{sid}/files``"""

    @web.authenticated
    async def get(self, session_id: str) -> None:
        """List the session's files; with ``?sha256=true``, hash them all."""
        path = self.get_query_argument("path", "", strip=False)
        sha256 = self.flag_argument("sha256")
        found = await self.engine.files.list(self.caller, session_id, path, sha256=sha256, is_wanted=self.is_wanted)
        self.answer({"files": [to_json(info) for info in found.files], "truncated": found.truncated})


class SessionFileHandler(UploadHandler[FileWriter]):
    """``/sessions/{sid}/files/{path}``"""

    async def begin_upload(self) -> FileWriter:
        """Open the file for writing."""
        session_id, path = self.path_kwargs["session_id"], self.path_kwargs["path"]
        return await self.engine.files.create(self.caller, session_id, path, self.content_length())

    @web.authenticated
    async def put(self, session_id: str, path: str) -> None:
        """Put the uploaded file in its place."""
        del session_id, path  # `begin_upload` has used them
        info, created = await self.take_upload().commit()
        assert info.sha256 is not None
        self.set_header(DIGEST_HEADER, digest_header(info.sha256))
        self.answer(to_json(info), 201 if created else 200)

    @web.authenticated
    async def get(self, session_id: str, path: str) -> None:
        """Send a file."""
        digest = None
        if wants_sha256(self.request.headers.get(WANT_DIGEST_HEADER, "")):
            digest = await self.engine.files.digest(self.caller, session_id, path, is_wanted=self.is_wanted)
        reader = await self.engine.files.open(self.caller, session_id, path)
        await send_file(self, reader, digest)

    @web.authenticated
    async def delete(self, session_id: str, path: str) -> None:
        """Delete a file."""
        await self.engine.files.delete(self.caller, session_id, path)
        self.answer_empty()


class SessionChangeHandler(ExecHandler):
    """``/sessions/{sid}/changes/{path}``"""

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        """Decode a path that is not UTF-8 too, so that it is rejected after authentication."""
        return value.decode("utf-8", "surrogateescape")

    @web.authenticated
    async def get(self, session_id: str, path: str) -> None:
        """Read the text of a file before and after a run changed it."""
        mtime = self.get_query_argument("mtime", "")
        self.answer(view_to_json(await self.engine.files.change(self.caller, session_id, path, mtime)))


class ExecutionOutputHandler(ExecHandler):
    """``/executions/{eid}/outputs/{name}``"""

    @web.authenticated
    async def get(self, execution_id: str, name: str) -> None:
        """Send an output that the execution's `truncated` names."""
        reader = await self.engine.outputs.open(self.caller, execution_id, name)
        await send_file(self, reader, reader.info.sha256)
