"""Streaming upload of one file in a ``multipart/form-data`` body: the parser, and the writer that it feeds.

No part is ever in memory as a whole. A body without the form's ``Content-Type`` is read, too, by the boundary in its
first line: one client keeps the header ``Content-Type: application/json`` of the request before.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from ...engine.ports import FileWriter
from ...errors import ExecError, InvalidRequest, PayloadTooLarge
from ...models import FileInfo
from ..protocol.addresses import MAX_UPLOAD_BYTES

_PART = "file"
_MAX_BOUNDARY_BYTES = 200
_MAX_HEADER_BYTES = 16 * 1024
_MAX_PREAMBLE_BYTES = 1024
_MAX_PARTS = 100
# RFC 2046 allows 70 characters, without a space at the end. Longer ones are read, too.
_BOUNDARY = re.compile(rb"[!-~ ]{0,199}[!-~]")
_PARAMETER = re.compile(r';\s*([A-Za-z0-9_*-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s"]*)')
_ESCAPED = re.compile(r'\\(["\\])')


@dataclass(frozen=True, slots=True)
class PartStart:
    """Start of a part; its content follows as bytes.

    Parameters
    ----------
    filename : str or None
        As it was sent; None for a part that is not a file.
    """

    name: str
    filename: str | None


@dataclass(frozen=True, slots=True)
class PartEnd:
    """End of a part."""


Event = PartStart | bytes | PartEnd


def boundary_of(content_type: str) -> bytes | None:
    """Return the boundary in a header, None if the header is not that of a form.

    Raises
    ------
    InvalidRequest
        If it is that of a form, and has no valid boundary.
    """
    media_type, _, _ = content_type.partition(";")
    if media_type.strip().lower() != "multipart/form-data":
        return None
    return _check_boundary(_parse_parameters(content_type).get("boundary", "").encode("latin-1", "replace"))


class MultipartReader:
    """Incremental parser of a form: bytes in, events out. Pure.

    Parameters
    ----------
    boundary : bytes or None
        From the header; None to read it from the body's first line.
    """

    def __init__(self, boundary: bytes | None) -> None:
        self._delimiter = b"" if boundary is None else b"\r\n--" + boundary
        # With this line end the first boundary looks like all others.
        self._buffer = bytearray(b"\r\n")
        self._parts = 0
        self._in_preamble = True
        self._in_content = True
        self._at_start = False
        self.finished = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """Parse the next bytes, and yield the events that they complete.

        Raises
        ------
        InvalidRequest
            If the body is not a form, or exceeds a limit.
        """
        if self.finished:  # an epilogue has no meaning
            return
        self._buffer += data
        if not self._delimiter and not self._find_boundary():
            return
        while not self.finished:
            events = self._read_content() if self._in_content else self._read_head()
            if events is None:
                return
            yield from events

    def close(self) -> None:
        """Check that the form is complete; raises `InvalidRequest`."""
        if not self.finished:
            raise InvalidRequest("the upload is not complete: the last line of a form with '--' at its end is missing")

    def _find_boundary(self) -> bool:
        end = self._buffer.find(b"\r\n", 2)
        # 6 bytes: a line end and two hyphens before the boundary, and a line end after it.
        if end < 0 and len(self._buffer) <= _MAX_BOUNDARY_BYTES + 6:
            return False
        line = bytes(self._buffer[2 : max(end, 2)])
        if not line.startswith(b"--"):
            raise InvalidRequest("send the file as multipart/form-data, in a part with the name 'file'")
        self._delimiter = b"\r\n--" + _check_boundary(line[2:])
        return True

    # Both steps return the events that they found, or None to wait for more bytes.

    def _read_content(self) -> list[Event] | None:
        """Read to the next delimiter; the preamble is read like the content of a part, and dropped."""
        buffer, length = self._buffer, len(self._delimiter)
        at = buffer.find(self._delimiter)
        if self._in_preamble:
            if at > _MAX_PREAMBLE_BYTES or (at < 0 and len(buffer) > _MAX_PREAMBLE_BYTES + length):
                raise InvalidRequest("the body does not begin with the boundary that its Content-Type names")
            if at < 0:
                return None
            del buffer[: at + length]
            self._in_preamble = self._in_content = False
            return []
        if at != 0 and self._at_start:  # the line end of the headers is not part of the content
            if len(buffer) < length:
                return None
            del buffer[:2]
            at -= 2 if at > 0 else 0
            self._at_start = False
        if at < 0:
            # The bytes after these may be the start of a delimiter that is not complete yet.
            sure = len(buffer) - length + 1
            return [self._pop(sure)] if sure > 0 else None
        content: list[Event] = [self._pop(at)] if at else []
        del buffer[:length]
        self._in_content = False
        return [*content, PartEnd()]

    def _read_head(self) -> list[Event] | None:
        """Read the end of a boundary's line, and the headers below it."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        if buffer.startswith(b"--"):
            self.finished = True
            buffer.clear()
            return []
        if not buffer.startswith(b"\r\n"):
            raise InvalidRequest("a line of the form has more than the boundary")
        end = buffer.find(b"\r\n\r\n")  # its first line end may be that of the boundary, if there are no headers
        if end > _MAX_HEADER_BYTES or (end < 0 and len(buffer) > _MAX_HEADER_BYTES):
            raise InvalidRequest(f"the headers of a part may have at most {_MAX_HEADER_BYTES} bytes")
        if end < 0:
            return None
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise InvalidRequest(f"a form may have at most {_MAX_PARTS} parts")
        start = _parse_part(bytes(buffer[2:end]))
        del buffer[: end + 2]  # one line end stays: it is the start of the delimiter if the part is empty
        self._in_content = self._at_start = True
        return [start]

    def _pop(self, count: int) -> bytes:
        popped = bytes(self._buffer[:count])
        del self._buffer[:count]
        return popped


def _check_boundary(boundary: bytes) -> bytes:
    if _BOUNDARY.fullmatch(boundary) is None:
        raise InvalidRequest("the form's boundary must be 1 to 200 visible ASCII characters")
    return boundary


def _parse_part(headers: bytes) -> PartStart:
    try:
        lines = headers.decode().split("\r\n")
    except UnicodeDecodeError:
        raise InvalidRequest("the headers of a part must be valid UTF-8") from None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            fields = _parse_parameters(value)
            # As in RFC 6266, the extended form of a name has precedence.
            return PartStart(
                fields.get("name", ""), _decode_extended(fields.get("filename*")) or fields.get("filename")
            )
    raise InvalidRequest("a part of the form has no Content-Disposition")


def _parse_parameters(header: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in _PARAMETER.findall(header):
        if name.lower() in found:
            # Programs differ in which of the two values they take.
            raise InvalidRequest(f"a header of the form has {name!r} twice")
        found[name.lower()] = _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
    return found


def _decode_extended(value: str | None) -> str | None:
    """Decode a file name in the form of RFC 5987."""
    if value is None:
        return None
    charset, _, rest = value.partition("'")
    _, quote, text = rest.partition("'")
    try:
        if charset.lower() == "utf-8" and quote:
            return unquote(text, errors="strict")
    except UnicodeDecodeError:
        pass
    raise InvalidRequest("'filename*' must be in UTF-8")


class FormUpload:
    """Writer of the file in a form, whose name comes with it.

    Parameters
    ----------
    create : coroutine function
        Opens the writer of the file with the name that the form gives it.
    """

    def __init__(self, content_type: str, create: Callable[[str], Awaitable[FileWriter]]) -> None:
        self._reader = MultipartReader(boundary_of(content_type))
        self._create = create
        self._writer: FileWriter | None = None
        self._in_file = False
        self._bytes = 0

    async def write(self, data: bytes) -> None:
        """Write the file's part of the next bytes of the form.

        Raises
        ------
        InvalidRequest, PayloadTooLarge
            And what `create` and the writer raise.
        """
        for event in self._reader.feed(data):
            if isinstance(event, PartStart):
                await self._open(event)
            elif isinstance(event, PartEnd):
                self._in_file = False
            elif self._in_file and self._writer is not None:
                self._bytes += len(event)
                # A chunked body announces no length, so the bytes are counted.
                if self._bytes > MAX_UPLOAD_BYTES:
                    raise PayloadTooLarge(f"a file may have at most {MAX_UPLOAD_BYTES} bytes")
                await self._writer.write(event)

    async def _open(self, part: PartStart) -> None:
        if part.name != _PART:
            return
        if self._writer is not None:
            raise InvalidRequest("send one file at a time")
        if not part.filename:
            raise InvalidRequest(f"the part {_PART!r} must have a file name")
        self._writer = await self._create(part.filename)
        self._in_file = True

    async def commit(self) -> FileInfo:
        """Put the complete file in its place."""
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
        """Remove an incomplete file."""
        if self._writer is not None:
            await self._writer.discard()
