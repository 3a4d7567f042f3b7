"""Bounded request bodies: collected up to a limit, and parsed as JSON.

`file_handlers.UploadHandler` has the bodies without a limit here, which are written as they arrive.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from jupyter_server.base.handlers import APIHandler

from ..errors import InvalidJSON, PayloadTooLarge, UnsupportedMediaType
from ..protocol.strict_json import loads_strict

_MAX_DIGITS = 18
# JSON adds escapes and other fields to the code that it carries.
_BODY_FACTOR = 4
_BODY_SPARE_BYTES = 64 * 1024
# A rejected body with no more left than this is read to its end, so that its sender gets the answer instead of a broken
# connection.
DRAIN_BYTES = 64 * 1024 * 1024


class BodyHandler(APIHandler):
    """Collects the body of a request that `stream_request_body` delivers in parts."""

    def _prepare_body(self, max_code_bytes: int) -> None:
        """Start without a body; `max_code_bytes` of an execution determines the limit."""
        self._max_code_bytes = max_code_bytes
        self._chunks: list[bytes] = []
        self._body_bytes = 0
        self._max_body_bytes = 0

    def limit_body(self, max_bytes: int) -> None:
        """Close the connection when the body becomes longer than this."""
        # The host's own limit (`ServerApp.max_body_size`, 512 MiB by default) is the same for all handlers.
        connection = self.request.connection
        if connection is not None and hasattr(connection, "set_max_body_size"):
            connection.set_max_body_size(max_bytes)

    def expect_body(self) -> None:
        """Set the limit of the body, and reject one that is known to exceed it by far."""
        max_bytes = self._max_body_bytes = _BODY_FACTOR * self._max_code_bytes + _BODY_SPARE_BYTES
        length = self.request.headers.get("Content-Length", "").lstrip("0")
        if not length.isdecimal():  # also 0, which has become an empty text
            # A chunked body has no known length; past this limit the connection is closed.
            self.limit_body(max_bytes + _BODY_SPARE_BYTES)
        elif len(length) > _MAX_DIGITS or int(length) > max_bytes + DRAIN_BYTES:
            raise PayloadTooLarge(f"the request body may have at most {max_bytes} bytes, not {length[:_MAX_DIGITS]}")
        else:
            self.limit_body(max_bytes + DRAIN_BYTES)

    def expect_no_body(self) -> None:
        """Reject a body."""
        if self.request.headers.get("Content-Length", "0") != "0":
            raise PayloadTooLarge("such a request has no body")
        self.limit_body(_BODY_SPARE_BYTES)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Collect the body, up to its limit. Tornado waits for what a subclass returns."""
        self._body_bytes += len(chunk)
        if self._body_bytes <= self._max_body_bytes:
            self._chunks.append(chunk)
        else:
            # The rest is read and dropped, and `json_body` then rejects it with the limit.
            self._chunks.clear()
        return None

    def json_body(self, if_none: Any = None, *, of_any_type: bool = False) -> Any:
        """Return the parsed body, or `if_none` if it is empty.

        Parameters
        ----------
        of_any_type : bool
            Whether it may have another type than JSON's, or none.

        Raises
        ------
        PayloadTooLarge, UnsupportedMediaType, InvalidJSON
            If the body is too long, has another type, or cannot be parsed.
        """
        if self._body_bytes > self._max_body_bytes:
            raise PayloadTooLarge(f"the request body may have at most {self._max_body_bytes} bytes")
        if not self._chunks:
            return if_none
        media_type = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if media_type != "application/json" and not of_any_type:
            raise UnsupportedMediaType("send the body as JSON with 'Content-Type: application/json'")
        try:
            return loads_strict(b"".join(self._chunks))
        except ValueError as error:
            raise InvalidJSON(f"the request body is not valid JSON: {error}") from None
