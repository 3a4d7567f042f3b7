"""The parts of a ``multipart/form-data`` body, read as it comes: no part is ever in memory as a whole. Pure.

A body that is not marked as such is read, too, by the boundary in its first line: one client keeps the header
``Content-Type: application/json`` of the request before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from ...errors import InvalidRequest

_MAX_BOUNDARY_BYTES = 200
_MAX_HEADER_BYTES = 16 * 1024
_MAX_PREAMBLE_BYTES = 1024
_MAX_PARTS = 100
_BOUNDARY = re.compile(rb"[!-~ ]{0,199}[!-~]")
_PARAMETER = re.compile(r';\s*([A-Za-z0-9_*-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s"]*)')
_ESCAPED = re.compile(r'\\(["\\])')


@dataclass(frozen=True, slots=True)
class PartStart:
    """A part begins; its content follows as bytes.

    Parameters
    ----------
    filename : str or None
        As it was sent; None for a part that is no file.
    """

    name: str
    filename: str | None


@dataclass(frozen=True, slots=True)
class PartEnd:
    """The part is complete."""


Event = PartStart | bytes | PartEnd


def boundary_of(content_type: str) -> bytes | None:
    """Return the boundary that a header names; None if it is not one of a form.

    Raises
    ------
    InvalidRequest
        If it is, and names none.
    """
    media_type, _, _ = content_type.partition(";")
    if media_type.strip().lower() != "multipart/form-data":
        return None
    return _checked(_parameters(content_type).get("boundary", "").encode("latin-1", "replace"))


class MultipartReader:
    """Takes in the bytes of a body and tells of its parts.

    Parameters
    ----------
    boundary : bytes or None
        As the header has it; None to take it from the body's first line.
    """

    def __init__(self, boundary: bytes | None) -> None:
        self._delimiter = b"" if boundary is None else b"\r\n--" + boundary
        # As if a line had ended there: then the first boundary is like all others.
        self._buffer = bytearray(b"\r\n")
        self._read = self._find_boundary if boundary is None else self._skip_preamble
        self._parts = 0
        self.finished = False

    def feed(self, data: bytes) -> Iterator[Event]:
        """Take in the next bytes, and yield what they complete.

        Raises
        ------
        InvalidRequest
            If it is no such body.
        """
        if self.finished:  # what may follow means nothing
            return
        self._buffer += data
        step: Iterator[Event] | None
        while not self.finished and (step := self._read()) is not None:
            yield from step

    def close(self) -> None:
        """Say that nothing more will come; raises `InvalidRequest` if something is missing."""
        if not self.finished:
            raise InvalidRequest("the upload is not complete: the last line of a form with '--' at its end is missing")

    # Each step takes what it needs from the buffer and returns the events in it, or None to wait for more.

    def _find_boundary(self) -> Iterator[Event] | None:
        end = self._buffer.find(b"\r\n", 2)
        if end < 0 and len(self._buffer) <= _MAX_BOUNDARY_BYTES + 6:
            return None
        line = bytes(self._buffer[2 : max(end, 2)])
        if not line.startswith(b"--"):
            raise InvalidRequest("send the file as multipart/form-data, in a part with the name 'file'")
        self._delimiter = b"\r\n--" + _checked(line[2:])
        self._read = self._skip_preamble
        return iter(())

    def _skip_preamble(self) -> Iterator[Event] | None:
        at = self._buffer.find(self._delimiter)
        if at < 0 or at > _MAX_PREAMBLE_BYTES:
            if len(self._buffer) > _MAX_PREAMBLE_BYTES + len(self._delimiter):
                raise InvalidRequest("the body does not begin with the boundary that its Content-Type names")
            return None
        del self._buffer[: at + len(self._delimiter)]
        self._read = self._end_boundary
        return iter(())

    def _end_boundary(self) -> Iterator[Event] | None:
        if len(self._buffer) < 2:
            return None
        if self._buffer.startswith(b"--"):
            self.finished = True
            self._buffer.clear()
            return iter(())
        if not self._buffer.startswith(b"\r\n"):
            raise InvalidRequest("a line of the form has more than the boundary")
        # The line end stays: it is the first half of the empty line after headers, if there are none.
        self._read = self._read_headers
        return iter(())

    def _read_headers(self) -> Iterator[Event] | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end > _MAX_HEADER_BYTES or (end < 0 and len(self._buffer) > _MAX_HEADER_BYTES):
            raise InvalidRequest(f"the headers of a part may have at most {_MAX_HEADER_BYTES} bytes")
        if end < 0:
            return None
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise InvalidRequest(f"a form may have at most {_MAX_PARTS} parts")
        start = _part_of(bytes(self._buffer[2:end]))
        del self._buffer[: end + 2]  # a line end stays, as before the first boundary: a part may be empty
        self._read = self._begin_content
        return iter((start,))

    def _begin_content(self) -> Iterator[Event] | None:
        if len(self._buffer) < len(self._delimiter):
            return None
        if self._buffer.startswith(self._delimiter):
            return self._end_part(0)
        del self._buffer[:2]
        self._read = self._read_content
        return iter(())

    def _read_content(self) -> Iterator[Event] | None:
        at = self._buffer.find(self._delimiter)
        if at >= 0:
            return self._end_part(at)
        sure = len(self._buffer) - len(self._delimiter) + 1
        return iter((self._take(sure),)) if sure > 0 else None

    def _end_part(self, at: int) -> Iterator[Event]:
        content = [self._take(at)] if at else []
        del self._buffer[: len(self._delimiter)]
        self._read = self._end_boundary
        return iter((*content, PartEnd()))

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


def _checked(boundary: bytes) -> bytes:
    if _BOUNDARY.fullmatch(boundary) is None:
        raise InvalidRequest("the form's boundary must be 1 to 200 visible ASCII characters")
    return boundary


def _part_of(headers: bytes) -> PartStart:
    try:
        lines = headers.decode().split("\r\n")
    except UnicodeDecodeError:
        raise InvalidRequest("the headers of a part must be valid UTF-8") from None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            fields = _parameters(value)
            return PartStart(fields.get("name", ""), _extended(fields.get("filename*")) or fields.get("filename"))
    raise InvalidRequest("a part of the form has no Content-Disposition")


def _parameters(header: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in _PARAMETER.findall(header):
        if name.lower() in found:
            raise InvalidRequest(f"a header of the form has {name!r} twice")
        found[name.lower()] = _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
    return found


def _extended(value: str | None) -> str | None:
    """Return a file name that is written as RFC 5987 has it."""
    if value is None:
        return None
    charset, _, rest = value.partition("'")
    _, quote, text = rest.partition("'")
    if charset.lower() != "utf-8" or not quote:
        raise InvalidRequest("'filename*' must be in UTF-8")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequest("'filename*' must be in UTF-8") from None
