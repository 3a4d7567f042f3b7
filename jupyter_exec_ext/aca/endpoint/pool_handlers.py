"""Handlers for the pool itself, its sessions and their files in the ACA sessions' protocol."""

from __future__ import annotations

from typing import Any

from tornado import web

from ...engine.ports import FileWriter
from ...errors import FileNotFound, PayloadTooLarge, SessionNotFound
from ...models import FileInfo
from ...server.file_handlers import UploadHandler, send_file
from ...server.info_handlers import OpenAPIHandler
from ..protocol.addresses import MAX_UPLOAD_BYTES, Family, api_version_of, family_asked, flag_of, identifier_of, skip_of
from ..protocol.file_format import (
    file_of,
    file_to_json,
    files_in,
    files_to_json,
    join_path,
    path_of_form_name,
    relative_directory,
)
from ..protocol.session_format import metadata_to_json, page_of, session_to_json
from .aca_handler import ACAHandler
from .form_upload import FormUpload


class ACASessionHandler(ACAHandler):
    """``/session``"""

    @web.authenticated
    async def get(self) -> None:
        """Read the session."""
        self.answer(session_to_json(self.identifier, await self.session(), self.now, self.max_seconds))

    @web.authenticated
    async def delete(self) -> None:
        """Shut the session down; its files go with it."""
        await self.engine.delete_session(self.caller, (await self.session()).id)
        self.set_status(204)
        self.finish()


class ACASessionsHandler(ACAHandler):
    """``/listSessions``"""

    operation = "listSessions"

    @web.authenticated
    async def get(self) -> None:
        """List the caller's sessions in the pool."""
        sessions, following = self.page("expireAt")
        self.answer({"sessions": sessions, "nextLink": following})

    def page(self, expiry: str) -> tuple[Any, str | None]:
        """Return the sessions of one page, and the address of the next page."""
        described = [
            session_to_json(name[1], session, self.now, self.max_seconds, expiry=expiry)
            for name, session in self.engine.named.list(self.caller).items()
            if name[0] == self.pool
        ]
        sessions, skip = page_of(described, skip_of(self.fields))
        if skip is None:
            return sessions, None
        return sessions, self.url_of(self.operation, {"api-version": api_version_of(self.fields), "skip": str(skip)})


class ACAMetadataHandler(ACAHandler):
    """``/metadata``"""

    @web.authenticated
    async def get(self) -> None:
        """Describe the kernels of the pool's sessions."""
        kernels = await self.engine.kernelspecs(self.caller)
        self.answer(metadata_to_json(self.engine.host.default_kernel_name, kernels))


class ACAManagedSessionHandler(ACAHandler):
    """``/.management/getSession``"""

    @web.authenticated
    async def post(self) -> None:
        """Read the session."""
        session = await self.session()
        self.answer(session_to_json(self.identifier, session, self.now, self.max_seconds, expiry="expiresAt"))


class ACAManagedSessionsHandler(ACASessionsHandler):
    """``/.management/listSessions``"""

    operation = ".management/listSessions"

    @web.authenticated
    async def post(self) -> None:
        """List the caller's sessions in the pool."""
        sessions, following = self.page("expiresAt")
        self.answer({"value": sessions, "count": len(sessions), "nextLink": following})


class ACAStopHandler(ACAHandler):
    """``/.management/stopSession``"""

    @web.authenticated
    async def post(self) -> None:
        """Shut the session down."""
        await self.engine.delete_session(self.caller, (await self.session()).id)
        self.finish(f"Session {self.identifier} has been stopped.", set_content_type="text/plain; charset=utf-8")


class ACAOpenAPIHandler(ACAHandler, OpenAPIHandler):
    """``/openapi.yaml``"""

    package, document = "jupyter_exec_ext.aca.endpoint", "openapi_aca.yaml"


_FORM_SPARE_BYTES = 1024 * 1024  # size of a form without its file


class ACAUploadHandler(ACAHandler, UploadHandler[FormUpload]):
    """``POST /files/upload``, and the base of ``/files``."""

    upload_method = "POST"
    max_upload_bytes = MAX_UPLOAD_BYTES + _FORM_SPARE_BYTES
    family = Family.ENVELOPE
    _session_id = ""

    def expect_body(self) -> None:
        """Refuse a form whose announced length is over the limit."""
        super().expect_body()
        if self.takes_upload and (self.content_length() or 0) > self.max_upload_bytes:
            raise PayloadTooLarge(f"a file may have at most {MAX_UPLOAD_BYTES} bytes")

    async def begin_upload(self) -> FormUpload:
        """Return the writer for the form, which contains the file's name."""
        identifier_of(self.fields)  # raises an error before the body is read
        return FormUpload(self.request.headers.get("Content-Type", ""), self._create)

    async def _create(self, file_name: str) -> FileWriter:
        path = path_of_form_name(file_name, self.fields.get("path", ""))
        return await self.in_session(lambda sid: self._create_in(sid, path))

    async def _create_in(self, session_id: str, path: str) -> FileWriter:
        self._session_id = session_id
        return await self.engine.files.create(self.caller, session_id, path, None)

    @web.authenticated
    async def post(self) -> None:
        """Put the uploaded file in its place, and describe it."""
        file = file_of(await self.take_upload().commit())
        session = await self.engine.named.find(self.caller, self.name)
        # A new session with the same identifier does not have the file.
        if session is None or session.id != self._session_id:
            raise SessionNotFound("the session ended while the file came, and the file with it; send it again")
        flat = self.family is Family.FLAT
        self.answer(file_to_json(file, Family.FLAT) if flat else files_to_json([file], Family.ENVELOPE))


class ACAFilesHandler(ACAUploadHandler):
    """``/files``"""

    family = Family.FLAT

    @web.authenticated
    async def get(self) -> None:
        """List the session's files; an unknown session has none."""
        family = family_asked(self.fields)
        directory = relative_directory(self.fields.get("path", ""))
        # The envelope family has no directories: the names of its files are whole paths.
        recursive = flag_of(self.fields, "recursive") or family is Family.ENVELOPE
        session = await self.engine.named.find(self.caller, self.name)
        found: list[FileInfo] = []
        if session is not None:
            # `is_wanted` matters only to lists with digests.
            listed = await self.engine.files.list(self.caller, session.id, directory, is_wanted=lambda: False)
            found = list(listed.files)
        files = [file_of(info) for info in found] if recursive else files_in(found, directory)
        self.answer(files_to_json(files, family))


class ACAFileHandler(ACAHandler):
    """``/files/{path}``"""

    async def path_of(self, name: str) -> tuple[str, str]:
        """Return the session's id, and the path of the requested file; raises `FileNotFound` without a session."""
        path = join_path(self.fields.get("path", ""), name)
        session = await self.engine.named.find(self.caller, self.name)
        if session is None:
            raise FileNotFound(f"no file {path!r}")
        return session.id, path

    @web.authenticated
    async def get(self, path: str) -> None:
        """Describe a file."""
        family = family_asked(self.fields)
        session_id, path = await self.path_of(path)
        # The engine describes files only in lists.
        directory = path.rpartition("/")[0]
        listed = await self.engine.files.list(self.caller, session_id, directory, is_wanted=lambda: False)
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
