"""The client's logic for servers without ``exec/v1``: the standard kernels API and its WebSocket.

A plain Jupyter Server, Kernel Gateway or Enterprise Gateway keeps working, with the same results: the same translator
reads the messages and the same fold makes the outputs. What the server cannot do here, the client does: the deadline
that interrupts, waits and restarts; the reconnection with the same session id, for which Jupyter replays what came
meanwhile; and the honesty about output that the server's own rate limit dropped or a cut connection lost.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from ..errors import ConnectionLost, ExecError, KernelStartTimeout, SessionEnded
from ..models import (
    ErrorEvent,
    Execution,
    ExecutionState,
    InputRequestEvent,
    KernelSpecInfo,
    StateEvent,
)
from ..wire.kernel import (
    WEBSOCKET_PROTOCOL,
    KernelMessage,
    decode_websocket,
    encode_websocket,
    execute_request,
    new_header,
)
from ..wire.languages import source_for_kernel
from ..wire.translate import RunTranslator
from .exchange import RetryPolicy, segment
from .kernels_api import KernelsApi
from .standard_run import StandardRun
from .steps import (
    AskInput,
    Connect,
    Disconnect,
    Failure,
    Operation,
    ReceiveMessage,
    SendMessage,
    Socket,
)

_CONNECT_SECONDS = 60.0
_PROBE_SECONDS = 2.0
_SETTLE_SECONDS = 5.0
_LOOK_SECONDS = 10.0
_STALE_SECONDS = 20.0


class StandardSession:
    """A kernel of a server without ``exec/v1``, used as a session. One run at a time.

    Parameters
    ----------
    max_output_bytes : int
        The output of an execution that is kept; see `wire.limits`.
    interrupt_grace_seconds : float
        How long interrupted code may take to end before its kernel is restarted.
    """

    def __init__(
        self,
        api: KernelsApi,
        kernel_id: str,
        spec: KernelSpecInfo,
        *,
        max_output_bytes: int,
        interrupt_grace_seconds: float = 2.0,
    ) -> None:
        self.api = api
        self.kernel_id = kernel_id
        self.spec = spec
        self.kernel_starts = 1
        self.interrupted = False
        self._max_output_bytes = max_output_bytes
        self._grace = interrupt_grace_seconds
        self._session_id = uuid.uuid4().hex
        self._socket: Socket | None = None
        self._proven = False
        self._last_used = 0.0

    # --- the connection ---

    def connect(self) -> Operation[None]:
        """Open the WebSocket, if it is not open, and prove that requests and output both get through."""
        if self._socket is None:
            yield from self._open()
        if not self._proven or time.monotonic() - self._last_used > _STALE_SECONDS:
            failure = yield from self._prove()
            if failure is not None:  # it was cut while nobody used it
                yield from self.disconnect()
                yield from self._open()
                failure = yield from self._prove()
                if failure is not None:
                    raise ConnectionLost(f"the kernel's WebSocket does not stay open: {failure.message}")

    def _open(self) -> Operation[None]:
        failure = None
        for attempt in range(self.api.retry.max_retries + 1):
            if attempt:
                yield self.api.retry.pause(attempt - 1)
            path = f"api/kernels/{segment(self.kernel_id)}/channels?session_id={self._session_id}"
            socket: Socket | Failure = yield Connect(path, (WEBSOCKET_PROTOCOL,), _CONNECT_SECONDS)
            if isinstance(socket, Socket):
                self._socket, self._proven = socket, False
                return
            failure = socket
            if (yield from self.api.state(self.kernel_id)) == "dead":
                raise SessionEnded("the server has no such kernel any more; create a new session")
        assert failure is not None
        raise ConnectionLost(f"the kernel's WebSocket cannot be opened: {failure.message}")

    def disconnect(self) -> Operation[None]:
        """Close the WebSocket."""
        if self._socket is not None:
            yield Disconnect(self._socket)
            self._socket = None
            self._proven = False

    def _send(self, channel: str, msg_type: str, content: Mapping[str, Any]) -> Operation[str | Failure]:
        assert self._socket is not None
        header = new_header(msg_type, self._session_id)
        binary = self._socket.subprotocol == WEBSOCKET_PROTOCOL
        failure: Failure | None = yield SendMessage(
            self._socket, encode_websocket(channel, header, content, binary=binary)
        )
        self._last_used = time.monotonic()
        return header["msg_id"] if failure is None else failure

    def _receive(self, seconds: float) -> Operation[KernelMessage | Failure | None]:
        assert self._socket is not None
        data: str | bytes | Failure | None = yield ReceiveMessage(self._socket, max(seconds, 0.001))
        if data is None or isinstance(data, Failure):
            return data
        self._last_used = time.monotonic()
        try:
            return decode_websocket(data)
        except ValueError:
            return KernelMessage("", "malformed", None, {})

    def _prove(self) -> Operation[Failure | None]:
        """Wait until a request is answered and its status arrives on iopub."""
        give_up_at = time.monotonic() + _CONNECT_SECONDS
        probes: set[str] = set()
        replied = subscribed = False
        while not (replied and subscribed):
            if time.monotonic() > give_up_at:
                raise KernelStartTimeout(f"the kernel did not answer within {_CONNECT_SECONDS:g} s")
            sent = yield from self._send("shell", "kernel_info_request", {})
            if isinstance(sent, Failure):
                return sent
            probes.add(sent)
            ask_again_at = time.monotonic() + _PROBE_SECONDS
            while not (replied and subscribed) and time.monotonic() < ask_again_at:
                message = yield from self._receive(ask_again_at - time.monotonic())
                if isinstance(message, Failure):
                    return message
                if message is not None and message.parent_id in probes:
                    subscribed = subscribed or message.channel == "iopub"
                    replied = replied or message.channel == "shell"
        self._proven = True
        return None

    # --- running code ---

    def run(
        self,
        code: str,
        *,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        allow_input: bool = False,
    ) -> Operation[Execution]:
        """Run code, emitting its events, and return the finished execution."""
        source = source_for_kernel(code, language, self.spec.language)
        yield from self.connect()
        self.interrupted = False
        run = StandardRun(
            self.kernel_id,
            self.kernel_starts,
            code,
            language,
            metadata or {},
            timeout_seconds,
            allow_input,
            self._max_output_bytes,
        )
        yield from run.log(StateEvent(ExecutionState.RUNNING))
        sent = yield from self._send("shell", "execute_request", execute_request(source, allow_input=allow_input))
        if isinstance(sent, Failure):
            raise ConnectionLost(f"the code may or may not have been sent: {sent.message}")
        run.translator = RunTranslator(sent)
        state, preserved, reason = yield from self._to_the_end(run, timeout_seconds)
        if not preserved:
            self.kernel_starts += 1
            self._proven = False
        return (yield from run.finish(state, preserved, reason))

    def _to_the_end(
        self, run: StandardRun, timeout_seconds: float | None
    ) -> Operation[tuple[ExecutionState, bool, str | None]]:
        end = yield from self._until(run, timeout_seconds)
        if end == "complete":
            return run.verdict(self.interrupted)
        if end == "died":
            yield from run.log(ErrorEvent("KernelDied", "the kernel died"))
            return ExecutionState.KERNEL_DIED, False, "the kernel died"
        reason = f"its time limit of {timeout_seconds:g} s was reached"
        yield from self.api.interrupt(self.kernel_id)
        end = yield from self._until(run, self._grace)
        if end == "complete":
            return ExecutionState.TIMEOUT, True, reason
        if end == "time is up":
            yield from self.api.restart(self.kernel_id)
        return ExecutionState.TIMEOUT, False, f"{reason}; the kernel had to be restarted"

    def _until(self, run: StandardRun, timeout_seconds: float | None) -> Operation[str]:
        """Take in messages until the run is complete, the kernel died or the time is up."""
        end_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        quiet_since = time.monotonic()
        while not run.translator.complete:
            now = time.monotonic()
            half = run.translator.replied or run.translator.idle
            if half and now - quiet_since > _SETTLE_SECONDS:
                return "complete"
            if end_at is not None and now >= end_at and not half:
                return "time is up"
            limits = [
                _LOOK_SECONDS,
                *([_SETTLE_SECONDS] if half else []),
                *([end_at - now] if end_at and not half else []),
            ]
            message = yield from self._receive(min(limits))
            if isinstance(message, Failure):
                run.incomplete = True  # what was under way on the old connection is not replayed
                if not (yield from self._reconnect()):
                    return "died"
            elif message is None:
                if time.monotonic() - quiet_since > _LOOK_SECONDS and (yield from self._is_dead()):
                    return "died"
            else:
                if _tells_death(message):
                    return "died"
                if message.parent_id == run.translator.msg_id:
                    quiet_since = time.monotonic()
                    yield from self._take(run, message)
        return "complete"

    def _take(self, run: StandardRun, message: KernelMessage) -> Operation[None]:
        event = run.translator.feed(message)
        if event is None:
            return
        yield from run.take(event)
        if isinstance(event, InputRequestEvent):
            value: str = yield AskInput(event)
            yield from self._send("stdin", "input_reply", {"value": value})

    def _reconnect(self) -> Operation[bool]:
        """Open the WebSocket again under the same session id; False if the kernel is gone."""
        yield from self.disconnect()
        try:
            yield from self._open()
        except SessionEnded:
            return False
        self._proven = True  # the subscription was kept by the server, which replays what came meanwhile
        return True

    def _is_dead(self) -> Operation[bool]:
        return (yield from self.api.state(self.kernel_id)) == "dead"

    # --- control ---

    def interrupt(self) -> Operation[None]:
        """Interrupt what runs."""
        self.interrupted = True
        yield from self.api.interrupt(self.kernel_id)

    def restart(self) -> Operation[None]:
        """Give the session a fresh kernel."""
        yield from self.disconnect()
        yield from self.api.restart(self.kernel_id)
        self.kernel_starts += 1

    def close(self) -> Operation[None]:
        """Close the WebSocket and shut the kernel down."""
        yield from self.disconnect()
        yield from self.api.delete(self.kernel_id)


def _tells_death(message: KernelMessage) -> bool:
    """Whether the server says, of its own accord, that the kernel died."""
    return message.msg_type == "status" and message.content.get("execution_state") in ("restarting", "dead")


def open_standard_session(
    kernel_name: str | None, env: Mapping[str, str] | None, retry: RetryPolicy, max_output_bytes: int
) -> Operation[StandardSession]:
    """Start a kernel through the standard API and connect to it."""
    api = KernelsApi(retry)
    spec = yield from api.find(kernel_name)
    kernel_id = yield from api.start(spec.name, env)
    session = StandardSession(api, kernel_id, spec, max_output_bytes=max_output_bytes)
    try:
        yield from session.connect()
    except ExecError:
        yield from session.close()
        raise
    return session
