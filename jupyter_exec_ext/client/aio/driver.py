"""Driver that performs the client's steps on an event loop, with aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

from ...errors import ClientError, Conflict, ExecError
from ...models import InputRequestEvent
from ..api.steps import (
    STREAM_IS_OPEN,
    AskInput,
    CloseStream,
    Connect,
    Disconnect,
    Done,
    Emit,
    GetToken,
    OpenStream,
    Operation,
    Pause,
    ReadStream,
    ReceiveMessage,
    Request,
    SendBody,
    SendMessage,
    Step,
    Stream,
    Work,
    resume,
)
from ..fork_safety import keep_for_parent, renew_after_fork
from ..server_connection import JupyterConnectionInfo
from . import websocket
from .http_client import AioCredential, HttpClient

T = TypeVar("T")
AnswerInput = Callable[[InputRequestEvent], "str | Awaitable[str]"]
# Time for the event loop to close an asynchronous generator that was left early.
_LEFT_STREAM_SECONDS = 1.0
# Longer than the requests of an operation that tidies up, so that this limit only ends a hanging one.
_TIDY_SECONDS = 15.0
_LOG = logging.getLogger(__name__)


class RunLock:
    """Lock that lets one run at a time into a kernel.

    If the task that waits has an open stream itself, the wait could never end, so it gets a `Conflict`.
    """

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
    """Performs steps on the event loop of the first one.

    Parameters
    ----------
    connection : JupyterConnectionInfo
        The server.
    credential : AioCredential, optional
        Source of access tokens, for a service that requires them. Cookies of such a service are not kept.
    """

    def __init__(self, connection: JupyterConnectionInfo, credential: AioCredential | None = None) -> None:
        self.connection = connection
        self._credential = credential
        self._client: HttpClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._tidying: set[asyncio.Task[Any]] = set()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave connections, loop and tasks to the parent; this process creates its own at the next step."""
        keep_for_parent((self._client, self._loop, self._tidying))
        self._client, self._loop, self._tidying = None, None, set()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientError("the client is closed; create a new one")
        # An aiohttp session is bound to the event loop on which it was created.
        if self._loop not in (None, asyncio.get_running_loop()):
            raise ClientError("the client belongs to another event loop, on which it was used first; make one for each")

    @property
    def _http(self) -> HttpClient:
        # Not in `__init__`, since a client may be created before its event loop runs.
        if self._client is None:
            self._loop = asyncio.get_running_loop()
            self._client = HttpClient(self.connection, keeps_cookies=self._credential is None)
        return self._client

    async def close(self) -> None:
        """Close all connections, after cancelled operations have tidied up."""
        self._is_closed = True
        await self._run_in_own_task(self._close())

    async def _close(self) -> None:
        await _retry_once_if_cancelled(self.wait_until_tidy)
        if self._credential is not None:
            await self._credential.close()
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def perform(
        self,
        operation: Operation[T],
        on_event: Callable[[Any], None] | None = None,
        on_input: AnswerInput | None = None,
    ) -> T:
        """Perform an operation and return its result; its events go to `on_event`."""
        self._check_open()
        async with AsyncExitStack() as open_streams:
            step = resume(operation.send, None)
            while not isinstance(step, Done):
                step = await self._perform_step(operation, step, open_streams, on_event, on_input)
        result: T = step.result
        return result

    async def perform_to_the_end(self, operation: Operation[None]) -> None:
        """Perform an operation to its end, even if the calling task is cancelled."""
        self._check_open()
        await self._run_in_own_task(self._perform_rest(operation, operation.send, None))

    async def wait_until_tidy(self) -> None:
        """Wait until cancelled operations have tidied up, which takes a bounded time."""
        # A task that waits for itself would wait for ever.
        tidying = self._tidying - {task for task in (asyncio.current_task(),) if task is not None}
        if tidying:
            await asyncio.wait(tidying)

    async def stream(self, operation: Operation[Any], on_input: AnswerInput | None = None) -> AsyncGenerator[Any, None]:
        """Perform an operation and yield its events."""
        self._check_open()
        async with AsyncExitStack() as open_streams:
            step = resume(operation.send, None)
            while not isinstance(step, Done):
                if isinstance(step, Emit):
                    # A caller that leaves its loop here does not interrupt the operation, so the code continues.
                    yield step.event
                    step = resume(operation.send, None)
                else:
                    step = await self._perform_step(operation, step, open_streams, None, on_input)

    async def _perform_step(
        self,
        operation: Operation[Any],
        step: Step,
        open_streams: AsyncExitStack,
        on_event: Callable[[Any], None] | None,
        on_input: AnswerInput | None,
    ) -> Step | Done:
        """Perform one step and return the operation's next one."""
        try:
            outcome = await self._do(step, open_streams, on_event, on_input)
        except asyncio.CancelledError as error:
            # In a task of its own: a cancel scope of AnyIO cancels everything awaited inside of it again and again.
            with contextlib.suppress(asyncio.CancelledError):
                await self._run_in_own_task(self._tidy_up(operation, error))
            raise
        except BaseException as error:  # the operation decides: it may tidy up before it raises the error again
            return resume(operation.throw, error)
        return resume(operation.send, outcome)

    async def _tidy_up(self, operation: Operation[Any], cancelled: asyncio.CancelledError) -> None:
        """Perform the last steps of a cancelled operation."""
        try:
            await asyncio.wait_for(self._perform_rest(operation, operation.throw, cancelled), _TIDY_SECONDS)
        except asyncio.CancelledError as error:
            # The operation raises the same exception again when it has tidied up.
            if error is not cancelled:
                raise
        except (ExecError, asyncio.TimeoutError) as error:  # the caller gets the cancellation, not this error
            _LOG.warning("a cancelled call could not tidy up: %s", error or "it took too long")

    async def _perform_rest(self, operation: Operation[Any], advance: Callable[[Any], Step], value: Any) -> None:
        """Perform the steps of an operation from ``advance(value)`` on; they must be idempotent."""
        async with AsyncExitStack() as open_streams:
            step = resume(advance, value)
            while not isinstance(step, Done):
                outcome = await _retry_once_if_cancelled(partial(self._do, step, open_streams, None, None))
                step = resume(operation.send, outcome)

    async def _run_in_own_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tidying.add(task)  # the event loop itself holds only weak references to tasks
        task.add_done_callback(self._tidying.discard)
        # The caller may be cancelled once more; the task goes on and `close` waits for it.
        await asyncio.shield(task)

    async def _do(
        self,
        step: Step,
        open_streams: AsyncExitStack,
        on_event: Callable[[Any], None] | None,
        on_input: AnswerInput | None,
    ) -> Any:
        match step:
            case Request():
                return await self._http.request(step)
            case Emit():
                return None if on_event is None else on_event(step.event)
            case AskInput():
                answer = on_input(step.event) if on_input is not None else ""
                return str(await answer) if inspect.isawaitable(answer) else str(answer)
            case OpenStream():
                opened = await self._http.open_stream(step)
                if isinstance(opened, Stream):
                    open_streams.callback(opened.handle.close)
                return opened
            case ReadStream():
                return await self._http.read(step)
            case CloseStream():
                return step.stream.handle.close()
            case Pause():
                return await asyncio.sleep(step.seconds)
            case Work():
                return await asyncio.to_thread(step.action)
            case SendBody():
                return await self._http.send_body(step)
            case GetToken():
                assert self._credential is not None
                return await self._credential.get(step)
        return await self._websocket(step)

    async def _websocket(self, step: Step) -> Any:
        match step:
            case Connect():
                return await websocket.connect(self._http, step)
            case SendMessage():
                return await websocket.send(step.socket, step.data)
            case ReceiveMessage():
                return await websocket.receive(step.socket, step.timeout_seconds)
            case Disconnect():
                return await websocket.close(step.socket)
        raise AssertionError(f"unknown step: {step!r}")


async def _retry_once_if_cancelled(work: Callable[[], Awaitable[T]]) -> T:
    """Await `work()`, and once more if it is cancelled: `asyncio.run` cancels all remaining tasks when it ends."""
    try:
        return await work()
    except asyncio.CancelledError:
        return await work()
