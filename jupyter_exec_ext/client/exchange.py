"""One request and its answer: what is sent again and when, and which error an answer stands for."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ..errors import ConnectionFailed, ConnectionLost, ExecError, Forbidden, NotFound, Unauthenticated, UnexpectedAnswer
from ..wire.freed_memory import keep_freed_memory
from ..wire.jsontext import loads_strict
from .steps import Failure, OpenStream, Operation, Pause, Reply, Request, Stream

_BUSY_STATUSES = frozenset({502, 503, 504})
_LARGE_BYTES = 1024 * 1024
_GATEWAY_STATUSES = frozenset({502, 504})
# A GET that brings the XSRF cookie, which a server without a token wants back with whatever changes something. The
# driver keeps the cookie and sends it. A server without this API sets none here, and needs none either way.
COOKIE_REQUEST = Request("GET", "exec/v1")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to try again.

    Parameters
    ----------
    max_retries : int
        How often, at most, one step is repeated; for a stream, without any progress in between.
    base_seconds, max_seconds : float
        The pause doubles from the one to the other, with jitter.
    """

    max_retries: int = 4
    base_seconds: float = 0.1
    max_seconds: float = 5.0

    def pause(self, attempt: int, retry_after: str | None = None) -> Pause:
        """Return how long to wait after failed attempt number `attempt`, from 0."""
        if retry_after is not None and retry_after.isdecimal():
            return Pause(min(float(retry_after), 60.0))
        ceiling = min(self.max_seconds, self.base_seconds * 2**attempt)
        return Pause(ceiling * random.uniform(0.5, 1.0))  # noqa: S311  # jitter, no secret


DEFAULT_RETRY = RetryPolicy()
NO_RETRY = RetryPolicy(max_retries=0)


def exchange(request: Request, retry: RetryPolicy) -> Operation[Reply]:
    """Send a request, again where that is safe, and return the answer whatever its status.

    It is safe where nothing was sent, and for requests that do no more when repeated. A busy server (429, 502, 503,
    504) is asked again for the latter alone: for others the answer may come from a proxy that gave up waiting.

    Raises
    ------
    ConnectionFailed, ConnectionLost
    """
    reply = yield from _exchange(request, retry)
    if lacks_cookie(request, reply):
        yield from _exchange(COOKIE_REQUEST, retry)
        reply = yield from _exchange(request, retry)
    return reply


def lacks_cookie(request: Request, reply: Reply) -> bool:
    """Whether a request was refused, and so not carried out, for want of the XSRF cookie alone."""
    return reply.status == 403 and request.method != "GET" and b"xsrf" in reply.body


def is_busy(request: Request, reply: Reply) -> bool:
    """Whether the server, or a proxy before it, asks for patience with a request that may be sent again.

    A limit that was reached while code was to be run (429) is the caller's to know, and so is a kernel that did not
    start (502, 504).
    """
    if not request.repeatable or (reply.status in _GATEWAY_STATUSES and is_of_api(reply)):
        return False
    return reply.status in _BUSY_STATUSES or (reply.status == 429 and request.method != "POST")


def is_of_api(reply: Reply) -> bool:
    """Whether an unsuccessful answer is this API's, and not a proxy's or another server's."""
    return error_from(reply).request_id is not None


def _exchange(request: Request, retry: RetryPolicy) -> Operation[Reply]:
    for attempt in range(retry.max_retries + 1):
        outcome: Reply | Failure = yield request
        last = attempt == retry.max_retries
        if isinstance(outcome, Failure):
            if not last and (request.repeatable or not outcome.sent):
                yield retry.pause(attempt)
                continue
            raise transport_error(request, outcome)
        if last or not is_busy(request, outcome):
            return outcome
        yield retry.pause(attempt, outcome.headers.get("retry-after"))
    raise AssertionError("the loop returns or raises")


def open_stream(request: Request, retry: RetryPolicy) -> Operation[Stream | Failure]:
    """Send a request, and return its answer to be read piece by piece, or why one may ask for it again.

    Raises
    ------
    ExecError
        As the server says, if it refused.
    """
    stream: Stream | Reply | Failure = yield OpenStream(request)
    if isinstance(stream, Reply) and lacks_cookie(request, stream):
        yield from exchange(COOKIE_REQUEST, retry)
        stream = yield OpenStream(request)
    if isinstance(stream, Reply):
        if is_busy(request, stream):
            return Failure(True, f"the server answered {stream.status}")
        raise error_from(stream)
    return stream


def transport_error(request: Request, failure: Failure) -> ExecError:
    """Return the error for a request that got no answer."""
    if failure.sent and request.method == "POST":
        return ConnectionLost(
            f"{request.method} {request.path} was sent, but its answer was lost ({failure.message}); "
            "whether it was carried out is unknown"
        )
    return ConnectionFailed(f"the server cannot be reached: {failure.message}")


def error_from(reply: Reply) -> ExecError:
    """Return the error that an answer stands for: the server's own class where its code is known."""
    if 300 <= reply.status < 400:
        return UnexpectedAnswer(
            f"the server redirects ({reply.status}) instead of answering; is the base URL right, and is the user's "
            "server running if this is a JupyterHub?"
        )
    try:
        body = loads_strict(reply.body)
    except ValueError:
        body = None
    known = isinstance(body, dict) and isinstance(body.get("message"), str)
    message = body["message"] if known else ""
    if not message:  # an Enterprise Gateway says all it says in Jupyter's other field
        reason = body.get("reason") if known else None
        message = _DEFAULT_TEXTS.get(reply.status) or str(reason or "")
    code = body.get("code") if isinstance(body, dict) else None
    if code is None and reply.status == 403:  # how Jupyter's own API refuses a token
        message = f"the server refused ({message}); is the token right, and may its user do this?"
    by_status = {401: Unauthenticated, 403: Forbidden, 404: NotFound}.get(reply.status, UnexpectedAnswer)
    error_class = ExecError.for_code(code) if isinstance(code, str) else None
    retry_after = reply.headers.get("retry-after", "")
    named = (body.get("request_id") or reply.headers.get("x-request-id")) if isinstance(code, str) else None
    return (error_class or by_status)(
        message or f"the server answered {reply.status}",
        retry_after_seconds=float(retry_after) if retry_after.isdecimal() else None,
        request_id=named,
        limit=body.get("limit") if known else None,
    )


_DEFAULT_TEXTS = {401: "the server wants a token, or another one than it was given"}


def parsed(reply: Reply) -> Any:
    """Return the JSON of a successful answer; raise what an unsuccessful one stands for."""
    if not reply.ok:
        raise error_from(reply)
    if reply.status == 204:
        return None
    if len(reply.body) > _LARGE_BYTES:
        keep_freed_memory()
    try:
        return loads_strict(reply.body)
    except ValueError:
        raise UnexpectedAnswer(
            "the server answered with something that is not JSON; is this the address of a Jupyter server?"
        ) from None


def segment(text: str) -> str:
    """Return `text` as one segment of a URL path."""
    return quote(text, safe="")
