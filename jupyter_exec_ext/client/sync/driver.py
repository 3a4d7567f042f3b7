"""Driver that performs the client's steps, blocking: HTTP with requests, WebSockets with websocket-client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import ClientError, Conflict
from ...models import InputRequestEvent
from ..api.steps import (
    STREAM_IS_OPEN,
    AskInput,
    CloseStream,
    Connect,
    Disconnect,
    Done,
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
    SendBody,
    SendMessage,
    Step,
    Stream,
    Work,
    resume,
)
from ..fork_safety import renew_after_fork
from ..server_connection import JupyterConnectionInfo

if TYPE_CHECKING:
    from .http_client import SyncCredential

T = TypeVar("T")
AnswerInput = Callable[[InputRequestEvent], str]


class RunLock:
    """Lock that lets one run at a time into a kernel.

    If the thread that waits has an open stream itself, the wait could never end, so it gets a `Conflict`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: int | None = None
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Unlock in the child: the run that holds the lock is the parent's."""
        self._lock = threading.Lock()
        self._holder = None

    def __enter__(self) -> None:
        # This thread would wait for itself; another thread may wait until the stream ends.
        if self._holder == threading.get_ident():
            raise Conflict(STREAM_IS_OPEN)
        self._lock.acquire()
        self._holder = threading.get_ident()

    def __exit__(self, *exc: object) -> None:
        self._holder = None
        if self._lock.locked():  # it is unlocked if a callback of the run has forked and this is the child
            self._lock.release()


class SyncDriver:
    """Performs steps, blocking.

    Parameters
    ----------
    connection : JupyterConnectionInfo
        The server.
    credential : SyncCredential, optional
        Source of access tokens, for a service that requires them. Cookies of such a service are not kept.
    """

    def __init__(self, connection: JupyterConnectionInfo, credential: SyncCredential | None = None) -> None:
        self.connection = connection
        self._credential = credential
        # Imported for the first client: requests takes half of the import's time, which a program that only names the
        # class need not wait for (2026-11-27).
        from .http_client import HttpClient

        self._http = HttpClient(connection, keeps_cookies=credential is None)
        self._is_closed = False

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientError("the client is closed; create a new one")

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        self._http.close()

    def perform(
        self,
        operation: Operation[T],
        on_event: Callable[[Any], None] | None = None,
        on_input: AnswerInput | None = None,
    ) -> T:
        """Perform an operation and return its result; its events go to `on_event`."""
        self._check_open()
        with ExitStack() as open_streams:
            step = resume(operation.send, None)
            while not isinstance(step, Done):
                step = self._perform_step(operation, step, open_streams, on_event, on_input)
        result: T = step.result
        return result

    def perform_to_the_end(self, operation: Operation[None]) -> None:
        """Perform an operation; the asynchronous driver also protects it from cancellation."""
        self.perform(operation)

    def wait_until_tidy(self) -> None:
        """Return at once; in the asynchronous driver, cancelled operations may still tidy up."""

    def stream(self, operation: Operation[Any], on_input: AnswerInput | None = None) -> Iterator[Any]:
        """Perform an operation and yield its events."""
        self._check_open()
        with ExitStack() as open_streams:
            step = resume(operation.send, None)
            while not isinstance(step, Done):
                if isinstance(step, Emit):
                    # A caller that leaves its loop here does not interrupt the operation, so the code continues.
                    yield step.event
                    step = resume(operation.send, None)
                else:
                    step = self._perform_step(operation, step, open_streams, None, on_input)

    def _perform_step(
        self,
        operation: Operation[Any],
        step: Step,
        open_streams: ExitStack,
        on_event: Callable[[Any], None] | None,
        on_input: AnswerInput | None,
    ) -> Step | Done:
        """Perform one step and return the operation's next one."""
        try:
            outcome = self._do(step, open_streams, on_event, on_input)
        except BaseException as error:  # the operation decides: it may tidy up before it raises the error again
            return resume(operation.throw, error)
        return resume(operation.send, outcome)

    def _do(
        self,
        step: Step,
        open_streams: ExitStack,
        on_event: Callable[[Any], None] | None,
        on_input: AnswerInput | None,
    ) -> Any:
        match step:
            case Request():
                return self._request(step)
            case Emit():
                return None if on_event is None else on_event(step.event)
            case AskInput():
                return on_input(step.event) if on_input is not None else ""
            case OpenStream():
                opened = self._http.open_stream(step)
                if isinstance(opened, Stream):
                    open_streams.callback(opened.handle.close)
                return opened
            case ReadStream():
                return step.stream.handle.read(step.silence_seconds)
            case CloseStream():
                return step.stream.handle.close()
            case Pause():
                return time.sleep(step.seconds)
            case Work():
                return step.action()
            case SendBody():
                return self._http.send_body(step)
            case GetToken():
                assert self._credential is not None
                return self._credential.get(step)
        return self._websocket(step)

    # A driver for kernels of this process overrides the next two.

    def _request(self, request: Request) -> Reply | Failure:
        return self._http.request(request)

    def _websocket(self, step: Step) -> Any:
        from . import websocket  # most clients need no WebSocket, and websocket-client is slow to import

        match step:
            case Connect():
                return websocket.connect(self.connection, step, self._http.cookies)
            case SendMessage():
                return websocket.send(step.socket, step.data)
            case ReceiveMessage():
                return websocket.receive(step.socket, step.timeout_seconds)
            case Disconnect():
                return websocket.close(step.socket)
        raise AssertionError(f"unknown step: {step!r}")
