"""Sans-I/O operations of an ACA session pool's clients: runs, sessions, metadata and files.

`pool_transport` authenticates and repeats the requests. Files of any size pass through a memory of a few blocks.
"""

from __future__ import annotations

import io
import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...client.api.request_exchange import segment
from ...client.api.steps import (
    CloseStream,
    Failure,
    OpenStream,
    Operation,
    Pause,
    ReadStream,
    Reply,
    Request,
    SendBody,
    Stream,
    Work,
)
from ...client.local_files import BLOCK_BYTES, FileSource, Target, Uploadable
from ...errors import ConnectionLost, NotFound, UnexpectedAnswer
from ...protocol.file_requests import mime_type
from ..protocol.addresses import MAX_RUN_SECONDS, SESSION_API_VERSION, family_of
from ..protocol.file_format import (
    ACAFile,
    content_address,
    file_address,
    file_from_json,
    files_from_json,
    relative_directory,
    upload_address,
)
from ..protocol.run_format import RUN_PATHS, RunRequest, RunResult, run_request_to_json, run_result_from_json
from ..protocol.session_format import ACASessionInfo, session_info_from_json
from .pool_transport import Call, PoolTransport, Retry, parse_reply

MAX_PAGES = 1000
_POLL_SECONDS = 0.5
# How browsers write a file name: only these three characters would end it, and UTF-8 is sent as it is.
_ESCAPES = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})


@dataclass(frozen=True, slots=True)
class PoolOperations:
    """The operations of a pool, as steps for a driver."""

    transport: PoolTransport

    def run(self, identifier: str, request: RunRequest) -> Operation[RunResult]:
        """Run code once, or not at all."""
        transport = self.transport
        body = run_request_to_json(request, transport.api_version)
        url = transport.url(RUN_PATHS[family_of(transport.api_version)], identifier)
        # Without a limit of the request, the service's own applies.
        seconds = (request.timeout_seconds or MAX_RUN_SECONDS) + transport.times.grace_seconds
        ends_at = time.monotonic() + transport.times.max_wait_seconds + seconds
        reply = yield from transport.call(Call("POST", url, seconds, Retry.IF_REFUSED, "the code may have run", body))
        result = run_result_from_json(parse_reply(reply))
        while not result.status.finished:
            if not result.id or time.monotonic() > ends_at:
                raise ConnectionLost("the service had not ended the run in time; the code may still be running")
            yield Pause(_POLL_SECONDS)
            result = run_result_from_json((yield from self._get(f"executions/{segment(result.id)}", identifier)))
        return result

    def delete_session(self, identifier: str) -> Operation[None]:
        """End a session, if it exists."""
        try:
            yield from self._session_transport.request("DELETE", "session", identifier)
        except NotFound:
            return

    def session(self, identifier: str) -> Operation[ACASessionInfo]:
        """Read the times of a session."""
        reply = yield from self._session_transport.request("GET", "session", identifier)
        return session_info_from_json(parse_reply(reply))

    def metadata(self) -> Operation[dict[str, Any]]:
        """Read the pool's description of its sessions."""
        data = parse_reply((yield from self._session_transport.request("GET", "metadata", None)))
        if not isinstance(data, dict):
            raise UnexpectedAnswer("the pool's metadata is not a JSON object")
        return data

    def upload(self, identifier: str, path: str, source: bytes | Uploadable) -> Operation[ACAFile]:
        """Upload a file; repeat it after a failure if the source can be read again."""
        transport = self.transport
        place, query, name = upload_address(path, family_of(transport.api_version))
        file = FileSource(io.BytesIO(source) if isinstance(source, bytes) else source)
        form = FormSource(file, "file", name)

        def send(request: Request) -> Operation[Reply | Failure]:
            yield Work(form.rewind)
            outcome: Reply | Failure = yield SendBody(request, form)
            # The HTTP library has replaced the exception of the source by one of its own.
            if file.error is not None:
                raise file.error
            return outcome

        url = transport.url(place, identifier, query)
        headers = {"Content-Type": form.content_type}
        retry = Retry.ALWAYS if file.can_rewind else Retry.IF_UNSENT
        call = Call("POST", url, transport.times.transfer_seconds, retry, "the file may be there", headers=headers)
        try:
            reply = yield from transport.call(call, send)
        finally:
            file.close()
        return _read_upload_reply(parse_reply(reply), query.get("path", ""))

    def download(self, identifier: str, path: str, target: Target) -> Operation[None]:
        """Download a file to a target, which gets all of it or nothing."""
        transport = self.transport
        place, query = content_address(path, family_of(transport.api_version))
        # A compressed answer would have another length than the header announces.
        headers = {"Accept-Encoding": "identity"}
        call = Call("GET", transport.url(place, identifier, query), transport.times.transfer_seconds, headers=headers)
        try:
            reply = yield from transport.call(call, partial(_fetch, target=target))
            if reply.status != 200:
                raise UnexpectedAnswer(f"the service answered a download with HTTP {reply.status}")
            yield Work(target.commit)
        finally:
            target.discard()  # does nothing after `commit`

    def files(self, identifier: str, directory: str, *, recursive: bool) -> Operation[list[ACAFile]]:
        """List the files of a directory, over all pages."""
        transport = self.transport
        inside = relative_directory(directory)
        query = ({"path": inside} if inside else {}) | ({"recursive": "true"} if recursive else {})
        url = transport.url("files", identifier, query)
        found: list[ACAFile] = []
        # A list whose pages never end must not keep the caller for ever.
        for _ in range(MAX_PAGES):
            reply = yield from transport.call(Call("GET", url, transport.times.request_seconds))
            files, link = files_from_json(parse_reply(reply), inside)
            found += files
            if link is None:
                return found
            url = transport.next_page_url(link, url)
        raise UnexpectedAnswer(f"the service's list of files has more than {MAX_PAGES} pages")

    def delete_file(self, identifier: str, path: str) -> Operation[None]:
        """Delete a file."""
        place, query = file_address(path, family_of(self.transport.api_version))
        yield from self.transport.request("DELETE", place, identifier, query)

    @property
    def _session_transport(self) -> PoolTransport:
        """The transport in the version that has operations on sessions, whatever the runs' version is."""
        return PoolTransport(self.transport.endpoint, SESSION_API_VERSION, self.transport.times)

    def _get(self, path: str, identifier: str) -> Operation[Any]:
        return parse_reply((yield from self.transport.request("GET", path, identifier)))


class FormSource:
    """Streaming body of a form with one file (``multipart/form-data``, RFC 7578).

    Parameters
    ----------
    file : FileSource
        Content of the file.
    field, filename : str
        Names of the form's field and of the file.
    """

    def __init__(self, file: FileSource, field: str, filename: str) -> None:
        boundary = secrets.token_hex(16)  # long enough that no file contains it by chance
        disposition = f'form-data; name="{field.translate(_ESCAPES)}"; filename="{filename.translate(_ESCAPES)}"'
        head = f"--{boundary}\r\nContent-Disposition: {disposition}\r\nContent-Type: {mime_type(filename)}\r\n\r\n"
        self._file = file
        self._head = head.encode()
        self._tail = f"\r\n--{boundary}--\r\n".encode()
        self._pending: list[bytes] = []
        self.content_type = f"multipart/form-data; boundary={boundary}"

    @property
    def size_bytes(self) -> int | None:
        """Length of the body; None if that of the file is not known before its end."""
        size = self._file.size_bytes
        return None if size is None else len(self._head) + size + len(self._tail)

    def rewind(self) -> None:
        """Go to the beginning."""
        self._file.rewind()
        # A stack: while only the tail is left on it, the file is read.
        self._pending = [self._tail, self._head]

    def read(self) -> bytes:
        """Return the next piece."""
        if len(self._pending) == 2:
            return self._pending.pop()
        piece = self._file.read() if self._pending else b""
        return piece if piece or not self._pending else self._pending.pop()

    def sent(self, size: int) -> None:
        """Ignore progress, which the drivers report to every body."""


def _fetch(request: Request, target: Target) -> Operation[Reply | Failure]:
    """Read one answer to its end, into a target."""
    yield Work(target.begin)  # drops the bytes of an earlier attempt
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
        # Pieces are joined, since the asynchronous driver passes each write to a thread.
        if waiting >= BLOCK_BYTES or (waiting and not piece):
            yield Work(partial(target.write, b"".join(pieces)))
            received, waiting = received + waiting, 0
            pieces.clear()
    yield CloseStream(stream)
    # A connection that breaks can look like the end of the answer.
    if length.isdecimal() and received != int(length):
        return Failure(True, f"the answer ended after {received} of {length} bytes")
    return Reply(200, stream.headers, b"")


def _read_upload_reply(data: object, directory: str) -> ACAFile:
    """Read the answer to an upload: one file, which the envelope family puts in a list of one."""
    if isinstance(data, (dict, list)) and (isinstance(data, list) or isinstance(data.get("value"), list)):
        files, _ = files_from_json(data, directory)
        if len(files) != 1:
            raise UnexpectedAnswer(f"the service answered an upload with {len(files)} files")
        return files[0]
    return file_from_json(data, directory)
