"""Authenticated calls to an ACA session pool, with retries and time limits.

A run is repeated only if the service certainly did not carry it out: nothing was sent, the token was refused (401),
the pool had no room (429), or the service named a time to retry (503 with ``Retry-After``). An upload from a source
that cannot be rewound is repeated only if nothing was sent. All other requests are safe to repeat, and are repeated
for `PoolTimes.max_wait_seconds`. `pool_operations` makes the calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import urljoin

from ...client.access_tokens import AccessToken, RefusalCounter, parse_claims
from ...client.api.retries import DEFAULT_RETRY, pause_with_jitter
from ...client.api.steps import Failure, GetToken, Operation, Pause, Reply, Request
from ...errors import ConnectionFailed, ConnectionLost, ExecError, UnexpectedAnswer
from ...protocol.strict_json import loads_strict
from ..protocol.addresses import session_url
from ..protocol.error_format import error_from_answer

# Performs one attempt. The default sends the request and reads the whole answer.
Send = Callable[[Request], Operation["Reply | Failure"]]
_BUSY_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class PoolTimes:
    """Time limits of a call; it ends within its own limit and `max_wait_seconds` together.

    Parameters
    ----------
    max_wait_seconds : float
        Time after the start of a call in which it is repeated; 0 for never.
    request_seconds : float
        Limit of a call that moves no file and runs no code.
    transfer_seconds : float
        Limit of an upload or download.
    grace_seconds : float
        Time that a run may take beyond its code's timeout: the service may first have to find a container.
    """

    max_wait_seconds: float = 30.0
    request_seconds: float = 60.0
    transfer_seconds: float = 600.0
    grace_seconds: float = 30.0


class Retry(Enum):
    """When a request may be repeated."""

    ALWAYS = "always"  # doing it twice has the effect of doing it once
    IF_REFUSED = "if_refused"  # the service certainly did not carry it out
    IF_UNSENT = "if_unsent"  # nothing of it was sent


@dataclass(frozen=True, slots=True)
class Call:
    """One request of an operation.

    Parameters
    ----------
    method : str
        HTTP method.
    url : str
        Whole address, as `session_url` returns it.
    seconds : float
        Time limit of one attempt.
    retry : Retry
        When it may be repeated.
    lost_answer_note : str
        Part of the error message that says what a lost answer leaves open.
    json : object
        Body, if any.
    headers : dict of str to str
        Further headers.
    """

    method: str
    url: str
    seconds: float
    retry: Retry = Retry.ALWAYS
    lost_answer_note: str = "the session pool did not answer"
    json: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def send_request(request: Request) -> Operation[Reply | Failure]:
    """Send a request, and read the whole answer."""
    outcome: Reply | Failure = yield request
    return outcome


@dataclass(frozen=True, slots=True)
class PoolTransport:
    """Caller of one pool.

    Parameters
    ----------
    endpoint : str
        As `check_endpoint` returns it.
    api_version : str
        Version of all its calls.
    times : PoolTimes
        Time limits.
    """

    endpoint: str
    api_version: str
    times: PoolTimes

    def url(self, path: str, identifier: str | None, query: dict[str, str] | None = None) -> str:
        """Return the address of an operation."""
        return session_url(self.endpoint, path, identifier, self.api_version, **(query or {}))

    def next_page_url(self, link: str, url: str) -> str:
        """Return the address of a list's next page; raises `UnexpectedAnswer` if the token must not go there."""
        address = urljoin(url, link)
        # Some programs take a backslash for a slash. `/../` would lead out of the pool.
        if not address.startswith(f"{self.endpoint}/files") or "\\" in address or "/../" in address:
            raise UnexpectedAnswer("the service's list goes on at an address that is not the session pool's")
        return address

    def request(
        self, method: str, path: str, identifier: str | None, query: dict[str, str] | None = None
    ) -> Operation[Reply]:
        """Call an operation that is safe to repeat and has no body."""
        return self.call(Call(method, self.url(path, identifier, query), self.times.request_seconds))

    def call(self, call: Call, send: Send = send_request) -> Operation[Reply]:
        """Make a call, repeat it while that is safe, and return the answer to a request that was carried out.

        Raises
        ------
        ExecError
            If the service refuses; each refusal has its own class.
        ConnectionFailed, ConnectionLost
            If there is no answer.
        """
        give_up_at = time.monotonic() + self.times.max_wait_seconds
        refusals = RefusalCounter()
        rejected: str | None = None
        claims: str | None = None
        unsure = False
        number = 0
        while True:
            # The second term bounds attempts after a 401, which start without a check of `give_up_at`.
            began_at = time.monotonic()
            ends_at = min(began_at + call.seconds, give_up_at + call.seconds)
            token: AccessToken = yield GetToken(ends_at - began_at, rejected, claims)
            token_seconds = time.monotonic() - began_at
            outcome = yield from send(self._request(call, token, ends_at - time.monotonic(), token_seconds))
            # After a 5xx, too, the service may have carried the request out.
            unsure = unsure or (outcome.sent if isinstance(outcome, Failure) else outcome.status >= 500)
            if _may_retry_with_new_token(call, outcome) and refusals.can_retry(token):
                assert isinstance(outcome, Reply)
                # `RefusalCounter` bounds these attempts, so they need no pause.
                rejected, claims = token.token, parse_claims(outcome.headers.get("www-authenticate", ""))
                continue
            pause = _choose_pause(number, outcome)
            if not _is_repeatable(call, outcome) or time.monotonic() + pause.seconds > give_up_at:
                return _check_outcome(call, outcome, token, unsure)
            yield pause
            number += 1
            # From now on a token from the cache is fine again.
            rejected = claims = None

    def _request(self, call: Call, token: AccessToken, seconds: float, token_seconds: float) -> Request:
        if seconds <= 0:
            raise ConnectionFailed(
                f"the request was not sent: the credential took {token_seconds:.1f} s to give an access token, and the"
                f" call's time limit is {call.seconds:g} s"
            )
        headers = {"Authorization": f"Bearer {token.token}", **call.headers}
        path = call.url.removeprefix(f"{self.endpoint}/")
        # The first limit is for a silence, the second for the whole attempt, however slowly bytes come.
        return Request(call.method, path, call.json, headers, seconds, seconds)


def parse_reply(reply: Reply) -> Any:
    """Return the JSON of an answer."""
    try:
        return loads_strict(reply.body)
    except ValueError:
        raise UnexpectedAnswer(
            f"the service carried the request out (HTTP {reply.status}), but its answer is not JSON; is this the"
            " management endpoint of a session pool?"
        ) from None


def _may_retry_with_new_token(call: Call, outcome: Reply | Failure) -> bool:
    """Return whether the token was refused, and the call can be repeated with a new one."""
    # An upload that may be sent once only has used up its source in the refused attempt.
    return isinstance(outcome, Reply) and outcome.status == 401 and call.retry is not Retry.IF_UNSENT


def _is_repeatable(call: Call, outcome: Reply | Failure) -> bool:
    if isinstance(outcome, Failure):
        return call.retry is Retry.ALWAYS or not outcome.sent
    if call.retry is Retry.ALWAYS:
        return outcome.status in _BUSY_STATUSES
    if call.retry is Retry.IF_UNSENT:
        return False
    return outcome.status == 429 or (outcome.status == 503 and _retry_after(outcome) is not None)


def _retry_after(reply: Reply) -> float | None:
    text = reply.headers.get("retry-after", "").strip()
    # The header's other form, a date, counts as no time at all.
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 7 else None


def _choose_pause(number: int, outcome: Reply | Failure) -> Pause:
    """Return the pause before the next attempt: the service's with a margin, or else exponential; both with jitter."""
    retry_after = None if isinstance(outcome, Failure) else _retry_after(outcome)
    if retry_after is None:
        return DEFAULT_RETRY.pause(min(number, 16))  # 2**1024 is too large for a float
    return pause_with_jitter(max(retry_after, DEFAULT_RETRY.base_seconds), 1.0, 1.2)


def _check_outcome(call: Call, outcome: Reply | Failure, token: AccessToken, unsure: bool) -> Reply:
    """Return the answer to a request that was carried out, or raise the error of any other outcome."""
    if isinstance(outcome, Failure):
        if not outcome.sent:
            raise ConnectionFailed(f"the session pool cannot be reached; nothing was sent: {outcome.message}")
        raise ConnectionLost(
            f"{call.lost_answer_note}: the request was sent, its answer never came ({outcome.message})"
        )
    if outcome.ok:
        return outcome
    if call.method == "DELETE" and outcome.status == 404 and unsure:
        return Reply(204, {}, b"")  # an earlier attempt deleted it, and its answer was lost
    raise _error_of(call, outcome, token)


def _error_of(call: Call, reply: Reply, token: AccessToken) -> ExecError:
    if reply.status < 400:
        return UnexpectedAnswer(
            f"the service answered with a redirection (HTTP {reply.status}), which is not followed: the access token"
            " must not go elsewhere; is the endpoint right?"
        )
    body = reply.body.replace(token.token.encode(), b"***")  # some answers repeat the request's headers
    error = error_from_answer(reply.status, body, retry_after_seconds=_retry_after(reply))
    # After a 5xx, it is open whether a call that must not be repeated was carried out.
    if call.retry is Retry.ALWAYS or reply.status < 500:
        return error
    return type(error)(f"{error.message}; {call.lost_answer_note}", retry_after_seconds=error.retry_after_seconds)
