"""Carries out the client's steps on an event loop, with aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import logging
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import aiohttp

from ...errors import ClientError, Conflict, ExecError
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
    Socket,
    Source,
    Step,
    Stream,
    Work,
)
from ..fork_safety import keep_for_parent, renew_after_fork
from ..server_connection import JupyterConnectionInfo
from .credential import AioCredential

T = TypeVar("T")
AnswerInput = Callable[[InputRequestEvent], "str | Awaitable[str]"]
_CONNECT_SECONDS = 10.0
_PING_SECONDS = 30.0
_GOODBYE_SECONDS = 1.0
_LEFT_STREAM_SECONDS = 1.0
_TIDY_LIMIT_SECONDS = 15.0
_LOG = logging.getLogger(__name__)


class RunLock:
    """Lets one run at a time into a kernel, and says so where waiting for one's turn could never end."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> None:
        if self._holder is not None and self._holder is asyncio.current_task():
            try:  # a stream that this task has left is closed by the event loop in a moment
                await asyncio.wait_for(self._lock.acquire(), _LEFT_STREAM_SECONDS)
            except asyncio.TimeoutError:
                raise Conflict(STREAM_IS_OPEN) from None
        else:
            await self._lock.acquire()
        self._holder = asyncio.current_task()

    async def __aexit__(self, *exc: object) -> None:
        self._holder = None
        self._lock.release()


class AioDriver:
    """Carries out steps on the running event loop.

    Parameters
    ----------
    credential : AioCredential, optional
        What gives access tokens, for a service that wants them. Such a service's cookies are not kept.
    """

    def __init__(self, connection: JupyterConnectionInfo, credential: AioCredential | None = None) -> None:
        self.connection = connection
        self._credential = credential
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._tidying: set[asyncio.Task[Any]] = set()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave connections, loop and tasks to the parent; this process has its own when it first uses the client."""
        keep_for_parent((self._session, self._loop, self._tidying))
        self._session, self._loop, self._tidying = None, None, set()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError("the client is closed")
        if self._loop not in (None, asyncio.get_running_loop()):
            raise ClientError("the client belongs to another event loop, on which it was used first; make one for each")

    def _http(self) -> aiohttp.ClientSession:
        """Return the HTTP session; it belongs to the loop it is first used on."""
        if self._session is None:
            local = self.connection.is_loopback
            self._loop = asyncio.get_running_loop()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=_ssl_context(self.connection)),
                cookie_jar=aiohttp.CookieJar(unsafe=True) if self._credential is None else aiohttp.DummyCookieJar(),
                headers=self.connection.auth_headers | ({"Accept-Encoding": "identity"} if local else {}),
                read_bufsize=2**20,
            )
            if self._credential is not None:
                # It would send a GET or DELETE again by itself; whoever asks must know that it was sent before.
                self._session._retry_connection = False
        return self._session

    async def close(self) -> None:
        """Close all connections, once what is being tidied up is done."""
        self._closed = True
        await self._in_own_task(self._close())

    async def _close(self) -> None:
        await _once_more(self.tidied)
        if self._credential is not None:
            await self._credential.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def perform(
        self,
        operation: Operation[T],
        on_event: Callable[[Any], None] | None = None,
        on_input: AnswerInput | None = None,
    ) -> T:
        """Carry an operation out and return its result; its events go to `on_event`.

        An operation that is cancelled tidies up in a task of its own: who cancels by a scope, as AnyIO does, cancels
        whatever is waited for within it again and again.
        """
        self._check_open()
        async with AsyncExitStack() as open_streams:
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
                    outcome = await self._do(step, open_streams, on_event, on_input)
                except asyncio.CancelledError as error:
                    await self._tidy_up(operation, error)
                    raise
                except BaseException as error:  # the operation has the last word: it may tidy up
                    broken_off = error

    async def perform_to_the_end(self, operation: Operation[None]) -> None:
        """Carry an operation out also if whoever waits for it is cancelled meanwhile."""
        self._check_open()
        await self._in_own_task(self._steps(operation, lambda: operation.send(None)))

    async def tidied(self) -> None:
        """Wait until what was cancelled has tidied up, which takes a bounded time."""
        tidying = self._tidying - {task for task in (asyncio.current_task(),) if task is not None}
        if tidying:
            await asyncio.wait(tidying)

    async def _tidy_up(self, operation: Operation[Any], cancelled: asyncio.CancelledError) -> None:
        """Wait for a cancelled operation to tidy up, for as long as whoever cancelled it lets that be waited for."""
        with contextlib.suppress(asyncio.CancelledError):
            await self._in_own_task(self._end(operation, cancelled))

    async def _in_own_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tidying.add(task)
        task.add_done_callback(self._tidying.discard)
        await asyncio.shield(task)

    async def _end(self, operation: Operation[Any], cancelled: asyncio.CancelledError) -> None:
        """Carry out the last steps of a cancelled operation."""
        try:
            steps = self._steps(operation, lambda: operation.throw(cancelled))
            await asyncio.wait_for(steps, _TIDY_LIMIT_SECONDS)
        except asyncio.CancelledError as error:
            if error is not cancelled:
                raise
        except (ExecError, asyncio.TimeoutError) as error:  # that it was cancelled is what the caller learns
            _LOG.warning("a cancelled call could not tidy up: %s", error or "it took too long")

    async def _steps(self, operation: Operation[Any], begin: Callable[[], Step]) -> None:
        """Carry out the steps of an operation from `begin` on; they do no more when repeated."""
        async with AsyncExitStack() as open_streams:
            try:
                step = begin()
                while True:
                    step = operation.send(await _once_more(partial(self._do, step, open_streams, None, None)))
            except StopIteration:
                return

    async def stream(
        self, operation: Operation[Any], result: Result, on_input: AnswerInput | None = None
    ) -> AsyncGenerator[Any, None]:
        """Carry an operation out and yield its events; the result is put into `result`."""
        self._check_open()
        async with AsyncExitStack() as open_streams:
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
                    outcome = await self._do(step, open_streams, None, on_input)
                except asyncio.CancelledError as error:
                    await self._tidy_up(operation, error)
                    raise

    async def _do(
        self,
        step: Step,
        open_streams: AsyncExitStack,
        on_event: Callable[[Any], None] | None,
        on_input: AnswerInput | None,
    ) -> Any:
        if isinstance(step, Request):
            return await self._request(step)
        if isinstance(step, Emit):
            return None if on_event is None else on_event(step.event)
        if isinstance(step, AskInput):
            return await _ask(on_input, step.event)
        if isinstance(step, OpenStream):
            opened = await self._open(step)
            if isinstance(opened, Stream):
                open_streams.callback(opened.handle.close)
            return opened
        if isinstance(step, ReadStream):
            return await self._read(step)
        if isinstance(step, CloseStream):
            return step.stream.handle.close()
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Work):
            return await asyncio.to_thread(step.action)
        if isinstance(step, SendBody):
            return await self._send_body(step)
        if isinstance(step, GetToken):
            assert self._credential is not None
            return await self._credential.get(step)
        if isinstance(step, Connect):
            return await self._connect(step)
        if isinstance(step, SendMessage):
            return await self._send_message(step)
        if isinstance(step, ReceiveMessage):
            return await self._receive_message(step)
        assert isinstance(step, Disconnect)
        return await self._disconnect(step)

    async def _send(
        self,
        request: Request,
        body: AsyncGenerator[bytes, None] | bytes | None = None,
        size: int | None = None,
    ) -> aiohttp.ClientResponse | Failure:
        headers = dict(request.headers)
        if request.json is not None:
            body = dump_bytes(request.json)
            headers["Content-Type"] = "application/json"
        elif size is not None:
            headers["Content-Length"] = str(size)
        http = self._http()
        # Beside a token, too: a server without authentication does not look at the token, and asks for this.
        headers.update(_xsrf_header(http, self.connection.url))
        try:
            return await http.request(
                request.method,
                self.connection.url + request.path,
                data=_payload(body),
                headers=headers,
                proxy=self.connection.proxy,
                timeout=aiohttp.ClientTimeout(
                    total=request.total_seconds, sock_connect=_CONNECT_SECONDS, sock_read=request.read_timeout_seconds
                ),
                allow_redirects=False,
            )
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            return _failure(error)

    async def _request(self, request: Request) -> Reply | Failure:
        response = await self._send(request)
        return response if isinstance(response, Failure) else await _reply(response)

    async def _send_body(self, step: SendBody) -> Reply | Failure:
        size = step.source.size_bytes
        response = await self._send(step.request, b"" if size == 0 else _pieces(step.source), size)
        return response if isinstance(response, Failure) else await _reply(response)

    async def _open(self, step: OpenStream) -> Stream | Reply | Failure:
        total = step.total_seconds if step.total_seconds is not None else step.request.total_seconds
        response = await self._send(replace(step.request, total_seconds=total))
        if isinstance(response, Failure):
            return response
        return Stream(_lower(response.headers), response) if response.status == 200 else await _reply(response)

    async def _read(self, step: ReadStream) -> bytes | Failure:
        response: aiohttp.ClientResponse = step.stream.handle
        try:
            return await asyncio.wait_for(response.content.readany(), step.silence_seconds)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            return _failure(error)

    # --- WebSockets ---

    async def _connect(self, step: Connect) -> Socket | Failure:
        try:
            ws = await asyncio.wait_for(
                self._http().ws_connect(
                    self.connection.ws_url + step.path,
                    protocols=step.subprotocols,
                    max_msg_size=0,
                    heartbeat=_PING_SECONDS,
                    proxy=self.connection.proxy,
                ),
                step.timeout_seconds,
            )
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            return _failure(error)
        return Socket(ws.protocol, ws)

    async def _send_message(self, step: SendMessage) -> Failure | None:
        ws: aiohttp.ClientWebSocketResponse = step.socket.handle
        try:
            await (ws.send_str(step.data) if isinstance(step.data, str) else ws.send_bytes(step.data))
        except (aiohttp.ClientError, OSError) as error:
            return _failure(error)
        return None

    async def _receive_message(self, step: ReceiveMessage) -> str | bytes | Failure | None:
        ws: aiohttp.ClientWebSocketResponse = step.socket.handle
        try:
            message = await ws.receive(step.timeout_seconds)
        except asyncio.TimeoutError:
            return None
        except (aiohttp.ClientError, OSError) as error:
            return _failure(error)
        if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
            data: str | bytes = message.data
            return data
        return Failure(True, "the server closed the connection")

    async def _disconnect(self, step: Disconnect) -> None:
        """Close a WebSocket; whoever waits for a message on it is woken up."""
        ws: aiohttp.ClientWebSocketResponse = step.socket.handle
        with contextlib.suppress(asyncio.TimeoutError):  # nobody at the other end says goodbye; it is closed anyway
            await asyncio.wait_for(ws.close(), _GOODBYE_SECONDS)


async def _once_more(work: Callable[[], Awaitable[T]]) -> T:
    """Begin again if cancelled, once: `asyncio.run` cancels, when it ends, all that it still waits for."""
    try:
        return await work()
    except asyncio.CancelledError:
        return await work()


def _payload(
    body: AsyncGenerator[bytes, None] | bytes | None,
) -> AsyncGenerator[bytes, None] | bytes | io.BytesIO | None:
    """Let aiohttp send a large body piece by piece, so that the loop is not held up."""
    return io.BytesIO(body) if isinstance(body, bytes) and len(body) > 2**18 else body


async def _pieces(source: Source) -> AsyncGenerator[bytes, None]:
    """Yield a body piece by piece, reading in a thread."""
    while piece := await asyncio.to_thread(source.read):
        yield piece
        source.sent(len(piece))


async def _ask(on_input: AnswerInput | None, event: InputRequestEvent) -> str:
    answer = on_input(event) if on_input is not None else ""
    return str(await answer) if inspect.isawaitable(answer) else str(answer)


def _ssl_context(connection: JupyterConnectionInfo) -> ssl.SSLContext | bool:
    if not connection.use_https:
        return True
    if connection.verify is False and connection.client_cert is None:
        return False
    bundle = connection.ca_bundle
    if bundle is not None and os.path.isdir(bundle):
        context = ssl.create_default_context(capath=bundle)
    else:
        context = ssl.create_default_context(cafile=bundle)
    if connection.verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if connection.client_cert is not None:
        context.load_cert_chain(
            *(connection.client_cert if isinstance(connection.client_cert, tuple) else (connection.client_cert,))
        )
    return context


def _xsrf_header(http: aiohttp.ClientSession, url: str) -> dict[str, str]:
    """Return what a server asks of a browser, once it has set its cookie."""
    from yarl import URL

    cookie = http.cookie_jar.filter_cookies(URL(url)).get("_xsrf")
    return {} if cookie is None else {"X-XSRFToken": cookie.value}


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


async def _reply(response: aiohttp.ClientResponse) -> Reply | Failure:
    try:
        async with response:
            return Reply(response.status, _lower(response.headers), await response.read())
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
        return _failure(error)


def _failure(error: BaseException) -> Failure:
    """Tell whether the server can have received the request."""
    not_sent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    text = "there was no whole answer in time" if type(error) is asyncio.TimeoutError else str(error)
    return Failure(not not_sent, (text or type(error).__name__)[:300])
