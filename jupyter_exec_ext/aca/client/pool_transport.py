"""Calls to an ACA session pool: how they are authenticated, what is sent again and when, and when they end.

A run is sent again only where it surely was not carried out: nothing was sent, the token was refused (401), the pool
had no room (429), or the service said when to come back (503 with ``Retry-After``). Everything else may be repeated,
and is, as long as `ACATimes` allows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import urljoin

from ...client.access_tokens import AccessToken, Refusals, claims_in
from ...client.api.outage_retry import DEFAULT_RETRY
from ...client.api.steps import Failure, GetToken, Operation, Pause, Reply, Request
from ...errors import ConnectionFailed, ConnectionLost, ExecError, UnexpectedAnswer
from ...protocol.strict_json import loads_strict
from ..protocol.addresses import session_url
from ..protocol.error_format import error_from_answer

# Carries out one attempt; most send the request and read the answer.
Send = Callable[[Request], Operation["Reply | Failure"]]
_BUSY_STATUSES = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class ACATimes:
    """How long a call may take: no longer than its own time and `max_wait_seconds` together.

    Parameters
    ----------
    max_wait_seconds : float
        For how long after its beginning a call is tried again; 0 for never.
    request_seconds : float
        The time of a call that moves no file and runs no code.
    transfer_seconds : float
        The time of an upload or download.
    grace_seconds : float
        How much longer than its code's timeout a run may take: the service may first have to find a container.
    """

    max_wait_seconds: float = 30.0
    request_seconds: float = 60.0
    transfer_seconds: float = 600.0
    grace_seconds: float = 30.0


class Again(Enum):
    """When a request may be sent another time."""

    ALWAYS = "always"  # doing it twice does no more than doing it once
    REFUSED = "refused"  # if it surely was not carried out
    UNSENT = "unsent"  # if nothing of it was sent


@dataclass(frozen=True, slots=True)
class Call:
    """One request of an operation.

    Parameters
    ----------
    url : str
        All of it, as `session_url` returns it.
    seconds : float
        How long one attempt may take.
    doubt : str
        What a lost answer leaves open, to be said in the error.
    """

    method: str
    url: str
    seconds: float
    again: Again = Again.ALWAYS
    doubt: str = "the session pool did not answer"
    json: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def send_plainly(request: Request) -> Operation[Reply | Failure]:
    """Send a request and read the whole answer."""
    outcome: Reply | Failure = yield request
    return outcome


@dataclass(frozen=True, slots=True)
class ACATransport:
    """Makes calls to one pool.

    Parameters
    ----------
    endpoint : str
        As `check_endpoint` returns it.
    """

    endpoint: str
    api_version: str
    times: ACATimes

    def url(self, path: str, identifier: str | None, query: dict[str, str] | None = None) -> str:
        """Return the address of an operation."""
        return session_url(self.endpoint, path, identifier, self.api_version, **(query or {}))

    def following(self, link: str, url: str) -> str:
        """Return the address of a list's next page; the token must not go anywhere else."""
        address = urljoin(url, link)
        if not address.startswith(f"{self.endpoint}/files") or "\\" in address or "/../" in address:
            raise UnexpectedAnswer("the service's list goes on at an address that is not the session pool's")
        return address

    def call(self, call: Call, send: Send = send_plainly) -> Operation[Reply]:
        """Make a call, again where that is safe, and return the answer to a request that was carried out.

        Raises
        ------
        ExecError
            What the service's refusal stands for.
        ConnectionFailed, ConnectionLost
            If there was no answer.
        """
        began = time.monotonic()
        give_up_at = began + self.times.max_wait_seconds
        refusals = Refusals()
        rejected: str | None = None
        claims: str | None = None
        unsure = False
        number = 0
        while True:
            ends_at = min(time.monotonic() + call.seconds, give_up_at + call.seconds)
            token: AccessToken = yield GetToken(ends_at - time.monotonic(), rejected, claims)
            outcome = yield from send(self._request(call, token, ends_at - time.monotonic()))
            unsure = unsure or (outcome.sent if isinstance(outcome, Failure) else outcome.status >= 500)
            if _is_refused(call, outcome) and refusals.may_renew(token):
                assert isinstance(outcome, Reply)
                rejected, claims = token.token, claims_in(outcome.headers.get("www-authenticate", ""))
                continue
            pause = _pause(number, outcome)
            if not _is_safe(call, outcome) or time.monotonic() + pause.seconds > give_up_at:
                return _answer(call, outcome, token, unsure)
            yield pause
            number += 1
            rejected = claims = None

    def _request(self, call: Call, token: AccessToken, seconds: float) -> Request:
        if seconds <= 0:
            raise ConnectionFailed("the time for the call was over before anything was sent")
        headers = {"Authorization": f"Bearer {token.token}", **call.headers}
        path = call.url.removeprefix(f"{self.endpoint}/")
        return Request(call.method, path, call.json, headers, seconds, seconds)


def parsed(reply: Reply) -> Any:
    """Return the JSON of an answer."""
    try:
        return loads_strict(reply.body)
    except ValueError:
        raise UnexpectedAnswer(
            f"the service carried the request out (HTTP {reply.status}), but its answer is not JSON; is this the"
            " management endpoint of a session pool?"
        ) from None


def _is_refused(call: Call, outcome: Reply | Failure) -> bool:
    return isinstance(outcome, Reply) and outcome.status == 401 and call.again is not Again.UNSENT


def _is_safe(call: Call, outcome: Reply | Failure) -> bool:
    if isinstance(outcome, Failure):
        return call.again is Again.ALWAYS or not outcome.sent
    if call.again is Again.ALWAYS:
        return outcome.status in _BUSY_STATUSES
    if call.again is Again.UNSENT:
        return False
    return outcome.status == 429 or (outcome.status == 503 and _retry_after(outcome) is not None)


def _retry_after(reply: Reply) -> float | None:
    text = reply.headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 7 else None


def _pause(number: int, outcome: Reply | Failure) -> Pause:
    """Return how long to wait: what the service says and a little more, or else ever longer; both with jitter."""
    said = None if isinstance(outcome, Failure) else _retry_after(outcome)
    if said is None:
        return DEFAULT_RETRY.pause(min(number, 16))
    return Pause(max(said, DEFAULT_RETRY.base_seconds) * random.uniform(1.0, 1.2))  # noqa: S311  # jitter, no secret


def _answer(call: Call, outcome: Reply | Failure, token: AccessToken, unsure: bool) -> Reply:
    """Return an answer, or raise what it stands for."""
    if isinstance(outcome, Failure):
        if not outcome.sent:
            raise ConnectionFailed(f"the session pool cannot be reached; nothing was sent: {outcome.message}")
        raise ConnectionLost(f"{call.doubt}: the request was sent, its answer never came ({outcome.message})")
    if outcome.ok:
        return outcome
    if call.method == "DELETE" and outcome.status == 404 and unsure:
        return Reply(204, {}, b"")  # an earlier attempt has done it, and its answer was lost
    raise _refusal(call, outcome, token)


def _refusal(call: Call, reply: Reply, token: AccessToken) -> ExecError:
    if reply.status < 400:
        return UnexpectedAnswer(
            f"the service answered with a redirection (HTTP {reply.status}), which is not followed: the access token"
            " must not go elsewhere; is the endpoint right?"
        )
    body = reply.body.replace(token.token.encode(), b"***")  # some answers repeat what they were sent
    error = error_from_answer(reply.status, body, retry_after_seconds=_retry_after(reply))
    if call.again is Again.ALWAYS or reply.status < 500:
        return error
    return type(error)(f"{error.message}; {call.doubt}", retry_after_seconds=error.retry_after_seconds)
