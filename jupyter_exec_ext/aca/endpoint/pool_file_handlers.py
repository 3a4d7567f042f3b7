"""Files in the ACA sessions' protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tornado import web

from ...engine.ports import FileWriter
from ...errors import ExecError, FileNotFound, InvalidRequest, PayloadTooLarge, SessionNotFound
from ...models import FileInfo
from ...server.file_download import send_file
from ...server.upload_handlers import UploadHandler
from ..protocol.addresses import MAX_UPLOAD_BYTES, Family
from ..protocol.file_format import (
    file_of,
    file_to_json,
    files_in,
    files_to_json,
    joined,
    relative_directory,
    uploaded_path,
)
from ..protocol.multipart_reader import MultipartReader, PartEnd, PartStart, boundary_of
from ..protocol.query import family_asked, flag_of, identifier_of
from .aca_handler import ACAHandler

_FORM_SPARE_BYTES = 1024 * 1024  # what a form may have beside the file
_PART = "file"


class FormUpload:
    """Writes the file of a form, whose name comes with it.

    Parameters
    ----------
    create : coroutine function
        Begins to write the file with the name that the form gives it.
    """

    def __init__(self, content_type: str, create: Callable[[str], Awaitable[FileWriter]]) -> None:
        self._reader = MultipartReader(boundary_of(content_type))
        self._create = create
        self._writer: FileWriter | None = None
        self._inside = False
        self._bytes = 0

    async def write(self, data: bytes) -> None:
        """Take in the next bytes of the form.

        Raises
        ------
        InvalidRequest, PayloadTooLarge
            And what `create` and the writer raise.
        """
        for event in self._reader.feed(data):
            if isinstance(event, PartStart):
                await self._begin(event)
            elif isinstance(event, PartEnd):
                self._inside = False
            elif self._inside and self._writer is not None:
                self._bytes += len(event)
                if self._bytes > MAX_UPLOAD_BYTES:
                    raise PayloadTooLarge(f"a file may have at most {MAX_UPLOAD_BYTES} bytes")
                await self._writer.write(event)

    async def _begin(self, part: PartStart) -> None:
        if part.name != _PART:
            return
        if self._writer is not None:
            raise InvalidRequest("send one file at a time")
        if not part.filename:
            raise InvalidRequest(f"the part {_PART!r} must have a file name")
        self._writer = await self._create(part.filename)
        self._inside = True

    async def commit(self) -> FileInfo:
        """Put the file in its place."""
        try:
            self._reader.close()
            if self._writer is None:
                raise InvalidRequest(f"the form has no part with the name {_PART!r}")
        except ExecError:
            await self.discard()
            raise
        info, _ = await self._writer.commit()
        return info

    async def discard(self) -> None:
        """Leave no trace of a file that is not complete."""
        if self._writer is not None:
            await self._writer.discard()


class ACAUploadHandler(ACAHandler, UploadHandler[FormUpload]):
    """``POST /files/upload``, and what `ACAFilesHandler` adds to."""

    upload_method = "POST"
    max_upload_bytes = MAX_UPLOAD_BYTES + _FORM_SPARE_BYTES
    family = Family.ENVELOPE
    _session_id = ""

    def expect_body(self) -> None:
        """Refuse a form that is known to be too long."""
        super().expect_body()
        if self.takes_upload and (self.content_length() or 0) > self.max_upload_bytes:
            raise PayloadTooLarge(f"a file may have at most {MAX_UPLOAD_BYTES} bytes")

    async def begin_upload(self) -> FormUpload:
        """Be ready for the form; the file's name comes with it."""
        identifier_of(self.fields)
        return FormUpload(self.request.headers.get("Content-Type", ""), self._create)

    async def _create(self, file_name: str) -> FileWriter:
        path = uploaded_path(file_name, self.fields.get("path", ""))
        return await self.in_session(lambda sid: self._create_in(sid, path))

    async def _create_in(self, session_id: str, path: str) -> FileWriter:
        self._session_id = session_id
        return await self.engine.files.create(self.caller, session_id, path, None)

    @web.authenticated
    async def post(self) -> None:
        """Put the uploaded file in its place."""
        file = file_of(await self.take_upload().commit())
        session = await self.engine.named.find(self.caller, self.name)
        if session is None or session.id != self._session_id:
            raise SessionNotFound("the session ended while the file came, and the file with it; send it again")
        flat = self.family is Family.FLAT
        self.answer(file_to_json(file, Family.FLAT) if flat else files_to_json([file], Family.ENVELOPE))


class ACAFilesHandler(ACAUploadHandler):
    """``/files``"""

    family = Family.FLAT

    @web.authenticated
    async def get(self) -> None:
        """List the session's files; without a session there are none."""
        family = family_asked(self.fields)
        directory = relative_directory(self.fields.get("path", ""))
        recursive = flag_of(self.fields, "recursive") or family is Family.ENVELOPE
        session = await self.engine.named.find(self.caller, self.name)
        found: list[FileInfo] = []
        if session is not None:
            listed = await self.engine.files.list(self.caller, session.id, directory, wanted=lambda: False)
            found = list(listed.files)
        told = [file_of(info) for info in found] if recursive else files_in(found, directory)
        self.answer(files_to_json(told, family))


class ACAFileHandler(ACAHandler):
    """``/files/{path}``"""

    async def path_of(self, name: str) -> tuple[str, str]:
        """Return the session's id and the path of the file there that a request names.

        Raises
        ------
        FileNotFound
            Also where there is no session.
        """
        path = joined(self.fields.get("path", ""), name)
        session = await self.engine.named.find(self.caller, self.name)
        if session is None:
            raise FileNotFound(f"no file {path!r}")
        return session.id, path

    @web.authenticated
    async def get(self, path: str) -> None:
        """Read what is known of a file."""
        family = family_asked(self.fields)
        session_id, path = await self.path_of(path)
        directory = path.rpartition("/")[0]
        listed = await self.engine.files.list(self.caller, session_id, directory, wanted=lambda: False)
        for file in files_in(listed.files, directory):
            if file.path == path:
                self.answer(file_to_json(file, family))
                return
        raise FileNotFound(f"no file {path!r}")

    @web.authenticated
    async def delete(self, path: str) -> None:
        """Delete a file."""
        await self.engine.files.delete(self.caller, *await self.path_of(path))
        self.set_status(204)
        self.finish()


class ACAContentHandler(ACAFileHandler):
    """``/files/content/{path}`` and ``/files/{path}/content``"""

    @web.authenticated
    async def get(self, path: str) -> None:
        """Send a file."""
        await send_file(self, await self.engine.files.open(self.caller, *await self.path_of(path)), None)
