"""HTTP requests and streams of the asynchronous driver, with aiohttp.

Tasks that wait for an access token share one call of the credential.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import aiohttp
from yarl import URL

from ...protocol.strict_json import dump_bytes
from ..access_tokens import (
    AccessToken,
    AsyncTokenProvider,
    TokenCache,
    TokenProvider,
    credential_error,
    run_in_daemon_thread,
    token_request_of,
)
from ..api.steps import Failure, GetToken, OpenStream, ReadStream, Reply, Request, SendBody, Source, Stream
from ..connection_failures import connect_seconds, connection_failure
from ..fork_safety import keep_for_parent, renew_after_fork
from ..server_connection import JupyterConnectionInfo

# The default of 64 KiB makes large outputs pause and resume the transport for every chunk.
_READ_BUFFER_BYTES = 2**20
# Larger bodies are written in pieces, with other tasks in between.
_MAX_WHOLE_BODY_BYTES = 2**18
# An error of the HTTP library may quote a whole answer.
_MAX_MESSAGE_CHARS = 300


class HttpClient:
    """HTTP connections to one server, created on the running event loop.

    Parameters
    ----------
    connection : JupyterConnectionInfo
        The server.
    keeps_cookies : bool
        Whether to keep the server's cookies.
    """

    def __init__(self, connection: JupyterConnectionInfo, *, keeps_cookies: bool) -> None:
        self.connection = connection
        self.session = aiohttp.ClientSession(
            # With the default limit of 100, that many waiting runs and open streams would block all other requests.
            connector=_Connector(limit=0, ssl=ssl_context(connection)),
            # Unsafe: otherwise aiohttp drops the cookies of servers that are addressed by IP, such as 127.0.0.1.
            cookie_jar=aiohttp.CookieJar(unsafe=True) if keeps_cookies else aiohttp.DummyCookieJar(),
            # Between programs of one machine, compression costs more than it saves.
            # Not the token: aiohttp sends these headers to a proxy, too, when it asks for a tunnel.
            headers={"Accept-Encoding": "identity"} if connection.is_loopback else {},
            read_bufsize=_READ_BUFFER_BYTES,
        )
        if not keeps_cookies:
            # aiohttp would repeat a GET or DELETE by itself, so that the `sent` of a `Failure` would be wrong.
            self.session._retry_connection = False

    async def close(self) -> None:
        """Close all connections."""
        await self.session.close()

    async def request(self, request: Request) -> Reply | Failure:
        """Send a request and read the whole answer."""
        response = await self._send(request)
        return response if isinstance(response, Failure) else await _read_reply(response)

    async def send_body(self, step: SendBody) -> Reply | Failure:
        """Send a request with a body in pieces, and read the whole answer."""
        size = step.source.size_bytes
        response = await self._send(step.request, b"" if size == 0 else _read_pieces(step.source), size)
        return response if isinstance(response, Failure) else await _read_reply(response)

    async def open_stream(self, step: OpenStream) -> Stream | Reply | Failure:
        """Send a request and open its answer as a stream."""
        total = step.total_seconds if step.total_seconds is not None else step.request.total_seconds
        response = await self._send(replace(step.request, total_seconds=total))
        if isinstance(response, Failure):
            return response
        if response.status == 200:
            return Stream(_lower_names(response.headers), response)
        return await _read_reply(response)

    async def read(self, step: ReadStream) -> bytes | Failure:
        """Read the bytes of a stream that have arrived."""
        response: aiohttp.ClientResponse = step.stream.handle
        try:
            return await asyncio.wait_for(response.content.readany(), step.silence_seconds)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            return failure_of(error)

    async def _send(
        self, request: Request, body: AsyncGenerator[bytes, None] | bytes | None = None, size: int | None = None
    ) -> aiohttp.ClientResponse | Failure:
        headers = self.connection.auth_headers | dict(request.headers)
        if request.json is not None:
            body = dump_bytes(request.json)
            headers["Content-Type"] = "application/json"
        elif size is not None:
            # With a length of its own, aiohttp does not send the generator in chunks.
            headers["Content-Length"] = str(size)
        # Also beside a token: a server without authentication ignores the token and requires the XSRF header.
        cookie = self.session.cookie_jar.filter_cookies(URL(self.connection.url)).get("_xsrf")
        if cookie is not None:
            headers["X-XSRFToken"] = cookie.value
        data: AsyncGenerator[bytes, None] | bytes | io.BytesIO | None = body
        if isinstance(body, bytes) and len(body) > _MAX_WHOLE_BODY_BYTES:
            data = io.BytesIO(body)  # aiohttp writes a file in pieces, so that it does not block the event loop
        try:
            return await self.session.request(
                request.method,
                self.connection.url + request.path,
                data=data,
                headers=headers,
                proxy=self.connection.proxy,
                timeout=aiohttp.ClientTimeout(
                    total=request.total_seconds,
                    sock_connect=connect_seconds(self.connection),
                    sock_read=request.read_timeout_seconds,
                ),
                allow_redirects=False,  # the token must not follow one, and `error_from` explains it
            )
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            return failure_of(error, self.connection)


class _NotConnectedError(aiohttp.ClientError):
    """Error before a request was sent."""


class _Connector(aiohttp.TCPConnector):
    """Connector that marks its errors: a proxy that opens no tunnel looks like a server that fails after a request."""

    async def connect(self, *args: Any, **options: Any) -> Any:
        """Connect to the server; raise `_NotConnectedError` if a proxy opens no tunnel."""
        try:
            return await super().connect(*args, **options)
        except (aiohttp.ClientResponseError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            raise _NotConnectedError(str(error)) from error


def ssl_context(connection: JupyterConnectionInfo) -> ssl.SSLContext | bool:
    """Return aiohttp's ``ssl`` argument for a connection."""
    if not connection.use_https:
        return True
    if connection.verify is False and connection.client_cert is None:
        return False
    bundle = connection.ca_bundle
    is_directory = bundle is not None and os.path.isdir(bundle)
    context = ssl.create_default_context(
        cafile=None if is_directory else bundle, capath=bundle if is_directory else None
    )
    if connection.verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if isinstance(connection.client_cert, tuple):
        context.load_cert_chain(*connection.client_cert)
    elif connection.client_cert is not None:
        context.load_cert_chain(connection.client_cert)
    return context


def failure_of(error: BaseException, connecting_to: JupyterConnectionInfo | None = None) -> Failure:
    """Return the failure for an error of aiohttp, with whether the server can have received the request.

    Parameters
    ----------
    connecting_to : JupyterConnectionInfo, optional
        The server, where the error may be that of a connection.
    """
    was_not_sent = isinstance(error, (_NotConnectedError, aiohttp.ConnectionTimeoutError))
    # Exactly this class: its subclasses in aiohttp have a text, while the plain one of a total timeout has none.
    text = "there was no whole answer in time" if type(error) is asyncio.TimeoutError else str(error)
    text = text or type(error).__name__
    if connecting_to is not None:
        if isinstance(error.__cause__ or error, aiohttp.ClientConnectorDNSError):
            error = socket.gaierror(text)  # what the standard library raises for it
        return connection_failure(error, text, connecting_to, sent=not was_not_sent)
    return Failure(not was_not_sent, text[:_MAX_MESSAGE_CHARS])


async def _read_pieces(source: Source) -> AsyncGenerator[bytes, None]:
    while piece := await asyncio.to_thread(source.read):
        yield piece
        source.sent(len(piece))


async def _read_reply(response: aiohttp.ClientResponse) -> Reply | Failure:
    try:
        async with response:
            return Reply(response.status, _lower_names(response.headers), await response.read())
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
        return failure_of(error)


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


class AioCredential:
    """Source of access tokens on an event loop. A credential that blocks is called in a thread."""

    def __init__(self, credential: TokenProvider | AsyncTokenProvider, scope: str) -> None:
        self._credential = credential
        self._scope = scope
        self._cache = TokenCache()
        self._asking: dict[str | None, asyncio.Task[AccessToken]] = {}
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave pending calls to the parent: their tasks are on its event loop and never end in the child."""
        keep_for_parent(self._asking)
        self._asking = {}

    async def get(self, step: GetToken) -> AccessToken:
        """Return a token, from the cache or from the credential; concurrent tasks wait for the same call."""
        held = self._cache.current(step.rejected)
        if held is not None and step.claims is None:
            return held
        asking = self._asking.get(step.claims)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._fetch(step.claims))
            self._asking[step.claims] = asking
            asking.add_done_callback(lambda task: self._forget(step.claims, task))
        # Unlike `wait_for`, this does not cancel the call, for which other tasks may wait.
        await asyncio.wait([asking], timeout=step.timeout_seconds)
        if asking.cancelled():  # by `close`
            raise credential_error(self._credential, None)
        error = asking.exception() if asking.done() else None
        if error is not None or not asking.done():
            raise credential_error(self._credential, error) from error
        return asking.result()

    async def _fetch(self, claims: str | None) -> AccessToken:
        request = token_request_of(self._credential, self._scope, claims)
        if inspect.iscoroutinefunction(self._credential.get_token):
            given: Any = request()
        else:
            given = await asyncio.wrap_future(run_in_daemon_thread(request))
        # A wrapper around an asynchronous credential may be a plain function that returns its coroutine.
        if inspect.isawaitable(given):
            given = await given
        return self._cache.store(given)

    def _forget(self, claims: str | None, task: asyncio.Task[AccessToken]) -> None:
        self._asking.pop(claims, None)
        if not task.cancelled():
            task.exception()  # retrieved here, so that asyncio does not log it if no task waits any more

    async def close(self) -> None:
        """Cancel pending calls."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
