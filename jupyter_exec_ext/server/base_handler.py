"""Base class of the request handlers: access, request bodies, JSON answers and errors.

`prepare` authenticates and authorises a request before its body is read, so a rejected request costs only its headers.
`write_error` turns every error into an answer. `streaming` has the base class of handlers with long answers.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import responses
from types import TracebackType
from typing import TYPE_CHECKING, Any

from jupyter_server.utils import url_path_join
from tornado.httputil import HTTPServerRequest
from tornado.iostream import IOStream, StreamClosedError
from tornado.web import HTTPError, stream_request_body

from ..auth.caller import Caller
from ..engine.engine import ExecEngine
from ..errors import (
    ExecError,
    Forbidden,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    PoliciesInvalid,
    PolicyLimitReached,
    TooManyAttempts,
)
from ..protocol.strict_json import dump_bytes
from ..system.resources import is_out_of_resources, make_resources_error
from .gate import Access, Gate, check_access
from .request_body import BodyHandler

if TYPE_CHECKING:
    from ..session_ports.port_services import PortServices

# A stream of a token that has ended gets this time to send the reason as its last event.
_LAST_EVENT_SECONDS = 0.3
_DENIED = (401, 403)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Headers that Jupyter Server logs for a request that was rejected or failed.
_LOGGED_HEADERS = ("Host", "Accept", "Referer", "User-Agent")
MAX_LOGGED_CHARACTERS = 400
# Languages write booleans in a query in these ways.
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
    """Dependencies of the handlers: the engine, ports, the host's gate, name and version, and its setting."""

    engine: ExecEngine
    ports: PortServices
    gate: Gate
    host: str
    host_version: str
    allow_token_in_url: bool = False


@stream_request_body
class ExecHandler(BodyHandler):
    """Base of our handlers. The route table has their methods, and the rights that each needs."""

    services: Services
    caller: Caller
    request_id = ""
    #: Whether the client no longer waits for the answer.
    is_abandoned = False

    def initialize(self, services: Services, access: Mapping[str, Access]) -> None:
        """Store the arguments from the route table."""
        self.services = services
        self._access = access
        self._is_admitted = False
        self._unwatch: Callable[[], None] = _nothing
        self._end_stream: Callable[[], None] = _nothing
        self._prepare_body(self.engine.max_code_bytes)

    @property
    def engine(self) -> ExecEngine:
        """The engine."""
        return self.services.engine

    # --- before the body ---

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler has it
        """Authenticate and authorise the request. A rejection closes the connection, so the body is never read."""
        if self.request.method == "OPTIONS":
            self.expect_no_body()
            await self.services.gate.preflight(self)
            return
        self.caller = await self.services.gate.authenticate(self)
        # Before the checks, which await: a token that ends meanwhile must end this request.
        self._unwatch = self.engine.watch_token(self.caller, self._token_ended)
        access = self._access.get(self.request.method or "")
        if access is None:
            self.set_header("Allow", ", ".join(sorted(self._access)))
            raise MethodNotAllowed(f"{self.request.method} is not possible here, only {', '.join(self._access)}")
        await check_access(self, self.caller, access)
        self.expect_body()
        self._is_admitted = True

    def _token_ended(self) -> None:
        """Close the connection soon, after a stream's last event with the reason."""
        asyncio.get_running_loop().call_later(_LAST_EVENT_SECONDS, self._cut_off)

    def _cut_off(self) -> None:
        stream = self.connection_stream
        if not self._finished and stream is not None:
            stream.close()

    @property
    def connection_stream(self) -> IOStream | None:
        """The stream of the HTTP/1 connection; None if the connection is closed."""
        return getattr(self.request.connection, "stream", None)

    def hold_stream(self) -> None:
        """Count this request as one of the caller's streams, until its answer or connection ends.

        Raises
        ------
        PolicyLimitReached
            If a policy allows no more streams.
        """
        self._end_stream = self.engine.hold_stream(self.caller)

    def on_finish(self) -> None:
        """Release the caller's token and stream."""
        super().on_finish()
        self._unwatch()
        self._end_stream()

    def on_connection_close(self) -> None:
        """Release the caller's token and stream."""
        # Tornado may call `on_finish` as well, so both functions below may be called twice.
        super().on_connection_close()
        self.is_abandoned = True
        self._unwatch()
        self._end_stream()

    def is_wanted(self) -> bool:
        """Return whether the client still waits for the answer."""
        return not self.is_abandoned

    # --- reading ---

    def int_argument(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return a whole number from the query.

        Raises
        ------
        InvalidRequest
            If it is not one from `least` to `most`.
        """
        text = self.get_query_argument(name, None)
        if text is None:
            return default
        # The length is checked first, since `int` raises for more than 4,300 digits.
        if not text.isascii() or not text.isdecimal() or len(text) > 18 or not least <= int(text) <= most:
            raise InvalidRequest(f"{name!r} must be a whole number from {least} to {most}")
        return int(text)

    def flag_argument(self, name: str) -> bool:
        """Return a boolean from the query, by default False.

        Raises
        ------
        InvalidRequest
            If it is not a boolean.
        """
        flag = _FLAGS.get(self.get_query_argument(name, "false").lower())
        if flag is None:
            raise InvalidRequest(f"{name!r} must be true or false")
        return flag

    # --- answering ---

    def set_default_headers(self) -> None:
        """Set the request's id, and forbid caches: an answer is for one caller at one moment."""
        super().set_default_headers()
        if not self.request_id:  # Tornado calls this again when an error replaces an answer
            asked = self.request.headers.get("X-Request-Id", "")
            self.request_id = asked if _REQUEST_ID.fullmatch(asked) else secrets.token_hex(8)
        self.set_header("X-Request-Id", self.request_id)
        self.set_header("Cache-Control", "no-store")

    def compute_etag(self) -> None:
        """Return None: answers are never cached, so they need no hash."""

    def answer(self, body: Any, status: int = 200) -> None:
        """Send `body` as JSON."""
        self.set_status(status)
        self.finish(dump_bytes(body))

    def answer_empty(self) -> None:
        """Send the status 204, with no body."""
        self.set_status(204)
        self.finish()

    @contextmanager
    def log_closed_stream(self, name: str) -> Iterator[None]:
        """End quietly if the client closes the connection while the answer, called `name` in the log, is sent."""
        try:
            yield
        except StreamClosedError:
            self.log.debug("the client closed the connection while %s was sent (request %s)", name, self.request_id)

    def exec_url(self, path: str) -> str:
        """Return the URL path of a resource below ``exec/v1``."""
        return str(url_path_join(self.base_url, "exec/v1", path))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Send the answer for an error."""
        exc_info = kwargs.get("exc_info")
        error = self._as_exec_error(status_code, exc_info[1] if exc_info else None)
        status, body = self.error_answer(error)
        self.set_status(status)
        if not self._is_admitted:
            # Tornado closes a connection whose body it has not read. Without this header the client would send its
            # next request into it.
            self.set_header("Connection", "close")
        if error.status == 401:
            self.set_header("WWW-Authenticate", self.challenge())
        if error.retry_after_header is not None:
            self.set_header("Retry-After", error.retry_after_header)
        if isinstance(error, MethodNotAllowed):
            self.set_header("Allow", ", ".join(sorted(self._access)))
        self.record_if_denied(_refusal_behind(error))
        self.finish(dump_bytes(body))

    def challenge(self) -> str:
        """Return the WWW-Authenticate header of a request without a valid token."""
        return "Bearer"

    def error_answer(self, error: ExecError) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON of an error."""
        return error.status, self.error_body(error)

    def record_if_denied(self, error: ExecError, message_type: str = "") -> None:
        """Record an error in the audit trail, if it denies the caller something.

        Parameters
        ----------
        error : ExecError
            The error.
        message_type : str
            Type of the message on a WebSocket that was refused; empty for a request.
        """
        if error.status not in _DENIED and not isinstance(error, (PolicyLimitReached, TooManyAttempts)):
            return
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
            **({"message": message_type} if message_type else {}),
        )

    def error_body(self, error: ExecError) -> dict[str, Any]:
        """Return the JSON of an error: Jupyter's two fields, a stable code, and the request id in the log."""
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
        if raised is not None and is_out_of_resources(raised):
            return make_resources_error(raised)
        return InternalError("the server failed; its log has the details under this request id")

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Log a rejection in one line and a defect with its traceback. The query is left out: it may hold a token."""
        if isinstance(value, (ExecError, HTTPError)):
            code = value.code if isinstance(value, ExecError) else value.status_code
            self.log.warning("%s: %s (request %s)", self._request_summary(), code, self.request_id)
        else:
            self.log.error(
                "%s failed (request %s)",
                self._request_summary(),
                self.request_id,
                exc_info=value,
            )

    def _request_summary(self) -> str:
        request: HTTPServerRequest = self.request
        return f"{one_line(request.method or '')} {one_line(request.path)} ({request.remote_ip})"

    def _log(self) -> None:
        """Let the host write its access log, after the escape of texts that could forge a line of it."""
        request = self.request  # its last reader is the log
        request.method, request.uri = one_line(request.method or ""), one_line(request.uri or "")
        for name in _LOGGED_HEADERS:
            if name in request.headers:
                request.headers[name] = one_line(request.headers[name])
        super()._log()


def _nothing() -> None:
    pass


def _refusal_behind(error: ExecError) -> ExecError:
    """Return the refusal in whose place a server whose policies have a mistake answers 503; else the error itself."""
    cause = error.__cause__
    return cause if isinstance(error, PoliciesInvalid) and isinstance(cause, ExecError) else error


def one_line(text: str) -> str:
    """Return text for the log: escaped to ASCII, in one line, cut after `MAX_LOGGED_CHARACTERS`."""
    shown = ascii(text[:MAX_LOGGED_CHARACTERS])[1:-1]  # an escape takes up to 10 characters
    is_cut = len(text) > MAX_LOGGED_CHARACTERS or len(shown) > MAX_LOGGED_CHARACTERS
    return shown[:MAX_LOGGED_CHARACTERS] + ("..." if is_cut else "")
