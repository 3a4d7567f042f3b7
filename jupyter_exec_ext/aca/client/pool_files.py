"""The client's logic for files of ACA sessions: lists, and contents of any size through a memory of a few blocks."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import partial

from ...client.api.steps import (
    CloseStream,
    Failure,
    OpenStream,
    Operation,
    ReadStream,
    Reply,
    Request,
    SendBody,
    Stream,
    Work,
)
from ...client.local_files import BLOCK_BYTES, FileSource, Target, Uploadable
from ...errors import UnexpectedAnswer
from ...protocol.file_headers import mime_type
from ..protocol.addresses import family_of
from ..protocol.file_format import (
    ACAFile,
    content_path,
    file_from_json,
    file_path,
    files_from_json,
    relative_directory,
    upload_path,
)
from ..protocol.multipart_writer import content_type, form_head, form_tail, new_boundary
from .pool_transport import ACATransport, Again, Call, parsed

MAX_PAGES = 1000


class FormSource:
    """A form with one file in it, sent piece by piece."""

    def __init__(self, file: FileSource, head: bytes, tail: bytes) -> None:
        self._file = file
        self._head = head
        self._tail = tail
        self._left: list[bytes] = []

    @property
    def size_bytes(self) -> int | None:
        """How long it is; None if the file's end will tell."""
        size = self._file.size_bytes
        return None if size is None else len(self._head) + size + len(self._tail)

    def rewind(self) -> None:
        """Go to the beginning."""
        self._file.rewind()
        self._left = [self._tail, self._head]

    def read(self) -> bytes:
        """Return the next piece."""
        if len(self._left) == 2:
            return self._left.pop()
        piece = self._file.read() if self._left else b""
        return piece if piece or not self._left else self._left.pop()

    def sent(self, size: int) -> None:
        """Have nobody to tell."""


@dataclass(frozen=True, slots=True)
class ACAFilesApi:
    """The operations on a session's files."""

    transport: ACATransport

    def upload(self, identifier: str, path: str, source: bytes | Uploadable) -> Operation[ACAFile]:
        """Upload a file; what was lost on the way is sent again, as far as the source can be read again."""
        transport = self.transport
        place, query, name = upload_path(path, family_of(transport.api_version))
        boundary = new_boundary()
        file = FileSource(io.BytesIO(source) if isinstance(source, bytes) else source)
        form = FormSource(file, form_head("file", name, mime_type(name), boundary), form_tail(boundary))

        def send(request: Request) -> Operation[Reply | Failure]:
            yield Work(form.rewind)
            outcome: Reply | Failure = yield SendBody(request, form)
            if file.error is not None:
                raise file.error
            return outcome

        url = transport.url(place, identifier, query)
        headers = {"Content-Type": content_type(boundary)}
        again = Again.ALWAYS if file.repeatable else Again.UNSENT
        call = Call("POST", url, transport.times.transfer_seconds, again, "the file may be there", headers=headers)
        try:
            reply = yield from transport.call(call, send)
        finally:
            file.close()
        return _uploaded(parsed(reply), query.get("path", ""))

    def download(self, identifier: str, path: str, target: Target) -> Operation[None]:
        """Download a file; it is there as a whole or not at all."""
        transport = self.transport
        place, query = content_path(path, family_of(transport.api_version))
        # What is compressed would have another length than is announced.
        headers = {"Accept-Encoding": "identity"}
        url = transport.url(place, identifier, query)
        call = Call("GET", url, transport.times.transfer_seconds, headers=headers)
        try:
            reply = yield from transport.call(call, partial(_fetch, target=target))
            if reply.status != 200:
                raise UnexpectedAnswer(f"the service answered a download with HTTP {reply.status}")
            yield Work(target.commit)
        finally:
            target.discard()

    def files(self, identifier: str, directory: str, *, recursive: bool) -> Operation[list[ACAFile]]:
        """List the files of a directory."""
        transport = self.transport
        inside = relative_directory(directory)
        query = ({"path": inside} if inside else {}) | ({"recursive": "true"} if recursive else {})
        url = transport.url("files", identifier, query)
        found: list[ACAFile] = []
        for _ in range(MAX_PAGES):
            reply = yield from transport.call(Call("GET", url, transport.times.request_seconds))
            files, link = files_from_json(parsed(reply), inside)
            found += files
            if link is None:
                return found
            url = transport.following(link, url)
        raise UnexpectedAnswer(f"the service's list of files has more than {MAX_PAGES} pages")

    def delete_file(self, identifier: str, path: str) -> Operation[None]:
        """Delete a file."""
        transport = self.transport
        place, query = file_path(path, family_of(transport.api_version))
        yield from transport.call(
            Call("DELETE", transport.url(place, identifier, query), transport.times.request_seconds)
        )


def _fetch(request: Request, target: Target) -> Operation[Reply | Failure]:
    """Read one answer to its end."""
    yield Work(target.begin)
    stream: Stream | Reply | Failure = yield OpenStream(request)
    if not isinstance(stream, Stream):
        return stream
    length = stream.headers.get("content-length", "")
    received, waiting, pieces = 0, 0, []
    piece: bytes | Failure = b"-"
    while piece:
        piece = yield ReadStream(stream)
        if isinstance(piece, Failure):
            yield CloseStream(stream)
            return piece
        pieces.append(piece)
        waiting += len(piece)
        if waiting >= BLOCK_BYTES or (waiting and not piece):
            yield Work(partial(target.write, b"".join(pieces)))
            received, waiting = received + waiting, 0
            pieces.clear()
    yield CloseStream(stream)
    if length.isdecimal() and received != int(length):
        return Failure(True, f"the answer ended after {received} of {length} bytes")
    return Reply(200, stream.headers, b"")


def _uploaded(data: object, directory: str) -> ACAFile:
    """Read the answer to an upload: one file, in a list of one in the envelope family."""
    if isinstance(data, (dict, list)) and (isinstance(data, list) or isinstance(data.get("value"), list)):
        files, _ = files_from_json(data, directory)
        if len(files) != 1:
            raise UnexpectedAnswer(f"the service answered an upload with {len(files)} files")
        return files[0]
    return file_from_json(data, directory)
