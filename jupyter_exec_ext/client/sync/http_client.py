"""Blocking HTTP requests and streams of the synchronous driver, with requests.

Threads that wait for an access token share one call of the credential.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy
from http.cookies import SimpleCookie
from typing import Any

import requests
import urllib3.exceptions

from ...protocol.strict_json import dump_bytes
from ..access_tokens import (
    AccessToken,
    TokenCache,
    TokenProvider,
    credential_error,
    run_in_daemon_thread,
    token_request_of,
)
from ..api.steps import Failure, GetToken, OpenStream, Reply, Request, SendBody, Source, Stream
from ..connection_failures import connect_seconds, connection_failure
from ..fork_safety import ProcessLock, keep_for_parent, renew_after_fork
from ..server_connection import JupyterConnectionInfo
from .http_attempt import Attempt, WatchedAdapter

# Threads that share a client need a connection each; requests discards those beyond the pool.
_POOL_SIZE = 64
# Large enough for one call per few events, and small enough to show them as they arrive.
_PIECE_BYTES = 256 * 1024
# An error of the HTTP library may quote a whole answer.
_MAX_MESSAGE_CHARS = 300


class HttpClient:
    """HTTP connections to one server.

    Parameters
    ----------
    connection : JupyterConnectionInfo
        The server.
    keeps_cookies : bool
        Whether to keep the server's cookies.
    """

    def __init__(self, connection: JupyterConnectionInfo, *, keeps_cookies: bool) -> None:
        self._connection = connection
        self._keeps_cookies = keeps_cookies
        self._session = self._new_session()
        renew_after_fork(self)

    def _new_session(self) -> requests.Session:
        session, connection = requests.Session(), self._connection
        if not self._keeps_cookies:
            session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        adapter = WatchedAdapter(pool_connections=1, pool_maxsize=_POOL_SIZE)
        session.mount("https://" if connection.use_https else "http://", adapter)
        session.auth = self._authenticate  # not a header: .netrc would replace that
        session.cert = connection.client_cert
        if connection.is_loopback:
            session.trust_env = False  # no proxy is between programs of one machine
            session.headers["Accept-Encoding"] = "identity"  # compression costs more than it saves
        return session

    def after_fork(self) -> None:
        """Create connections of this process, with the cookies of the parent's."""
        old, self._session = self._session, self._new_session()
        for cookie in old.cookies:
            self._session.cookies.set_cookie(cookie)
        keep_for_parent(old)

    @property
    def cookies(self) -> dict[str, str]:
        """The server's cookies."""
        return {cookie.name: cookie.value or "" for cookie in self._session.cookies}

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def request(self, request: Request) -> Reply | Failure:
        """Send a request and read the whole answer."""
        return self._exchange(request, None)

    def send_body(self, step: SendBody) -> Reply | Failure:
        """Send a request with a body in pieces, and read the whole answer."""
        source = step.source
        if source.size_bytes is None:
            return self._exchange(step.request, _ChunkedBody(source))
        # requests would send an empty iterable in chunks
        return self._exchange(step.request, _SizedBody(source) if source.size_bytes else b"")

    def open_stream(self, step: OpenStream) -> Stream | Reply | Failure:
        """Send a request and open its answer as a stream."""
        attempt = Attempt(step.total_seconds if step.total_seconds is not None else step.request.total_seconds)
        opened: Stream | Reply | Failure | None = None
        try:
            response = self._send(step.request, attempt, stream=True)
            if isinstance(response, Failure):
                return response
            if response.status_code == 200:
                opened = Stream(_lower_names(response.headers), _ResponseStream(response, attempt))
                return opened
            try:
                return _reply(response)
            except requests.RequestException as error:
                return _failure(error, attempt)
            finally:
                response.close()
        finally:
            if opened is None:
                attempt.end()

    def _exchange(self, request: Request, body: bytes | _ChunkedBody | None) -> Reply | Failure:
        attempt = Attempt(request.total_seconds)
        try:
            response = self._send(request, attempt, stream=False, body=body)
        finally:
            attempt.end()
        return response if isinstance(response, Failure) else _reply(response)

    def _send(
        self, request: Request, attempt: Attempt, *, stream: bool, body: bytes | _ChunkedBody | None = None
    ) -> requests.Response | Failure:
        headers = dict(request.headers)
        if request.json is not None:
            body = dump_bytes(request.json)
            headers["Content-Type"] = "application/json"
        url = self._connection.url + request.path
        # The TLS handshake gets the same timeout once more after the connection.
        limit = connect_seconds(self._connection)
        limit = min(limit, (attempt.total_seconds or 2 * limit) / 2)
        # Passed with every request: requests prefers the environment's CA bundle to a session's `verify`.
        verify = self._connection.verify and (self._connection.ca_bundle or True)
        try:
            with attempt.watching():
                prepared = self._session.prepare_request(
                    requests.Request(request.method, url, data=body, headers=headers)
                )
                response = self._session.send(
                    prepared,
                    timeout=(limit, request.read_timeout_seconds),
                    allow_redirects=False,  # the token must not follow one, and `error_from` explains it
                    **self._session.merge_environment_settings(prepared.url, {}, stream, verify, None),
                )
        except requests.RequestException as error:
            message = _failure_message(error, attempt)
            return connection_failure(error, message, self._connection, sent=attempt.was_sent)
        if _has_cut_headers(response):
            response.close()
            return Failure(True, "the connection was cut in the middle of the answer's headers")
        if attempt.has_timed_out:
            response.close()
            return Failure(True, _timeout_message(attempt))
        return response

    def _authenticate(self, prepared: requests.PreparedRequest) -> requests.PreparedRequest:
        """Set the token and the XSRF header. As an `auth` callable this also keeps .netrc files out."""
        prepared.headers.update(self._connection.auth_headers)
        # Also beside a token: a server without authentication ignores the token and requires this header. If several
        # paths have such a cookie, the server compares the last one that was sent.
        sent = SimpleCookie(prepared.headers.get("Cookie", ""))
        if "_xsrf" in sent:
            prepared.headers["X-XSRFToken"] = sent["_xsrf"].value
        return prepared


class _ChunkedBody:
    """Body that requests sends as it is read; without a length, in chunks."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._source.read():
            yield piece
            self._source.sent(len(piece))


class _SizedBody(_ChunkedBody):
    def __len__(self) -> int:
        return self._source.size_bytes or 0


class _ResponseStream:
    """Answer that is read as it arrives, with a total timeout."""

    def __init__(self, response: requests.Response, attempt: Attempt) -> None:
        self._response = response
        self._attempt = attempt

    def read(self, silence_seconds: float | None) -> bytes | Failure:
        """Return the bytes that have arrived, so that a cut in an HTTP chunk loses none of them."""
        self._attempt.limit_silence(silence_seconds)
        try:
            piece: bytes = self._response.raw.read1(_PIECE_BYTES, decode_content=True)
        except (urllib3.exceptions.HTTPError, HTTPException, OSError) as error:
            return Failure(True, _failure_message(error, self._attempt))
        # Shutting a socket down reads as an orderly end; the flag tells a cut answer from a whole one.
        if not piece and self._attempt.has_timed_out:
            return Failure(True, _timeout_message(self._attempt))
        return piece

    def close(self) -> None:
        self._attempt.end()
        self._response.close()


def _has_cut_headers(response: requests.Response) -> bool:
    """Return whether the headers are incomplete: http.client takes headers that just stop for complete ones."""
    if response.status_code == 204 or 300 <= response.status_code < 400:
        return False
    has_length = response.headers.get("Content-Length", "").strip().isdecimal()
    return not has_length and "chunked" not in response.headers.get("Transfer-Encoding", "").lower()


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _reply(response: requests.Response) -> Reply:
    return Reply(response.status_code, _lower_names(response.headers), response.content)


def _failure(error: requests.RequestException, attempt: Attempt) -> Failure:
    return Failure(attempt.was_sent, _failure_message(error, attempt))


def _failure_message(error: BaseException, attempt: Attempt) -> str:
    """Return the innermost cause; the outer errors only repeat the URL."""
    if attempt.has_timed_out:
        return _timeout_message(attempt)
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return str(reason or error)[:_MAX_MESSAGE_CHARS]


def _timeout_message(attempt: Attempt) -> str:
    return f"there was no whole answer within {attempt.total_seconds:g} seconds"


class SyncCredential:
    """Source of access tokens for threads."""

    def __init__(self, credential: TokenProvider, scope: str) -> None:
        self._credential = credential
        self._scope = scope
        self._cache = TokenCache()
        self._lock = ProcessLock()
        self._asking: dict[str | None, Future[Any]] = {}
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget the parent's pending calls: their threads do not exist in the child."""
        self._asking = {}

    def get(self, step: GetToken) -> AccessToken:
        """Return a token, from the cache or from the credential; concurrent threads wait for the same call."""
        with self._lock:
            held = self._cache.current(step.rejected)
            if held is not None and step.claims is None:
                return held
            asking = self._asking.get(step.claims)
            if asking is None:
                # Under the lock, so that the thread cannot remove the entry before it is there.
                asking = run_in_daemon_thread(lambda: self._fetch(step.claims))
                self._asking[step.claims] = asking
        # Without the lock: it would keep other threads from the token, and `_fetch` from storing it.
        wait([asking], step.timeout_seconds)
        error = asking.exception() if asking.done() else None
        if error is not None or not asking.done():
            raise credential_error(self._credential, error) from error
        token: AccessToken = asking.result()
        return token

    def _fetch(self, claims: str | None) -> AccessToken:
        try:
            given = token_request_of(self._credential, self._scope, claims)()
            with self._lock:
                return self._cache.store(given)
        finally:
            with self._lock:
                self._asking.pop(claims, None)

    def close(self) -> None:
        """Do nothing: pending calls run in daemon threads."""
