"""Carries out the client's steps, blocking: with requests, and websocket-client where a WebSocket is needed."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy
from http.cookies import SimpleCookie
from typing import Any, TypeVar

import requests
import urllib3.exceptions
from requests.structures import CaseInsensitiveDict

from ...errors import ClientError, Conflict
from ...models import InputRequestEvent
from ...protocol.strict_json import dump_bytes
from ..api.steps import (
    STREAM_IS_OPEN,
    AskInput,
    CloseStream,
    Connect,
    Disconnect,
    Emit,
    Failure,
    GetToken,
    OpenStream,
    Operation,
    Pause,
    ReadStream,
    ReceiveMessage,
    Reply,
    Request,
    Result,
    SendBody,
    SendMessage,
    Source,
    Step,
    Stream,
    Work,
)
from ..fork_safety import keep_for_parent, renew_after_fork
from ..server_connection import JupyterConnectionInfo
from .credential import SyncCredential
from .http_attempt import Attempt, WatchedAdapter

T = TypeVar("T")
AnswerInput = Callable[[InputRequestEvent], str]
_POOL_SIZE = 64
_CONNECT_SECONDS = 10.0
_PIECE_BYTES = 256 * 1024
# One that requests would send as it is.
_PLAIN_URL = re.compile(r"https?://[a-z0-9.:-]+/[A-Za-z0-9/_.~-]*")


class RunLock:
    """Lets one run at a time into a kernel, and says so where waiting for one's turn could never end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: int | None = None
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Let a run of this process in, whatever the parent runs."""
        self._lock = threading.Lock()
        self._holder = None

    def __enter__(self) -> None:
        if self._holder == threading.get_ident():
            raise Conflict(STREAM_IS_OPEN)
        self._lock.acquire()
        self._holder = threading.get_ident()

    def __exit__(self, *exc: object) -> None:
        self._holder = None
        if self._lock.locked():  # not where a callback of the run has forked, and goes on in the child
            self._lock.release()


class SyncDriver:
    """Carries out steps, blocking.

    Parameters
    ----------
    credential : SyncCredential, optional
        What gives access tokens, for a service that wants them. Such a service's cookies are not kept.
    """

    def __init__(self, connection: JupyterConnectionInfo, credential: SyncCredential | None = None) -> None:
        self.connection = connection
        self._credential = credential
        # With every request, or the environment's bundle would go before what the user has said.
        self._verify = connection.verify and (connection.ca_bundle or True)
        self._closed = False
        self._http = self._new_http()
        renew_after_fork(self)

    def _new_http(self) -> requests.Session:
        http, connection = requests.Session(), self.connection
        if self._credential is not None:
            http.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        adapter = WatchedAdapter(one_server=connection.is_loopback, pool_connections=1, pool_maxsize=_POOL_SIZE)
        http.mount("https://" if connection.use_https else "http://", adapter)
        http.auth = self._authenticate
        http.cert = connection.client_cert
        if connection.is_loopback:
            # No proxy stands before this machine, and compressing costs more than it saves.
            http.trust_env = False
            http.headers["Accept-Encoding"] = "identity"
        return http

    def after_fork(self) -> None:
        """Have connections of this process, with the cookies of the parent's."""
        old, self._http = self._http, self._new_http()
        for cookie in old.cookies:
            self._http.cookies.set_cookie(cookie)
        keep_for_parent(old)

    def _authenticate(self, prepared: requests.PreparedRequest) -> requests.PreparedRequest:
        """Set the token, and what a server asks of a browser; this also keeps .netrc out."""
        prepared.headers.update(self.connection.auth_headers)
        # Beside a token, too: a server without authentication does not look at the token, and asks for this.
        # There may be one for each of several paths; of those sent, a server compares the last.
        sent = SimpleCookie(prepared.headers.get("Cookie", ""))
        if "_xsrf" in sent:
            prepared.headers["X-XSRFToken"] = sent["_xsrf"].value
        return prepared

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError("the client is closed")

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self._http.close()

    def perform(
        self,
        operation: Operation[T],
        on_event: Callable[[Any], None] | None = None,
        on_input: AnswerInput | None = None,
    ) -> T:
        """Carry an operation out and return its result; its events go to `on_event`."""
        self._check_open()
        with contextlib.ExitStack() as open_streams:
            outcome: Any = None
            broken_off: BaseException | None = None
            while True:
                try:
                    step = operation.send(outcome) if broken_off is None else operation.throw(broken_off)
                except StopIteration as end:
                    result: T = end.value
                    return result
                outcome = broken_off = None
                try:
                    outcome = self._do(step, open_streams, on_event, on_input)
                except BaseException as error:  # the operation has the last word: it may tidy up
                    broken_off = error

    def perform_to_the_end(self, operation: Operation[None]) -> None:
        """Carry an operation out; there is no task here that could be cancelled meanwhile."""
        self.perform(operation)

    def tidied(self) -> None:
        """Return at once: what was broken off here has tidied up before it raised."""

    def stream(self, operation: Operation[Any], result: Result, on_input: AnswerInput | None = None) -> Iterator[Any]:
        """Carry an operation out and yield its events; the result is put into `result`."""
        self._check_open()
        with contextlib.ExitStack() as open_streams:
            outcome: Any = None
            while True:
                try:
                    step = operation.send(outcome)
                except StopIteration as end:
                    result.value = end.value
                    return
                if isinstance(step, Emit):
                    yield step.event
                    outcome = None
                    continue
                try:
                    outcome = self._do(step, open_streams, None, on_input)
                except BaseException as error:
                    self._tidy_up(operation, error, open_streams)
                    raise

    def _tidy_up(self, operation: Operation[Any], error: BaseException, open_streams: contextlib.ExitStack) -> None:
        """Carry out the last steps of an operation that was broken off."""
        try:
            step = operation.throw(error)
            while True:
                step = operation.send(self._do(step, open_streams, None, None))
        except StopIteration:
            return
        except BaseException as last:
            if last is not error:
                raise

    def _do(
        self,
        step: Step,
        open_streams: contextlib.ExitStack,
        on_event: Callable[[Any], None] | None,
        on_input: AnswerInput | None,
    ) -> Any:
        if isinstance(step, Request):
            return self._request(step)
        if isinstance(step, Emit):
            return None if on_event is None else on_event(step.event)
        if isinstance(step, AskInput):
            return on_input(step.event) if on_input is not None else ""
        if isinstance(step, OpenStream):
            opened = self._open(step.request, step.total_seconds)
            if isinstance(opened, Stream):
                open_streams.callback(opened.handle.close)
            return opened
        if isinstance(step, ReadStream):
            return step.stream.handle.read(step.silence_seconds)
        if isinstance(step, CloseStream):
            return step.stream.handle.close()
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        if isinstance(step, Work):
            return step.action()
        if isinstance(step, SendBody):
            return self._exchange(step.request, _body(step.source))
        if isinstance(step, GetToken):
            assert self._credential is not None
            return self._credential.get(step)
        return self._websocket(step)

    def _send(
        self, request: Request, attempt: Attempt, *, stream: bool, body: bytes | _Sent | None = None
    ) -> requests.Response | Failure:
        headers = dict(request.headers)
        if request.json is not None:
            body = dump_bytes(request.json)
            headers["Content-Type"] = "application/json"
        # A handshake may take as long as the connection before it, and is in nobody's power.
        connect_seconds = min(_CONNECT_SECONDS, (attempt.total_seconds or 2 * _CONNECT_SECONDS) / 2)
        try:
            with attempt.watching():
                prepared = self._prepared(request, body, headers)
                response = self._http.send(
                    prepared,
                    **self._settings(prepared, stream),
                    timeout=(connect_seconds, request.read_timeout_seconds),
                    allow_redirects=False,
                )
        except requests.RequestException as error:
            return _failure(error, attempt)
        if _cut_in_the_headers(response):
            response.close()
            return Failure(True, "the connection was cut in the middle of the answer's headers")
        if attempt.over:
            response.close()
            return Failure(True, _too_long(attempt))
        return response

    def _prepared(
        self, request: Request, body: bytes | _Sent | None, headers: dict[str, str]
    ) -> requests.PreparedRequest:
        """Return what requests is to send; if it is as usual, without all the questions that requests asks itself."""
        url = self.connection.url + request.path
        if not isinstance(body, bytes) or not _PLAIN_URL.fullmatch(url):
            return self._http.prepare_request(requests.Request(request.method, url, data=body, headers=headers))
        prepared = requests.PreparedRequest()
        prepared.method, prepared.url, prepared.body = request.method, url, body
        usual: Mapping[str, Any] = self._http.headers
        prepared.headers = CaseInsensitiveDict({**usual, **headers, "Content-Length": str(len(body))})
        prepared.prepare_cookies(self._http.cookies)
        return self._authenticate(prepared)

    def _settings(self, prepared: requests.PreparedRequest, stream: bool) -> dict[str, Any]:
        if not self._http.trust_env:
            return {"stream": stream, "verify": self._verify, "cert": self._http.cert, "proxies": {}}
        return dict(self._http.merge_environment_settings(prepared.url, {}, stream, self._verify, None))

    def _request(self, request: Request) -> Reply | Failure:
        return self._exchange(request, None)

    def _exchange(self, request: Request, body: bytes | _Sent | None) -> Reply | Failure:
        attempt = Attempt(request.total_seconds)
        try:
            response = self._send(request, attempt, stream=False, body=body)
        finally:
            attempt.end()
        return response if isinstance(response, Failure) else _reply(response)

    def _open(self, request: Request, total_seconds: float | None) -> Stream | Reply | Failure:
        attempt = Attempt(total_seconds if total_seconds is not None else request.total_seconds)
        opened = False
        try:
            response = self._send(request, attempt, stream=True)
            if isinstance(response, Failure):
                return response
            if response.status_code == 200:
                opened = True
                return Stream(_lower(response.headers), _Pieces(response, attempt))
            try:
                return _reply(response)
            except requests.RequestException as error:
                return _failure(error, attempt)
            finally:
                response.close()
        finally:
            if not opened:
                attempt.end()

    def _websocket(self, step: Step) -> Any:
        from . import websocket as ws  # websocket-client is loaded only where a WebSocket is used

        if isinstance(step, Connect):
            return ws.connect(self.connection, step, {cookie.name: cookie.value or "" for cookie in self._http.cookies})
        if isinstance(step, SendMessage):
            return ws.send(step.socket, step.data)
        if isinstance(step, ReceiveMessage):
            return ws.receive(step.socket, step.timeout_seconds)
        assert isinstance(step, Disconnect)
        return ws.close(step.socket)


class _Sent:
    """A body that requests sends as it is read; without a length it is sent in chunks."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._source.read():
            yield piece
            self._source.sent(len(piece))


class _SizedSent(_Sent):
    def __len__(self) -> int:
        return self._source.size_bytes or 0


def _body(source: Source) -> bytes | _Sent:
    if source.size_bytes is None:
        return _Sent(source)
    return _SizedSent(source) if source.size_bytes else b""  # requests would send an empty iterable in chunks


class _Pieces:
    """An answer that is read as it comes, and cut when its time is up."""

    def __init__(self, response: requests.Response, attempt: Attempt) -> None:
        self._response = response
        self._attempt = attempt

    def read(self, silence_seconds: float | None) -> bytes | Failure:
        """Return what has come, without waiting for the rest of an HTTP chunk: a cut must not take it away."""
        self._attempt.allow_silence(silence_seconds)
        try:
            piece: bytes = self._response.raw.read1(_PIECE_BYTES, decode_content=True)
        except (urllib3.exceptions.HTTPError, HTTPException, OSError) as error:
            return Failure(True, _too_long(self._attempt) if self._attempt.over else _words(error))
        if not piece and self._attempt.over:
            return Failure(True, _too_long(self._attempt))
        return piece

    def close(self) -> None:
        self._attempt.end()
        self._response.close()


def _cut_in_the_headers(response: requests.Response) -> bool:
    """Whether what came is no whole answer; http.client takes headers that just stop for complete ones."""
    if response.status_code == 204 or 300 <= response.status_code < 400:
        return False
    whole_length = response.headers.get("Content-Length", "").strip().isdecimal()
    return not whole_length and "chunked" not in response.headers.get("Transfer-Encoding", "").lower()


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _reply(response: requests.Response) -> Reply:
    return Reply(response.status_code, _lower(response.headers), response.content)


def _failure(error: requests.RequestException, attempt: Attempt) -> Failure:
    """Tell whether the server can have received the request."""
    return Failure(attempt.sent, _too_long(attempt) if attempt.over else _words(error))


def _too_long(attempt: Attempt) -> str:
    return f"there was no whole answer within {attempt.total_seconds:g} seconds"


def _words(error: BaseException) -> str:
    """Return the innermost cause in words; the outer ones repeat the URL and nothing else."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return str(reason or error)[:300]
