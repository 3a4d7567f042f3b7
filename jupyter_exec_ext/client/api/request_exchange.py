"""Exchange of one request and its answer, with retries, and the errors that answers stand for."""

from __future__ import annotations

from urllib.parse import quote

from ...errors import (
    ConnectionFailed,
    ConnectionLost,
    Draining,
    ExecError,
    FileNotFound,
    PoliciesInvalid,
    ServerLost,
    ServerUnreachable,
)
from .answers import BUSY_STATUSES, error_from
from .retries import RetryBudget, RetryPolicy
from .steps import IDEMPOTENCY_KEY, Failure, OpenStream, Operation, Pause, Reply, Request, Stream, Work

# A mistake in policies and a drain last until the server is restarted, and a pool has waited for its server already.
_LASTING = (PoliciesInvalid, Draining, ServerUnreachable)
# With these statuses a proxy may have forwarded the request. After 503 it has not.
_GATEWAY_STATUSES = frozenset({502, 504})
# JupyterHub answers 424 for a server that does not run.
_FOREIGN_STATUSES = BUSY_STATUSES | {424}
# This GET sets the XSRF cookie, which a server without authentication requires with every change. The driver keeps the
# cookie and sends it.
COOKIE_REQUEST = Request("GET", "exec/v1")


def exchange(request: Request, retry: RetryPolicy, *, outages: bool = False) -> Operation[Reply]:
    """Send a request, with safe retries, and return the answer of any status.

    A retry is safe if nothing was sent or the request is idempotent. A busy server (429, 502, 503, 504) gets retries of
    idempotent requests only: the answer to another one may come from a proxy that has stopped waiting.

    Parameters
    ----------
    request : Request
        The request.
    retry : RetryPolicy
        The number and pauses of retries.
    outages : bool
        Whether the server has answered before, so that the client waits for the end of an outage.

    Raises
    ------
    ConnectionFailed
        If nothing was ever sent.
    ConnectionLost
        If the request was sent and the answer was lost.
    ServerLost
        If the server will not come back.
    """
    reply = yield from _exchange(request, retry, outages)
    # The first change on a server without authentication is refused until a GET has set the cookie.
    if lacks_cookie(request, reply):
        yield from _exchange(COOKIE_REQUEST, retry, outages)
        reply = yield from _exchange(request, retry, outages)
    return reply


def lacks_cookie(request: Request, reply: Reply) -> bool:
    """Return whether the server has refused a request only because it lacks the XSRF cookie."""
    # Tornado's message is "'_xsrf' argument missing from POST", whatever the method is.
    return reply.status == 403 and request.method != "GET" and b"xsrf" in reply.body


def is_busy(request: Request, reply: Reply) -> bool:
    """Return whether the server, or a proxy before it, is busy and the request may be sent again.

    A limit on executions (429) and a kernel that does not start (502, 504) are errors for the caller instead. So are
    those of `_LASTING`, which do not pass within some retries.
    """
    if not request.is_idempotent or (reply.status in _GATEWAY_STATUSES and is_of_api(reply)):
        return False
    if reply.status == 503 and isinstance(error_from(reply), _LASTING):
        return False
    return reply.status in BUSY_STATUSES or (reply.status == 429 and request.method != "POST")


def is_of_api(reply: Reply) -> bool:
    """Return whether an unsuccessful answer is from this API, not from a proxy or another server."""
    return error_from(reply).request_id is not None


def is_foreign(reply: Reply) -> bool:
    """Return whether a proxy, a login page or a Hub has answered in the server's place."""
    if reply.ok or is_of_api(reply):
        return False
    if reply.status == 403:  # Jupyter refuses in JSON
        return "html" in reply.headers.get("content-type", "")
    return 300 <= reply.status < 400 or reply.status in _FOREIGN_STATUSES


def is_outage(reply: Reply) -> bool:
    """Return whether the server cannot be reached: something else answers, or a pool in the name of one of its own."""
    return is_foreign(reply) or (reply.status == 503 and isinstance(error_from(reply), ServerUnreachable))


def _exchange(request: Request, retry: RetryPolicy, outages: bool) -> Operation[Reply]:
    outages = outages and retry.outage_seconds > 0  # a client that does not wait is told at once
    budget = RetryBudget(retry, outages=outages)
    doubt = ""  # end of the first attempt that the server may have carried out
    while True:
        outcome: Reply | Failure = yield request
        if isinstance(outcome, Failure) and outcome.diagnose is not None:
            problem: str | None = yield Work(outcome.diagnose)
            if problem is not None:
                raise ConnectionFailed(problem)
        outage = isinstance(outcome, Failure) or is_outage(outcome)
        doubt = doubt or _doubt_about(outcome)
        retry_after = None
        if isinstance(outcome, Failure):
            again = request.is_idempotent or not doubt
        else:
            again = is_busy(request, outcome) or (outage and outages and request.is_idempotent)
            retry_after = outcome.headers.get("retry-after")
        pause = budget.pause(outage=outage, retry_after=retry_after) if again else None
        if pause is None:
            return _final(request, outcome, doubt, waited=outages and again)
        yield from wait(pause, retry if outage and outages else None)


def wait(pause: Pause, outage_of: RetryPolicy | None) -> Operation[None]:
    """Wait until the next attempt; in an outage, check whether the server will come back.

    Raises
    ------
    ServerLost
        If it will not come back.
    """
    yield pause
    if outage_of is not None and outage_of.why_lost is not None:
        reason: str | None = yield Work(outage_of.why_lost)
        if reason is not None:
            raise ServerLost(reason)


def _doubt_about(outcome: Reply | Failure) -> str:
    """Return the reason why the server may have carried out a request without an answer; empty if it has not."""
    if isinstance(outcome, Failure):
        return outcome.message if outcome.sent else ""
    # With these statuses, a proxy may have forwarded the request.
    return f"a proxy answered {outcome.status}" if outcome.status in _GATEWAY_STATUSES and is_foreign(outcome) else ""


def _final(request: Request, outcome: Reply | Failure, doubt: str, *, waited: bool) -> Reply:
    """Return the last answer; raise an error if it leaves open whether the request was carried out."""
    if isinstance(outcome, Failure):
        raise transport_error(request, Failure(True, doubt) if doubt else outcome)
    if doubt and request.method == "DELETE" and isinstance(error_from(outcome), FileNotFound):
        return Reply(204, {}, b"")  # an earlier attempt deleted the file, and its answer was lost
    if outcome.ok or is_of_api(outcome):
        return outcome
    if doubt and (waited or request.method == "POST"):
        raise transport_error(request, Failure(True, doubt))
    if waited and is_foreign(outcome):
        raise transport_error(request, Failure(True, f"something else answers in its place ({outcome.status})"))
    return outcome


def open_stream(request: Request, retry: RetryPolicy, *, outages: bool = False) -> Operation[Stream | Failure]:
    """Send a request and open its answer as a stream; return a `Failure` if a retry is safe.

    Raises
    ------
    ExecError
        If the server refuses.
    """
    outages = outages and retry.outage_seconds > 0
    stream: Stream | Reply | Failure = yield OpenStream(request)
    if isinstance(stream, Reply) and lacks_cookie(request, stream):
        yield from exchange(COOKIE_REQUEST, retry, outages=outages)
        stream = yield OpenStream(request)
    if isinstance(stream, Reply):
        error = error_from(stream)
        if is_busy(request, stream) or (outages and request.is_idempotent and is_outage(stream)):
            unreachable = error if isinstance(error, ServerUnreachable) else None
            return Failure(bool(_doubt_about(stream)), f"something answered {stream.status}", unreachable=unreachable)
        raise error
    return stream


def transport_error(request: Request, failure: Failure, execution_id: str | None = None) -> ExecError:
    """Return the error for a request without an answer."""
    if failure.sent:
        return ConnectionLost(
            f"{request.method} {request.path} was sent, but its answer was lost ({failure.message}); "
            "whether it was carried out is unknown",
            idempotency_key=request.headers.get(IDEMPOTENCY_KEY),
            execution_id=execution_id,
        )
    if failure.is_explained:
        return ConnectionFailed(failure.message)
    return ConnectionFailed(f"the server cannot be reached, nothing was sent: {failure.message}")


def segment(text: str) -> str:
    """Return `text` as one segment of a URL path."""
    return quote(text, safe="")  # also slashes, so that an id cannot lead to another endpoint
