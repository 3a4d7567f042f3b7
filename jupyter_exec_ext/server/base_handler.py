"""What all handlers share: who calls, how bodies come in, how answers and errors go out.

Authentication happens in `prepare`, which runs before the body is read: a request that may not come in costs no more
than its headers. Whatever goes wrong becomes an answer in one place, `write_error`.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import responses
from types import TracebackType
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado.httputil import HTTPServerRequest
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, stream_request_body

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..errors import (
    ExecError,
    Forbidden,
    InternalError,
    InvalidJSON,
    InvalidRequest,
    MethodNotAllowed,
    MissingScope,
    NotFound,
    OwnerOnly,
    PayloadTooLarge,
    PolicyLimitReached,
    TooManyAttempts,
    UnsupportedMediaType,
)
from ..protocol.large_json import collect, encode_in_pieces, is_large
from ..protocol.strict_json import dump_bytes, loads_strict
from ..system.exhaustion import exhausted, out_of_resources
from .gate import Gate, authorize
from .log_text import one_line

# How long what is under way in the name of a token that has ended may take to say so.
_LAST_WORDS_SECONDS = 0.3
_DENIED = (401, 403)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# What Jupyter Server's log shows of a request that was refused or failed.
_LOGGED_HEADERS = ("Host", "Accept", "Referer", "User-Agent")
_MAX_DIGITS = 18
_PIECE_BYTES = 512 * 1024
# What JSON may add to the code it carries: escapes, other fields.
_BODY_FACTOR = 4
_BODY_SPARE_BYTES = 64 * 1024
# A body that is refused is read to its end if no more than this is left of it, so that its sender gets the answer and
# not a broken connection.
DRAIN_BYTES = 64 * 1024 * 1024
# What languages write for true and false when they make a query from it.
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_BY_STATUS: dict[int, type[ExecError]] = {
    400: InvalidRequest,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    413: PayloadTooLarge,
}


@dataclass(frozen=True, slots=True)
class Services:
    """What handlers work with: the engine, the host's gate, and the host's name and version."""

    engine: ExecEngine
    gate: Gate
    host: str
    host_version: str


@dataclass(frozen=True, slots=True)
class Access:
    """What a caller needs for one method of one route.

    Parameters
    ----------
    scope : str or None
        The scope; None if any caller may.
    action, resource : str
        What the deployment's authorizer is asked.
    owner_only : bool
        No scoped token will do.
    or_scope : str or None
        Another scope that will do as well here; the engine decides which of the two the request itself needs.
    and_scope : str or None
        Another scope that is needed, too.
    """

    scope: str | None
    action: str
    resource: str = "kernels"
    owner_only: bool = False
    or_scope: str | None = None
    and_scope: str | None = None

    @property
    def scopes(self) -> str:
        """What a caller needs, in words; nothing if any caller may."""
        if self.and_scope is not None:
            return f"{self.scope} and {self.and_scope}"
        return " or ".join(scope for scope in (self.scope, self.or_scope) if scope is not None)

    def suffices(self, scopes: Collection[str]) -> bool:
        """Whether these scopes do."""
        if self.scope is not None and self.scope not in scopes and self.or_scope not in scopes:
            return False
        return self.and_scope is None or self.and_scope in scopes


@stream_request_body
class ExecHandler(APIHandler):
    """Base of our handlers; the route table says which methods there are and what each needs."""

    services: Services
    caller: Caller
    request_id = ""

    def initialize(self, services: Services, access: Mapping[str, Access]) -> None:
        """Take over what the route table gives."""
        self.services = services
        self._access = access
        self._let_in = False
        self._unwatch: Callable[[], None] = _nothing
        self._end_stream: Callable[[], None] = _nothing
        self._chunks: list[bytes] = []
        self._body_bytes = 0
        self._max_body_bytes = 0

    @property
    def engine(self) -> ExecEngine:
        """The engine."""
        return self.services.engine

    # --- before the body ---

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Let the request in, or not.

        A refusal closes the connection, so the body is never read.
        """
        if self.request.method == "OPTIONS":
            self._expect_no_body()
            await self.services.gate.preflight(self)
            return
        self.caller = await self.services.gate.authenticate(self)
        self._unwatch = self.engine.watch_token(self.caller, self._token_ended)
        access = self._access.get(self.request.method or "")
        if access is None:
            self.set_header("Allow", ", ".join(sorted(self._access)))
            raise MethodNotAllowed(f"{self.request.method} is not possible here, only {', '.join(self._access)}")
        if not access.suffices(self.caller.scopes):
            names = " ".join(repr(word) if ":" in word else word for word in access.scopes.split())
            raise MissingScope(f"this needs the scope {names}, which the token does not have")
        if access.owner_only and not self.caller.is_owner:
            raise OwnerOnly("this is the server's owner's to do; no scoped token will do")
        await authorize(self, access.action, access.resource)
        self.expect_body()
        self._let_in = True

    def _token_ended(self) -> None:
        """Let what is read meanwhile come to its own end, which tells why; cut the connection if it does not."""
        asyncio.get_running_loop().call_later(_LAST_WORDS_SECONDS, self._cut_off)

    def _cut_off(self) -> None:
        connection = self.request.connection
        if not self._finished and connection is not None:
            connection.stream.close()  # type: ignore[attr-defined]  # HTTP/1 is all there is

    def hold_stream(self) -> None:
        """Count this request among the caller's that are answered over time, until its answer or connection ends.

        Raises
        ------
        PolicyLimitReached
        """
        self._end_stream = self.engine.hold_stream(self.caller)

    def on_finish(self) -> None:
        """Be done with the caller's token."""
        super().on_finish()
        self._unwatch()
        self._end_stream()

    def on_connection_close(self) -> None:
        """Be done with the caller's token."""
        super().on_connection_close()
        self._unwatch()
        self._end_stream()

    def limit_body(self, max_bytes: int) -> None:
        """Make the connection end where a body becomes longer than this."""
        connection = self.request.connection
        if connection is not None and hasattr(connection, "set_max_body_size"):
            connection.set_max_body_size(max_bytes)

    def expect_body(self) -> None:
        """Set the limit of the body, and refuse one that is known to exceed it by far."""
        max_bytes = self._max_body_bytes = _BODY_FACTOR * self.engine.max_code_bytes + _BODY_SPARE_BYTES
        length = self.request.headers.get("Content-Length", "").lstrip("0")
        if not length.isdecimal():
            # A chunked body tells its length only by ending; past this the connection is closed.
            self.limit_body(max_bytes + _BODY_SPARE_BYTES)
        elif len(length) > _MAX_DIGITS or int(length) > max_bytes + DRAIN_BYTES:
            raise PayloadTooLarge(f"the request body may have at most {max_bytes} bytes, not {length[:_MAX_DIGITS]}")
        else:
            self.limit_body(max_bytes + DRAIN_BYTES)

    def _expect_no_body(self) -> None:
        if self.request.headers.get("Content-Length", "0") != "0":
            raise PayloadTooLarge("such a request has no body")
        self.limit_body(_BODY_SPARE_BYTES)

    def data_received(self, chunk: bytes) -> None:
        """Collect the body, up to its limit."""
        self._body_bytes += len(chunk)
        if self._body_bytes <= self._max_body_bytes:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()

    # --- reading ---

    def json_body(self, if_none: Any = None) -> Any:
        """Return the parsed body, or `if_none` if nothing was sent.

        Raises
        ------
        PayloadTooLarge, UnsupportedMediaType, InvalidJSON
        """
        if self._body_bytes > self._max_body_bytes:
            raise PayloadTooLarge(f"the request body may have at most {self._max_body_bytes} bytes")
        if not self._chunks:
            return if_none
        media_type = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise UnsupportedMediaType("send the body as JSON with 'Content-Type: application/json'")
        try:
            return loads_strict(b"".join(self._chunks))
        except ValueError as error:
            raise InvalidJSON(f"the request body is not valid JSON: {error}") from None

    def int_argument(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return a whole number from the query.

        Raises
        ------
        InvalidRequest
        """
        text = self.get_query_argument(name, None)
        if text is None:
            return default
        if not text.isascii() or not text.isdecimal() or len(text) > 18 or not least <= int(text) <= most:
            raise InvalidRequest(f"{name!r} must be a whole number from {least} to {most}")
        return int(text)

    def flag_argument(self, name: str) -> bool:
        """Return a yes or no from the query; no if it is not there.

        Raises
        ------
        InvalidRequest
        """
        flag = _FLAGS.get(self.get_query_argument(name, "false").lower())
        if flag is None:
            raise InvalidRequest(f"{name!r} must be true or false")
        return flag

    # --- answering ---

    def set_default_headers(self) -> None:
        """Answers belong to one caller and one moment."""
        super().set_default_headers()
        if not self.request_id:  # this is called again when an error replaces an answer
            asked = self.request.headers.get("X-Request-Id", "")
            self.request_id = asked if _REQUEST_ID.fullmatch(asked) else secrets.token_hex(8)
        self.set_header("X-Request-Id", self.request_id)
        self.set_header("Cache-Control", "no-store")

    def compute_etag(self) -> None:
        """Answers are never cached, so they need no hash."""

    def answer(self, body: Any, status: int = 200) -> None:
        """Send `body` as JSON."""
        self.set_status(status)
        self.finish(dump_bytes(body))

    async def answer_apart(
        self, body: Any, status: int = 200, may_end: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Send `body` as JSON; if it is large, without anybody else having to wait for it.

        Its end, without which it is nothing, is sent once `may_end` has returned.
        """
        if not is_large(body):
            if may_end is not None:
                await may_end()
            self.answer(body, status)
            return
        self.set_status(status)
        await self._send_pieces(await asyncio.to_thread(lambda: collect(encode_in_pieces(body))), may_end)

    async def send(self, body: bytes) -> None:
        """Send `body`, which is JSON."""
        if len(body) <= _PIECE_BYTES:
            self.finish(body)
            return
        await self._send_pieces(list(in_pieces([body])))

    async def _send_pieces(
        self, pieces: Sequence[bytes], may_end: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self.set_header("Content-Length", str(sum(map(len, pieces))))
        *most, last = pieces
        try:
            for piece in most:
                self.write(piece)
                await self.flush()
            if may_end is not None:
                await may_end()
            self.finish(last)
        except StreamClosedError:
            self.log.debug("the reader of a large answer is gone (request %s)", self.request_id)

    def exec_url(self, path: str) -> str:
        """Return the URL path of something under ``exec/v1``."""
        return str(url_path_join(self.base_url, "exec/v1", path))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Turn whatever was raised into an answer."""
        exc_info = kwargs.get("exc_info")
        error = self._as_exec_error(status_code, exc_info[1] if exc_info else None)
        status, body = self.error_answer(error)
        self.set_status(status)
        if not self._let_in:
            # Tornado closes the connection when an answer comes before the body was read; say so, or the client
            # would send its next request into it.
            self.set_header("Connection", "close")
        if error.status == 401:
            self.set_header("WWW-Authenticate", "Bearer")
        if error.retry_after_seconds is not None:
            self.set_header("Retry-After", str(max(1, round(error.retry_after_seconds))))
        if isinstance(error, MethodNotAllowed):
            self.set_header("Allow", ", ".join(sorted(self._access)))
        if error.status in _DENIED or isinstance(error, (PolicyLimitReached, TooManyAttempts)):
            self._record_denial(error)
        self.finish(dump_bytes(body))

    def error_answer(self, error: ExecError) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON that tell of an error."""
        return error.status, self.error_body(error)

    def _record_denial(self, error: ExecError) -> None:
        caller: Caller | None = getattr(self, "caller", None)
        self.engine.audit.record(
            "denial",
            "refused",
            caller.principal if caller is not None else "",
            self.request.path,
            code=error.code,
            request_id=self.request_id,
            method=self.request.method or "",
            address=self.request.remote_ip or "",
        )

    def error_body(self, error: ExecError) -> dict[str, Any]:
        """Return the JSON of an error: Jupyter's two fields, a stable code, and the id that the log has."""
        return {
            "message": error.message,
            "reason": responses.get(error.status, "Unknown"),
            "code": error.code,
            "request_id": self.request_id,
            **({"limit": error.limit} if error.limit is not None else {}),
        }

    def _as_exec_error(self, status_code: int, raised: BaseException | None) -> ExecError:
        if isinstance(raised, ExecError):
            return raised
        if isinstance(raised, HTTPError) and raised.status_code in _BY_STATUS:
            return _BY_STATUS[raised.status_code](raised.log_message or responses.get(raised.status_code, ""))
        if raised is None and status_code in _BY_STATUS:
            return _BY_STATUS[status_code](responses.get(status_code, ""))
        if raised is not None and out_of_resources(raised):
            return exhausted(raised)
        return InternalError("the server failed; its log has the details under this request id")

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Log a refusal as one line and a defect with its traceback; never the query, which may hold a token."""
        if isinstance(value, (ExecError, HTTPError)):
            code = value.code if isinstance(value, ExecError) else value.status_code
            self.log.warning("%s: %s (request %s)", self._request_summary(), code, self.request_id)
        else:
            self.log.error(
                "%s failed (request %s)",
                self._request_summary(),
                self.request_id,
                exc_info=(typ, value, tb),  # type: ignore[arg-type]
            )

    def _request_summary(self) -> str:
        request: HTTPServerRequest = self.request
        return f"{one_line(request.method or '')} {one_line(request.path)} ({request.remote_ip})"

    def _log(self) -> None:
        """Let the host write its access log, of a request whose texts are fit for it; nobody else reads them now."""
        request = self.request
        request.method, request.uri = one_line(request.method or ""), one_line(request.uri or "")
        for name in _LOGGED_HEADERS:
            if name in request.headers:
                request.headers[name] = one_line(request.headers[name])
        super()._log()


def in_pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join what is short, and cut what is long, to pieces of a size that is sent at once."""
    short: list[bytes] = []
    size = 0
    for part in parts:
        if size + len(part) > _PIECE_BYTES and short:
            yield b"".join(short)
            short, size = [], 0
        if len(part) > _PIECE_BYTES:
            yield from (part[at : at + _PIECE_BYTES] for at in range(0, len(part), _PIECE_BYTES))
        else:
            short.append(part)
            size += len(part)
    if short:
        yield b"".join(short)


def _nothing() -> None:
    pass
