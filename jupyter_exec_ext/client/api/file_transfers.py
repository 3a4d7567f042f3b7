"""Operations on files: lists, and transfers of any size in bounded memory, checked by their digest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from ...errors import TransferCorrupted
from ...models import FileChange, FileInfo, RecordList
from ...protocol.file_requests import DIGEST_HEADER, WANT_DIGEST_HEADER, WANT_SHA256, quoted_path, sha256_in
from ...protocol.records_json import file_info_from_json
from ...protocol.view_json import file_change_from_json
from ..local_files import BLOCK_BYTES, FileSource, Progress, Target, write_whole_file
from .answers import list_in, parsed
from .event_stream import API
from .request_exchange import exchange, is_busy, open_stream, segment, transport_error
from .retries import DEFAULT_RETRY, RetryPolicy
from .steps import CloseStream, Failure, Operation, ReadStream, Reply, Request, SendBody, Work

# The server may have to hash a large file before its answer begins, or to write one before its answer ends.
_SILENCE_SECONDS = 600.0


class FileListing(RecordList[FileInfo]):
    """List of files by path; `truncated` is true if there are more than the server lists."""

    truncated = False

    def __init__(self, files: Sequence[FileInfo] = ()) -> None:
        super().__init__(FileInfo, files)


@dataclass(frozen=True, slots=True)
class FilesApi:
    """Operations on a session's files and on an execution's outputs beyond the cap."""

    retry: RetryPolicy = DEFAULT_RETRY

    def list_files(self, session_id: str, path: str, *, sha256: bool) -> Operation[FileListing]:
        """List the files below a directory."""
        query = urlencode({name: value for name, value in (("path", path), ("sha256", "true" * sha256)) if value})
        request = Request(
            "GET",
            f"{API}sessions/{segment(session_id)}/files{'?' + query if query else ''}",
            read_timeout_seconds=_SILENCE_SECONDS,
        )
        body = parsed((yield from exchange(request, self.retry)))
        files = FileListing([file_info_from_json(item) for item in list_in(body, "files")])
        files.truncated = bool(body.get("truncated"))
        return files

    def change(self, session_id: str, path: str, mtime: str) -> Operation[FileChange]:
        """Read the texts of a file before and after it was changed."""
        query = f"?{urlencode({'mtime': mtime})}" if mtime else ""
        url = f"{API}sessions/{segment(session_id)}/changes/{quoted_path(path)}{query}"
        return file_change_from_json(parsed((yield from exchange(Request("GET", url), self.retry))))

    def delete(self, session_id: str, path: str) -> Operation[None]:
        """Delete a file."""
        parsed((yield from exchange(Request("DELETE", _url(session_id, path)), self.retry)))

    def upload(self, session_id: str, path: str, source: FileSource) -> Operation[FileInfo]:
        """Upload a file.

        Raises
        ------
        TransferCorrupted
            If the server's digest differs from that of the bytes read.
        """
        request = Request("PUT", _url(session_id, path), read_timeout_seconds=_SILENCE_SECONDS)
        try:
            # A loop of its own beside `exchange`, since each attempt reads the source from its beginning.
            for attempt in range(self.retry.max_retries + 1):
                last = attempt == self.retry.max_retries
                yield Work(source.rewind)
                outcome: Reply | Failure = yield SendBody(request, source)
                if source.error is not None:
                    raise source.error
                # A pipe cannot be read again, but before the request is sent nothing has been read from it.
                again = not last and (source.can_rewind or (isinstance(outcome, Failure) and not outcome.sent))
                if isinstance(outcome, Reply) and not (again and is_busy(request, outcome)):
                    return _confirmed(file_info_from_json(parsed(outcome)), source.sha256)
                if isinstance(outcome, Failure) and not again:
                    raise transport_error(request, outcome)
                yield self.retry.pause(attempt)
        finally:
            source.close()
        raise AssertionError("the loop returns or raises")

    def download(self, session_id: str, path: str, target: Target, progress: Progress | None) -> Operation[None]:
        """Download a file into `target`; start again if the connection is cut or the file changes meanwhile.

        Raises
        ------
        TransferCorrupted
            If the file changes during every attempt.
        """
        yield from self._download(_url(session_id, path), target, progress)

    def download_output(
        self, execution_id: str, name: str, target: Target, progress: Progress | None
    ) -> Operation[None]:
        """Download an output beyond the cap into `target`.

        Raises
        ------
        TransferCorrupted
            If the digest of the bytes is not the server's.
        """
        url = f"{API}executions/{segment(execution_id)}/outputs/{segment(name)}"
        yield from self._download(url, target, progress)

    def _download(self, url: str, target: Target, progress: Progress | None) -> Operation[None]:
        request = Request(
            "GET",
            url,
            # Uncompressed, so that Content-Length and the digest are those of the bytes that arrive.
            headers={WANT_DIGEST_HEADER: WANT_SHA256, "Accept-Encoding": "identity"},
            read_timeout_seconds=_SILENCE_SECONDS,
        )
        try:
            for attempt in range(self.retry.max_retries + 1):
                yield Work(target.begin)
                problem = yield from self._fetch(request, target, progress)
                if problem is None:
                    yield Work(target.commit)
                    return
                if attempt == self.retry.max_retries:
                    if isinstance(problem, Failure):
                        raise transport_error(request, problem)
                    raise problem
                yield self.retry.pause(attempt)
        finally:
            target.discard()  # no `Work` step: a generator that is being closed may not yield

    def _fetch(
        self, request: Request, target: Target, progress: Progress | None
    ) -> Operation[Failure | TransferCorrupted | None]:
        """Read one answer to its end; return the problem, if there was one."""
        stream = yield from open_stream(request, self.retry)
        if isinstance(stream, Failure):
            return stream
        length = stream.headers.get("content-length", "")
        total = int(length) if length.isdecimal() else None
        received, waiting, pieces = 0, 0, []
        piece: bytes | Failure = b"-"
        while piece:
            piece = yield ReadStream(stream)
            if isinstance(piece, Failure):
                return piece
            pieces.append(piece)
            waiting += len(piece)
            # Pieces have the size of network reads. The asynchronous driver changes threads for each write.
            if waiting >= BLOCK_BYTES or (waiting and not piece):
                yield Work(partial(target.write, b"".join(pieces)))
                received, waiting = received + waiting, 0
                pieces.clear()
                if progress is not None:
                    progress(received, total)
        yield CloseStream(stream)
        if total is not None and received != total:
            return Failure(True, f"the answer ended after {received} of {total} bytes")
        digest = sha256_in(stream.headers.get(DIGEST_HEADER.lower(), ""))
        if digest is not None and digest != target.sha256:
            return TransferCorrupted("the file was changed while it was being downloaded")
        return None


def _url(session_id: str, path: str) -> str:
    return f"{API}sessions/{segment(session_id)}/files/{quoted_path(path)}"


def _confirmed(info: FileInfo, sha256: str) -> FileInfo:
    if info.sha256 is not None and info.sha256 != sha256:
        raise TransferCorrupted("the server wrote something else than was sent")
    return info


def save_locally(path: Path, data: bytes) -> Operation[None]:
    """Write a local file, which appears complete or not at all."""
    yield Work(partial(write_whole_file, path, data))
